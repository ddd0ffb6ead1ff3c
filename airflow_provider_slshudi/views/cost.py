"""What batches cost: CPU seconds, requests to the log service, files and bytes. None is unknown, and never 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.ledger.records import Event, State
from airflow_provider_slshudi.transaction.context import CPU, REQUESTS
from airflow_provider_slshudi.views.words import items

if TYPE_CHECKING:
    from airflow_provider_slshudi.views.history import BatchView

_GB = 1e9
ENOUGH = 100_000_000
"""Raw bytes from which on a cost for each GB says something: below them a driver's start is most of it."""
TASKS = "append's tasks"
"""The part of CPU seconds that the Python of the append's tasks takes, who send the append's requests."""


@dataclass(frozen=True)
class Cost:
    """What one transaction cost.

    Attributes:
        asked: requests to the log service, by who sent them: the plan, and the tasks of the append.
        cpu: CPU seconds, by what took them: the drivers that open, append and commit, and the append's tasks.
    """

    asked: Mapping[str, int | None]
    cpu: Mapping[str, float | None]

    @property
    def requests(self) -> int | None:
        """All requests; unknown if a part is."""
        counts = [count for count in self.asked.values() if count is not None]
        return sum(counts) if len(counts) == len(self.asked) else None

    @property
    def seconds(self) -> float | None:
        """All CPU seconds; unknown if a part is."""
        amounts = [seconds for seconds in self.cpu.values() if seconds is not None]
        return sum(amounts) if len(amounts) == len(self.cpu) else None


@dataclass(frozen=True)
class Costs:
    """What the committed ones of some batches cost together, for each GB (10^9) of raw bytes.

    Attributes:
        batches: how many of them read logs.
        bytes: raw bytes that these read.
        known: of how many the CPU seconds are known; the others count for no CPU seconds.
        stored: bytes in files for each raw byte.
    """

    batches: int
    bytes: int
    known: int
    cpu: float | None
    requests: float | None
    files: float | None
    stored: float | None


def cost_of(facts: Mapping[str, Any], events: Iterable[Event]) -> Cost:
    """What a transaction cost, by its facts and events."""
    details = {event.what: items(event.detail) or {} for event in events if event.what in State.__members__}
    spent = facts.get("spent") or {}

    def of(state: State, name: str) -> Any:
        return details.get(state.value, {}).get(name)

    return Cost(
        {"plan": of(State.PLANNED, REQUESTS), "append": spent.get("requests")},
        {
            "open": of(State.OPEN, CPU),
            "append": spent.get("driver"),
            TASKS: spent.get("tasks"),
            "commit": of(State.COMMITTED, CPU),
        },
    )


def costs(shown: Iterable[BatchView]) -> Costs:
    """What the committed ones of these batches cost together."""
    read = [batch for batch in shown if batch.transaction.state is State.COMMITTED and batch.transaction.bytes]
    stored = _per_gb(read, lambda batch: batch.stored)
    return Costs(
        len(read),
        sum(batch.transaction.bytes for batch in read),
        sum(batch.cost.seconds is not None for batch in read),
        _per_gb(read, lambda batch: batch.cost.seconds),
        _per_gb(read, lambda batch: batch.cost.requests),
        _per_gb(read, lambda batch: batch.files),
        None if stored is None else stored / _GB,
    )


def _per_gb(read: Sequence[BatchView], figure: Callable[[BatchView], float | None]) -> float | None:
    """A figure of those batches of which it is known, for each GB that these read."""
    figures = [(amount, batch.transaction.bytes) for batch in read if (amount := figure(batch)) is not None]
    return sum(amount for amount, _ in figures) / sum(size for _, size in figures) * _GB if figures else None
