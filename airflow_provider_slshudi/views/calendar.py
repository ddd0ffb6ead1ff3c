"""Partitions of event times as a calendar: hours by day, days by month, months by year."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Completion, PartitionRow, PartitionState, Transaction
from airflow_provider_slshudi.views.words import Figure, Text

STATES: Mapping[PartitionState, str] = {
    PartitionState.COMPLETE: Text("complete"),
    PartitionState.OPEN: Text("not complete yet"),
    PartitionState.REOPENED: Text("reopened"),
    PartitionState.PARTIAL: Text("partial"),
}
"""What a page calls each state."""
_COMPLETIONS = 20
"""The most times that a partition's own part shows of those when it became complete."""


@dataclass(frozen=True)
class Layout:
    """How a calendar shows partitions of one length.

    Attributes:
        columns: how the values of a line end, in order.
        seconds: of event time that a line takes at most.
        choices: how many lines a page offers.
        label: what it calls these, with `{n}`.
    """

    columns: tuple[str, ...]
    seconds: int
    choices: tuple[int, ...]
    label: str

    def say(self, lines: int) -> Text:
        """The length of so many lines."""
        return Figure(self.label, n=lines)


def _numbers(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{number:02}" for number in range(first, last + 1))


_HOUR = 3_600
_LAYOUTS = {
    3: Layout(_numbers(0, 23), 25 * _HOUR, (2, 7, 31), "{n} d"),
    2: Layout(_numbers(1, 31), (31 * 24 + 1) * _HOUR, (3, 12, 36), "{n} mo"),
    1: Layout(_numbers(1, 12), 366 * 24 * _HOUR, (2, 5, 10), "{n} y"),
}
"""By the hyphens of a partition's value: those of an hour, a day and a month."""


@dataclass(frozen=True)
class Calendar:
    """The partitions of one span, the newest line first.

    Attributes:
        lines: by what the values of a line have in common, each partition by the end of its value.
        shown: how many lines were asked for.
        older: the next older partitions begin before this (unix seconds); None: there are none.
    """

    layout: Layout
    lines: Mapping[str, Mapping[str, PartitionRow]]
    shown: int
    older: int | None

    @property
    def partitions(self) -> list[PartitionRow]:
        """All of them."""
        return [item for line in self.lines.values() for item in line.values()]

    @property
    def counts(self) -> Mapping[PartitionState, int]:
        """How many are in each state."""
        return Counter(item.state for item in self.partitions)

    @property
    def gaps(self) -> int:
        """How many have gaps."""
        return sum(item.gaps > 0 for item in self.partitions)


def calendar(ledger: Ledger, name: str, before: int, lines: int | None) -> Calendar | None:
    """The newest partitions of a pipeline that begin before a time (unix seconds); None where there are none.

    Args:
        ledger: the pipeline's.
        name: the pipeline's.
        before: later ones, such as those of logs with a wrong clock, are left out.
        lines: how many lines; what `Layout.choices` does not offer becomes its second choice.
    """
    newest = ledger.newest_begin(name, before)
    if newest is None:
        return None
    # Two begin at a time where the file was changed, from days to hours say.
    last = ledger.partitions(name, newest, newest + 1)[-1]
    layout = _LAYOUTS[last.value.count("-")]
    shown = lines if lines in layout.choices else layout.choices[1]
    by_line: dict[str, dict[str, PartitionRow]] = {}
    for item in reversed(ledger.partitions(name, newest - shown * layout.seconds, newest + 1)):
        line, _, end = item.value.rpartition("-")
        by_line.setdefault(line, {})[end] = item
    kept_lines = dict([*by_line.items()][:shown])
    oldest = min(item.begin for line in kept_lines.values() for item in line.values())
    older = oldest if ledger.newest_begin(name, oldest) is not None else None
    return Calendar(layout, kept_lines, shown, older)


@dataclass(frozen=True)
class PartitionView:
    """One partition.

    Attributes:
        completions: the newest times that it became complete, the newest first.
        last: the last batch that wrote to it; None: none did.
    """

    row: PartitionRow
    completions: list[Completion]
    last: Transaction | None


def partition(ledger: Ledger, name: str, shown: Calendar, value: str) -> PartitionView | None:
    """One of the partitions of a calendar; None where it has none of this value."""
    row = next((item for item in shown.partitions if item.value == value), None)
    if row is None:
        return None
    last = next(iter(ledger.commits(name, row.place - 1, row.place)), None)
    return PartitionView(row, ledger.completions_of(name, value, _COMPLETIONS), last)


@dataclass(frozen=True)
class Watermark:
    """All logs that the service received before `until` are committed, as far as looks at it tell (None: they do not).

    `looked` is the service's time of the newest look; both are unix seconds.
    """

    until: int | None
    looked: int


def watermark(ledger: Ledger, name: str) -> Watermark | None:
    """A pipeline's; None where its file declares no lateness, or no run has looked at the service since it does."""
    until, looked = ledger.progress(name)
    return None if looked is None else Watermark(until, looked)
