"""A transaction on both sides: what the ledger has, and what the table's timeline showed when a run last looked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_provider_slshudi.ledger.records import LIVE, Event, SeenTimeline, State, Transaction
from airflow_provider_slshudi.transaction.decisions import InstantState
from airflow_provider_slshudi.transaction.timeline_view import COMPLETED, MOST, SAME_RANGES, SAME_TRANSACTION
from airflow_provider_slshudi.views.words import items

ARCHIVED, ABSENT, LEFT_OUT = "archived", "absent", "not kept"
_MEANING = {
    ARCHIVED: "older than the active timeline",
    LEFT_OUT: f"older than the newest {MOST} that are",
}
_EXPECTED = {
    State.PLANNED: {ABSENT},
    State.OPEN: {InstantState.REQUESTED.value, InstantState.INFLIGHT.value},
    State.PREPARED: {InstantState.INFLIGHT.value},
    State.COMMITTED: {COMPLETED, ARCHIVED},
    State.ABORTED: {ABSENT, ARCHIVED},
}
"""What the timeline shows of a transaction in each state, if all is well."""


class Verdict(Enum):
    """What both sides say together."""

    AGREE = "Ledger and timeline agree."
    NEWER = "The ledger changed after the timeline was seen: the next run looks again."
    DECIDES = "They differ as they do when a step died: settle decides the batch once no run works on it."
    DIFFER = "They differ, and the batch is decided: the next settle says what is to be done."
    UNKNOWN = "It is not recorded what the timeline shows of this batch."


@dataclass(frozen=True)
class Sides:
    """One transaction's timeline side; the ledger's is the transaction itself.

    Attributes:
        seen: what the last run saw of the timeline; None if none has kept it.
        state: what it shows of the instant: one of Hudi's states, ROLLING_BACK, or `ARCHIVED` (older than the active
            timeline), `ABSENT`, `LEFT_OUT` (among older instants that are not kept); None without `seen`.
        meaning: says more of a state.
        instant, completion: the instant, if the timeline shows it, and Hudi's completion time, if it has one.
        same_transaction, same_ranges: whether the commit's extra metadata has the ledger's, compared when the ledger
            was told of the commit; None if it was not compared.
    """

    seen: SeenTimeline | None
    state: str | None
    meaning: str
    instant: str | None
    completion: str | None
    same_transaction: bool | None
    same_ranges: bool | None
    verdict: Verdict


def sides_of(found: Transaction, events: Iterable[Event], seen: SeenTimeline | None) -> Sides:
    """What the timeline showed of a transaction."""
    state, completion = (None, None) if seen is None else _shown(found.instant, seen)
    comparison = _committed(events)
    return Sides(
        seen,
        state,
        _MEANING.get(state or "", ""),
        found.instant if seen is not None and found.instant in seen.instants else None,
        completion,
        comparison.get(SAME_TRANSACTION),
        comparison.get(SAME_RANGES),
        _verdict(found, state, completion, comparison, seen),
    )


def _shown(instant: str | None, seen: SeenTimeline) -> tuple[str, str | None]:
    if instant is None:
        return ABSENT, None
    if instant in seen.instants:
        return seen.instants[instant].state, seen.instants[instant].completion
    if seen.oldest and instant < seen.oldest:
        return ARCHIVED, None
    return (LEFT_OUT if instant < seen.first else ABSENT), None


def _verdict(
    found: Transaction, state: str | None, completion: str | None, told: dict[str, Any], seen: SeenTimeline | None
) -> Verdict:
    if seen is None or state is None or state == LEFT_OUT:
        return Verdict.UNKNOWN
    same_time = completion is None or found.completed is None or completion == found.completed
    if state in _EXPECTED[found.state] and same_time and False not in told.values():
        return Verdict.AGREE
    if seen.at < found.changed:
        return Verdict.NEWER
    return Verdict.DECIDES if found.state in LIVE else Verdict.DIFFER


def _committed(events: Iterable[Event]) -> dict[str, Any]:
    """What the comparison with the commit found."""
    detail = next((event.detail for event in events if event.what == State.COMMITTED.value), "{}")
    fields = items(detail) or {}
    return {name: fields[name] for name in (SAME_TRANSACTION, SAME_RANGES) if name in fields}
