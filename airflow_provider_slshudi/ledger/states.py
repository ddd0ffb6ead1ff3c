"""The states of a transaction and the changes between them."""

from __future__ import annotations

from enum import Enum


class State(str, Enum):
    """How far a transaction has come."""

    PLANNED = "PLANNED"
    OPEN = "OPEN"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class Kind(str, Enum):
    """What a transaction does: tail and backfill read ranges, a replay reads the quarantine."""

    TAIL = "tail"
    BACKFILL = "backfill"
    REPLAY = "replay"


LEGAL: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.OPEN, State.ABORTED}),
    State.OPEN: frozenset({State.PREPARED, State.ABORTED}),
    State.PREPARED: frozenset({State.COMMITTED, State.ABORTED}),
    State.COMMITTED: frozenset(),
    State.ABORTED: frozenset(),
}

LIVE = tuple(state for state, following in LEGAL.items() if following)


def origins(target: State) -> tuple[State, ...]:
    """The states from which `target` may be reached."""
    return tuple(state for state, following in LEGAL.items() if target in following)
