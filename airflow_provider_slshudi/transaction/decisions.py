"""Decides what to do about a transaction, from its state in the ledger and its instant on the table's timeline."""

from __future__ import annotations

from enum import Enum

from airflow_provider_slshudi.ledger.records import State


class InstantState(str, Enum):
    """How far a transaction's instant is on the timeline (active and archived).

    COMPLETED_OURS: the commit carries this transaction's id. COMPLETED_FOREIGN: it does not. NOTHING: the timeline was
    read and has no such instant. ROLLING_BACK: a rollback of the instant began and did not end, so some of its files
    may be gone, whichever else the timeline shows. UNREADABLE: the timeline could not be read, so nothing is known.
    """

    NOTHING = "NOTHING"
    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED_OURS = "COMPLETED_OURS"
    COMPLETED_FOREIGN = "COMPLETED_FOREIGN"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    UNREADABLE = "UNREADABLE"


class Decision(str, Enum):
    """What recovery does. A person handles the STOP decisions, except STOP_UNREADABLE, which is tried again."""

    NOTHING_TO_DO = "NOTHING_TO_DO"
    ABORT = "ABORT"
    ROLL_BACK = "ROLL_BACK"
    ROLL_BACK_AND_ABORT = "ROLL_BACK_AND_ABORT"
    RECOMMIT = "RECOMMIT"
    MARK_COMMITTED = "MARK_COMMITTED"
    STOP_LEDGER_AHEAD = "STOP_LEDGER_AHEAD"
    STOP_LEDGER_LOST = "STOP_LEDGER_LOST"
    STOP_FOREIGN = "STOP_FOREIGN"
    STOP_UNREADABLE = "STOP_UNREADABLE"

    @property
    def stops(self) -> bool:
        """Whether planning and committing must wait until this is settled."""
        return self.value.startswith("STOP")


class Obstacle(str, Enum):
    """Why a recorded batch is rolled back instead of committed again; its value is the reason for logs and events.

    OVERTAKEN: another write completed after an upsert began, which did not read it. COMMITTED_ELSEWHERE: another
    ledger's batch has the same ranges. WITHDRAWN: a run that began to roll the batch back deleted its order.
    """

    OVERTAKEN = "what it merged is out of date: instant {instant} was completed since"
    COMMITTED_ELSEWHERE = "another ledger's batch has committed the same ranges as instant {instant}"
    WITHDRAWN = "its order was withdrawn: a rollback of it was begun, and did not end"


_UNREADABLE = (Decision.STOP_UNREADABLE, "the timeline could not be read, and unknown is not 'not committed'")
_BEHIND = (
    Decision.STOP_LEDGER_LOST,
    "the table holds this transaction's commit and the ledger, older than that, does not: rebuild it from the table",
)
_UNKNOWN = (
    Decision.STOP_LEDGER_LOST,
    "the table holds a transaction of ours that the ledger does not know: rebuild it from the table",
)
_AHEAD = (
    Decision.STOP_LEDGER_AHEAD,
    "the ledger says COMMITTED and the table has no such commit: it was restored, deleted or replaced",
)
_FOREIGN = (Decision.STOP_FOREIGN, "another client completed this transaction's instant: find out who writes the table")
_ROLLED_BACK = (Decision.ABORT, "a client rolled the instant back; its ranges are free to be planned again")
_UNFINISHED = (Decision.ROLL_BACK_AND_ABORT, "an append that ended early is never continued")
_ROLLING_BACK = (
    Decision.ROLL_BACK_AND_ABORT,
    "a rollback of the instant ended half-way: some of its files may be gone, so what is left of them goes too",
)

_I, _S = InstantState, State

_TABLE: dict[tuple[State | None, InstantState], tuple[Decision, str]] = {
    (_S.PLANNED, _I.NOTHING): (Decision.ABORT, "nothing was written"),
    (_S.PLANNED, _I.REQUESTED): (Decision.ROLL_BACK_AND_ABORT, "an instant was opened and the ledger never told"),
    (_S.PLANNED, _I.INFLIGHT): (Decision.ROLL_BACK_AND_ABORT, "an instant was opened and the ledger never told"),
    (_S.PLANNED, _I.COMPLETED_OURS): _BEHIND,
    (_S.PLANNED, _I.COMPLETED_FOREIGN): _FOREIGN,
    (_S.PLANNED, _I.ROLLING_BACK): _ROLLING_BACK,
    (_S.PLANNED, _I.ROLLED_BACK): _ROLLED_BACK,
    (_S.OPEN, _I.NOTHING): _ROLLED_BACK,
    (_S.OPEN, _I.REQUESTED): _UNFINISHED,
    (_S.OPEN, _I.INFLIGHT): _UNFINISHED,
    (_S.OPEN, _I.COMPLETED_OURS): _BEHIND,
    (_S.OPEN, _I.COMPLETED_FOREIGN): _FOREIGN,
    (_S.OPEN, _I.ROLLING_BACK): _ROLLING_BACK,
    (_S.OPEN, _I.ROLLED_BACK): _ROLLED_BACK,
    (_S.PREPARED, _I.NOTHING): _ROLLED_BACK,
    (_S.PREPARED, _I.REQUESTED): (
        Decision.ROLL_BACK_AND_ABORT,
        "the instant is not INFLIGHT, so it cannot be committed as it was recorded",
    ),
    (_S.PREPARED, _I.INFLIGHT): (Decision.RECOMMIT, "the data is there and the ranges are recorded"),
    (_S.PREPARED, _I.COMPLETED_OURS): (Decision.MARK_COMMITTED, "the commit happened and the ledger was not told"),
    (_S.PREPARED, _I.COMPLETED_FOREIGN): _FOREIGN,
    (_S.PREPARED, _I.ROLLING_BACK): _ROLLING_BACK,
    (_S.PREPARED, _I.ROLLED_BACK): _ROLLED_BACK,
    (_S.COMMITTED, _I.NOTHING): _AHEAD,
    (_S.COMMITTED, _I.REQUESTED): _AHEAD,
    (_S.COMMITTED, _I.INFLIGHT): _AHEAD,
    (_S.COMMITTED, _I.COMPLETED_OURS): (Decision.NOTHING_TO_DO, "ledger and table agree"),
    (_S.COMMITTED, _I.COMPLETED_FOREIGN): _AHEAD,
    (_S.COMMITTED, _I.ROLLING_BACK): _AHEAD,
    (_S.COMMITTED, _I.ROLLED_BACK): _AHEAD,
    (_S.ABORTED, _I.NOTHING): (Decision.NOTHING_TO_DO, "ledger and table agree"),
    (_S.ABORTED, _I.REQUESTED): (Decision.ROLL_BACK, "the transaction was aborted and its instant is still pending"),
    (_S.ABORTED, _I.INFLIGHT): (Decision.ROLL_BACK, "the transaction was aborted and its instant is still pending"),
    (_S.ABORTED, _I.COMPLETED_OURS): (
        Decision.STOP_LEDGER_LOST,
        "the table holds the commit of an aborted transaction, whose ranges may be read again: rebuild the ledger",
    ),
    (_S.ABORTED, _I.COMPLETED_FOREIGN): _FOREIGN,
    (_S.ABORTED, _I.ROLLING_BACK): (
        Decision.ROLL_BACK,
        "a rollback of the aborted transaction's instant ended half-way",
    ),
    (_S.ABORTED, _I.ROLLED_BACK): (Decision.NOTHING_TO_DO, "ledger and table agree"),
    (None, _I.NOTHING): (Decision.NOTHING_TO_DO, "neither knows of a transaction"),
    (None, _I.REQUESTED): _UNKNOWN,
    (None, _I.INFLIGHT): _UNKNOWN,
    (None, _I.COMPLETED_OURS): _UNKNOWN,
    (None, _I.COMPLETED_FOREIGN): (Decision.NOTHING_TO_DO, "the commit is no transaction's of ours"),
    (None, _I.ROLLING_BACK): _UNKNOWN,
    (None, _I.ROLLED_BACK): (Decision.NOTHING_TO_DO, "it was rolled back and holds no data"),
} | {(state, _I.UNREADABLE): _UNREADABLE for state in (None, *State)}


def decide(state: State | None, timeline: InstantState, obstacle: Obstacle | None = None) -> Decision:
    """What recovery does about a transaction.

    Args:
        state: in the ledger; None: the ledger has no row.
        timeline: how far its instant is.
        obstacle: why it cannot be committed again; None: it can, or that was not asked since nothing commits it.
    """
    decision = _TABLE[state, timeline][0]
    return Decision.ROLL_BACK_AND_ABORT if decision is Decision.RECOMMIT and obstacle is not None else decision


def why(state: State | None, timeline: InstantState) -> str:
    """The reason of `decide`, for logs, events and errors."""
    return _TABLE[state, timeline][1]
