"""What the table's side shows of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import (
    ForeignWrite,
    LedgerAhead,
    LedgerLost,
    PipelineConflict,
)
from airflow_provider_slshudi.hudi.extra import KIND_KEY, PIPELINE_KEY, TRANSACTION_KEY, ranges_of
from airflow_provider_slshudi.hudi.timeline import CHANGES, COMMITS, Instant, Phase, Timeline
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.ledger.states import Kind, State
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.protocol import quarantine
from airflow_provider_slshudi.protocol.decisions import InstantState, decide
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import overlap
from airflow_provider_slshudi.storage import Storage

REBUILD = "slshudi ledger rebuild"
# What moves rows into other files and changes none.
_SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})


@dataclass(frozen=True)
class Evidence:
    """How far a transaction's instant is; `completion` is Hudi's completion time where it is completed."""

    state: InstantState
    instant: str | None = None
    completion: str | None = None


def look(work: Work, transaction: Transaction, timeline: Timeline | None = None) -> Evidence:
    """What the timeline, read anew unless it is given, shows of a transaction.

    Raises:
        TimelineUnreadable: it could not be read, so nothing is known.
    """
    timeline = timeline or work.timeline()
    instant = transaction.instant or _owned(work.storage, timeline, transaction.id)
    if instant is None:
        return Evidence(InstantState.NOTHING)
    found = timeline.get(instant)
    if found is not None and found.phase is Phase.COMPLETED:
        # A rollback that is to undo it makes it INFLIGHT before it deletes anything.
        return Evidence(_completed(timeline.extra_metadata(found), transaction.id), instant, found.completion)
    pending = state_of_pending(timeline, instant)
    return _gone(timeline, instant, transaction.id) if pending is InstantState.NOTHING else Evidence(pending, instant)


def state_of_pending(timeline: Timeline, instant: str) -> InstantState:
    """How far an instant is that is not completed."""
    if instant in timeline.rolling_back:
        return InstantState.ROLLING_BACK
    found = timeline.get(instant)
    if found is None:
        return InstantState.NOTHING
    return InstantState.REQUESTED if found.phase is Phase.REQUESTED else InstantState.INFLIGHT


def open_instant_of(work: Work, transaction: Transaction) -> str | None:
    """The pending instant that an opener of this transaction put on the timeline, under the transaction's token."""
    wanted = transaction.id, transaction.token
    owners = _pending_owners(work.storage, work.timeline())
    return next((instant for instant, owner in owners if (owner.transaction, owner.token) == wanted), None)


def pending_of(work: Work) -> list[tuple[str, str]]:
    """(instant, transaction id) of the instants that this pipeline opened and that are pending, or half rolled back.

    An append that woke up after its instant's rollback leaves one without an owner; the ledger knows whose it was.
    """
    found = []
    for instant in _pending(work.timeline()):
        owner = handover.read_owner(work.storage, instant)
        if owner is not None and owner.pipeline == work.pipeline.name:
            found.append((instant, owner.transaction))
        elif owner is None and (known := work.ledger.by_instant(work.pipeline.name, instant)) is not None:
            found.append((instant, known.id))
    return found


def require_agreement(work: Work) -> None:
    """Lets nothing new begin while ledger and table disagree, or somebody else writes to the table.

    Settle ends with it, and plan asks again under its lease: a person may have marked settle a success, and the
    ledger's connection may have changed since. One listing and a few small files, however long the history.

    Raises:
        As `check_table_against_ledger`, `refuse_foreign_writes` and `quarantine.require_no_newer`.
    """
    timeline = work.timeline()
    check_table_against_ledger(work, timeline)
    refuse_foreign_writes(work, timeline)
    quarantine.require_no_newer(work, timeline)


def require_known_commits(work: Work) -> None:
    """Lets nothing be committed beside commits of this pipeline that the ledger does not know; see `require_agreement`.

    Raises:
        LedgerAhead, LedgerLost: ledger and table disagree.
    """
    timeline = work.timeline()
    check_table_against_ledger(work, timeline)
    for instant, extra in _not_in_ledger(work, timeline):
        if extra.get(PIPELINE_KEY) == work.pipeline.name:
            _require_known(work, instant.time, extra[TRANSACTION_KEY])


def committed_elsewhere(work: Work, timeline: Timeline, transaction: Transaction) -> str | None:
    """A commit of this pipeline that the ledger does not know, and that holds what the transaction read.

    So it is where two ledgers planned the same ranges; None where there is none.
    """
    mine = work.ledger.ranges(transaction.id)
    for instant, extra in _not_in_ledger(work, timeline):
        if extra.get(PIPELINE_KEY) != work.pipeline.name:
            continue
        replays = extra[KIND_KEY] == transaction.kind.value == Kind.REPLAY.value
        if work.ledger.find(extra[TRANSACTION_KEY]) is None and (
            replays or overlap(mine, (item for item, _, _ in ranges_of(extra)))
        ):
            return instant.time
    return None


def refuse_foreign_writes(work: Work, timeline: Timeline | None = None) -> None:
    """Looks at what was completed on the table beside this pipeline's own transactions and table services.

    Reads the commits that are neither in the ledger nor accepted by its rebuild, of which there mostly are none.

    Raises:
        PipelineConflict: another pipeline writes to the table.
        ForeignWrite: another client does.
        LedgerLost: a commit, or a pending instant, is of a transaction that the ledger does not know; or a commit of
            one that it thinks was never committed.
    """
    name, timeline = work.pipeline.name, timeline or work.timeline()
    for instant, extra in _not_in_ledger(work, timeline):
        other = extra.get(PIPELINE_KEY)
        if other == name:
            _require_known(work, instant.time, extra[TRANSACTION_KEY])
        elif other is not None:
            _refuse_pipeline(work, instant.time, other)
        operation = timeline.operation(instant)
        if other is None and operation not in _SERVICES:
            raise ForeignWrite(
                f"{work.storage.uri}: instant {instant.time} ({operation}) was written by somebody else than pipeline "
                f"{name}. Nothing is written until it is known to be meant: then `{REBUILD} {name}` takes the table as "
                "it is; otherwise find out who writes there, and restore the table to before it",
                table=work.storage.uri,
                instant=instant.time,
                operation=operation,
            )
    for pending, owner in _pending_owners(work.storage, timeline):
        if owner.pipeline != name:
            _refuse_pipeline(work, pending, owner.pipeline)
        elif work.ledger.find(owner.transaction) is None:
            raise ledger_lost(work, pending, owner.transaction)


def _not_in_ledger(work: Work, timeline: Timeline) -> Iterator[tuple[Instant, dict[str, str]]]:
    """Completed changes, with their extra metadata, that are neither committed in the ledger nor accepted."""
    completed = timeline.completed(*CHANGES)
    ours = work.ledger.committed_instants(work.pipeline.name, [instant.time for instant in completed])
    accepted = work.ledger.accepted(work.pipeline.name)
    for instant in completed:
        if instant.time not in ours and str(instant.completion) > accepted:
            yield instant, timeline.extra_metadata(instant)


def _refuse_pipeline(work: Work, instant: str, other: str) -> None:
    raise PipelineConflict(
        f"{work.storage.uri}: instant {instant} is of pipeline {other}, which writes to the same table as pipeline "
        f"{work.pipeline.name}, with another ledger: give one of them a table of its own",
        pipeline=work.pipeline.name,
        other=other,
    )


def check_table_against_ledger(work: Work, timeline: Timeline | None = None) -> None:
    """Compares the newest commit of each side; one listing and a few small files, however long the history.

    Raises:
        LedgerAhead: the newest committed transaction is not on the timeline.
        LedgerLost: the table's newest commit of this pipeline is of a transaction that the ledger does not know, or
            thinks was never committed.
    """
    timeline = timeline or work.timeline()
    newest = _newest_commit(work, timeline)
    if newest is not None:
        _require_known(work, *newest)
    latest = work.ledger.latest_committed(work.pipeline.name)
    if latest is None:
        return
    seen = look(work, latest, timeline)
    if decide(latest.state, seen.state).stops:
        raise LedgerAhead(
            f"the ledger has transaction {latest.id} committed as instant {latest.instant}, but on the timeline of "
            f"{work.storage.uri} that instant is {seen.state.value}: the table was restored, replaced or deleted. "
            f"Nothing is written until `{REBUILD} {work.pipeline.name}` has made the ledger agree with the table",
            table=work.storage.uri,
            instant=latest.instant,
            transaction=latest.id,
        )


def ledger_lost(work: Work, instant: str, id_: str, state: State | None = None) -> LedgerLost:
    """The error for an instant of ours that the ledger does not know, or whose transaction it has in another state."""
    known = f"has as {state.value}: the ledger is older than the table" if state else "does not know: it was lost"
    return LedgerLost(
        f"{work.storage.uri}: instant {instant} carries transaction {id_} of pipeline {work.pipeline.name}, which the "
        f"ledger {known}. Nothing is written until `{REBUILD} {work.pipeline.name}` has made it anew from the table",
        table=work.storage.uri,
        instant=instant,
        transaction=id_,
    )


def _require_known(work: Work, instant: str, id_: str) -> None:
    """A replica or a backup that took the ledger's place may have the batch of a commit as planned, then as aborted."""
    found = work.ledger.find(id_)
    state = found.state if found else None
    if decide(state, InstantState.COMPLETED_OURS).stops:
        raise ledger_lost(work, instant, id_, state)


def _newest_commit(work: Work, timeline: Timeline) -> tuple[str, str] | None:
    for instant in reversed(timeline.completed(*COMMITS)):
        extra = timeline.extra_metadata(instant)
        if extra.get(PIPELINE_KEY) == work.pipeline.name:
            return instant.time, extra[TRANSACTION_KEY]
    return None


def _owned(storage: Storage, timeline: Timeline, id_: str) -> str | None:
    owners = _pending_owners(storage, timeline)
    return next((instant for instant, owner in owners if owner.transaction == id_), None)


def _pending_owners(storage: Storage, timeline: Timeline) -> Iterator[tuple[str, handover.Owner]]:
    for instant in _pending(timeline):
        owner = handover.read_owner(storage, instant)
        if owner is not None:
            yield instant, owner


def _pending(timeline: Timeline) -> list[str]:
    """Pending instants, and those that a rollback took away which did not end."""
    pending = [instant.time for instant in timeline.pending()]
    return pending + [instant for instant in timeline.rolling_back if timeline.get(instant) is None]


def _gone(timeline: Timeline, instant: str, id_: str) -> Evidence:
    if timeline.was_rolled_back(instant):
        return Evidence(InstantState.ROLLED_BACK, instant)
    archived = timeline.archived(instant)
    if archived is None:
        return Evidence(InstantState.NOTHING, instant)
    completion, extra = archived
    return Evidence(_completed(extra, id_), instant, completion)


def _completed(extra: dict[str, str], id_: str) -> InstantState:
    ours = extra.get(TRANSACTION_KEY) == id_
    return InstantState.COMPLETED_OURS if ours else InstantState.COMPLETED_FOREIGN
