"""What a case came to, and the last line of many."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pytest

AnyCase = TypeVar("AnyCase")


@dataclass
class Outcome:
    """What a counting or a whole case came to. Nothing counted is no proof: an outcome without logs is not `ok`.

    Attributes:
        logs: how many were compared with rows.
        lost: logs without a row.
        doubled: rows too many, those of no log among them.
        differences: which logs and rows these are, by reader.
        wrong: what is not as it should be beside the number of rows.
        case: the name of the case.
        notes: how it went on the way.
        jammed: the error that no command which it names ends.
        broken: why the case itself did not go as planned, so that it proves nothing.
        missed: why its trouble did not come.
        figures: other counts of the suite, by what they count.
    """

    logs: int = 0
    lost: int = 0
    doubled: int = 0
    differences: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    case: str = ""
    notes: list[str] = field(default_factory=list)
    jammed: str = ""
    broken: str = ""
    missed: str = ""
    figures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """All that is wrong with rows, files and ledger."""
        return [*self.differences, *self.wrong]

    @property
    def ok(self) -> bool:
        """Whether each log has its row, and nothing else is wrong."""
        return self.logs > 0 and not (self.lost or self.doubled or self.faults or self.jammed or self.broken)

    def add(self, other: Outcome) -> None:
        """Adds the counts of another pipeline."""
        self.logs += other.logs
        self.lost += other.lost
        self.doubled += other.doubled
        self.differences += other.differences
        self.wrong += other.wrong

    def match(self, other: Outcome) -> None:
        """Takes over what another reader shows of the same rows."""
        self.lost, self.doubled = max(self.lost, other.lost), max(self.doubled, other.doubled)
        self.differences += other.differences
        self.wrong += other.wrong

    def require(self) -> None:
        """Goes on only where all is exact.

        Raises:
            NotExact: a log is lost or doubled, or something else is wrong.
        """
        if not self.ok:
            raise NotExact(self)

    def __str__(self) -> str:
        notes = "; ".join(filter(None, [*self.notes, self.missed]))
        if self.ok:
            return f"ok      {self.case}: {notes}"
        counts = [f"{self.logs} logs compared, {self.lost} lost, {self.doubled} doubled"] if self.logs else []
        jammed = [f"jammed: {self.jammed}"] if self.jammed else []
        why = [*counts, *self.faults, *jammed, *filter(None, [self.broken])]
        return f"FAILED  {self.case}: {'; '.join(why)[:2000]} (on the way: {notes[:600]})"


def compared(
    reader: str, rows: Iterable[Hashable], logs: Collection[Hashable], excused: Collection[Hashable] = ()
) -> Outcome:
    """Compares rows with logs, both by their names.

    Args:
        reader: shows the rows.
        rows: the name of the log that each row is of; a row of no log is one too many.
        logs: the names of what the service held.
        excused: names of logs that need not have a row.
    """
    counts, wanted = Counter(rows), set(logs)
    missing = sorted(map(str, wanted - counts.keys() - set(excused)))
    strange = sorted(map(str, counts.keys() - wanted))
    repeated = counts.total() - len(counts)
    differences = {
        f"{len(missing)} logs lost ({', '.join(missing[:3])})": missing,
        f"{repeated} rows doubled": repeated,
        f"{len(strange)} rows of no log, doubled or foreign ({', '.join(strange[:3])})": strange,
    }
    said = [f"{reader}: {difference}" for difference, count in differences.items() if count]
    return Outcome(len(wanted), len(missing), repeated + len(strange), said)


class NotExact(AssertionError):
    """Rows and logs differ."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("; ".join(outcome.faults) or f"{outcome.lost} lost, {outcome.doubled} doubled")
        self.outcome = outcome


class Jammed(Exception):
    """Nothing that an error names helps."""


def attempt(case: object, carry_out: Callable[[Outcome], object], begun: Outcome | None = None) -> Outcome:
    """Carries one case out, which fills in its outcome, or goes on with one; an error becomes a part of that."""
    outcome, began = begun or Outcome(), time.monotonic()
    outcome.case = str(case)
    try:
        carry_out(outcome)
    except NotExact as error:
        outcome.add(error.outcome)
    except Jammed as error:
        outcome.jammed = str(error)
    except (Exception, pytest.fail.Exception) as error:
        traceback.print_exc(file=sys.stderr)
        outcome.broken = f"{type(error).__name__}: {error}"
    outcome.seconds = time.monotonic() - began
    return outcome


def each(cases: Iterable[AnyCase], carry_out: Callable[[AnyCase, Outcome], object]) -> Iterator[Outcome]:
    """The outcomes of cases, one after the other."""
    for case in cases:
        yield attempt(case, partial(carry_out, case))


@dataclass
class Report:
    """The outcomes of a trouble's cases; its text is the last line of a run."""

    name: str
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there was a case, and all were exact."""
        return bool(self.outcomes) and all(outcome.ok for outcome in self.outcomes)

    def failures(self) -> Iterator[str]:
        """A line for each case that failed."""
        return (str(outcome) for outcome in self.outcomes if not outcome.ok)

    def __str__(self) -> str:
        figures: Counter[str] = Counter()
        for outcome in self.outcomes:
            figures += outcome.figures
        figures["without their trouble"] = sum(bool(outcome.missed) for outcome in self.outcomes)
        others = ", ".join([*(f"{count} {name}" for name, count in figures.items() if count), f"seed {self.seed}"])
        lost, doubled = (sum(getattr(outcome, name) for outcome in self.outcomes) for name in ("lost", "doubled"))
        jammed = sum(bool(outcome.jammed) for outcome in self.outcomes)
        otherwise = sum(
            not (outcome.ok or outcome.lost or outcome.doubled or outcome.jammed) for outcome in self.outcomes
        )
        return (
            f"{self.name}: {len(self.outcomes)} cases ({others}): {lost} lost, {doubled} doubled, {jammed} jammed, "
            f"{otherwise} failed otherwise"
        )
