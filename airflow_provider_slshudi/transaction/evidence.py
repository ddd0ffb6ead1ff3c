"""What the table shows of a transaction, and whether table and ledger agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import LedgerAhead, LedgerLost, PipelineConflict
from airflow_provider_slshudi.handover import batch_files, erasures
from airflow_provider_slshudi.hudi.instant_metadata import KIND_KEY, PIPELINE_KEY, SERVICES, TRANSACTION_KEY, ranges_of
from airflow_provider_slshudi.hudi.layout import Instant, Phase
from airflow_provider_slshudi.hudi.timeline import CHANGES, COMMITS, Timeline
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.planning.ranges import overlap
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import timeline_view
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import InstantState, decide
from airflow_provider_slshudi.transaction.tables import Timelines, TransactionTables

REBUILD = "slshudi ledger rebuild"


@dataclass(frozen=True)
class Evidence:
    """How far a transaction's instant is; `completion` is Hudi's completion time where it is completed."""

    state: InstantState
    instant: str | None = None
    completion: str | None = None


def look(work: Work, transaction: Transaction, timeline: Timeline | None = None) -> Evidence:
    """What the timeline shows of a transaction; reads it anew unless `timeline` is given.

    Raises:
        TimelineUnreadable: the timeline could not be read, so nothing is known.
    """
    timeline = timeline or work.timeline()
    instant = transaction.instant or _owned(work.storage, timeline, transaction.id)
    if instant is None:
        return Evidence(InstantState.NOTHING)
    entry = timeline.get(instant)
    if entry is not None and entry.phase is Phase.COMPLETED:
        # Its files are all there: a rollback makes the instant INFLIGHT before it deletes anything.
        return Evidence(_completed(timeline.extra_metadata(entry), transaction.id), instant, entry.completion)
    pending = state_of_pending(timeline, instant)
    return _gone(timeline, instant, transaction.id) if pending is InstantState.NOTHING else Evidence(pending, instant)


def state_of_pending(timeline: Timeline, instant: str) -> InstantState:
    """How far an uncompleted instant is."""
    if instant in timeline.rolling_back:
        return InstantState.ROLLING_BACK
    entry = timeline.get(instant)
    if entry is None:
        return InstantState.NOTHING
    return InstantState.REQUESTED if entry.phase is Phase.REQUESTED else InstantState.INFLIGHT


def open_instant_of(work: Work, transaction: Transaction) -> str | None:
    """The pending instant that was opened for this transaction under its present token; None where there is none."""
    ownership = transaction.id, transaction.token
    owners = _pending_owners(work.storage, work.timeline())
    return next((instant for instant, owner in owners if (owner.transaction, owner.token) == ownership), None)


def pending_of(work: Work, timeline: Timeline | None = None) -> list[tuple[str, str]]:
    """(instant, transaction id) of this pipeline's instants that are pending or half rolled back.

    Reads the table's timeline anew unless `timeline` is given. An append that wakes up after its instant's rollback
    leaves an instant without an owner; the ledger knows whose.
    """
    pending_batches = []
    for instant in _pending(timeline or work.timeline()):
        owner = batch_files.read_owner(work.storage, instant)
        if owner is not None and owner.pipeline == work.pipeline.name:
            pending_batches.append((instant, owner.transaction))
        elif owner is None and (transaction := work.ledger.by_instant(work.pipeline.name, instant)) is not None:
            pending_batches.append((instant, transaction.id))
    return pending_batches


def require_agreement(work: Work, seen: Timelines | None = None) -> Timeline:
    """Refuses new work while ledger and table disagree, or another client writes to the table; returns its timeline.

    Settle ends with this check, and plan repeats it under its lease: a person may have marked settle a success, and
    the ledger's connection may have changed since. Reads one listing and a few small files, however long the history;
    the listing not, where `seen` has it.

    Raises:
        As `check_table_against_ledger`, `refuse_foreign_writes` and `TransactionTables.require_no_newer`.
    """
    timeline = timeline_view.timeline(work) if seen is None else seen.main
    check_table_against_ledger(work, timeline)
    refuse_foreign_writes(work, timeline)
    TransactionTables.of(work).require_no_newer(timeline, seen)
    return timeline


def require_known_commits(work: Work) -> Timeline:
    """Refuses a commit while the table has others of this pipeline that the ledger does not know; returns its timeline.

    Raises:
        LedgerAhead, LedgerLost: ledger and table disagree.
    """
    timeline = work.timeline()
    check_table_against_ledger(work, timeline)
    for instant, extra in _not_in_ledger(work, timeline):
        if extra.get(PIPELINE_KEY) == work.pipeline.name:
            _require_known(work, instant.time, extra[TRANSACTION_KEY])
    return timeline


def committed_elsewhere(work: Work, timeline: Timeline, transaction: Transaction) -> str | None:
    """The instant of a commit of this pipeline that holds what the transaction read; None where there is none.

    Only commits that the ledger does not know count: two ledgers planned the same ranges.
    """
    mine = work.ledger.ranges(transaction.id)
    for instant, extra in _not_in_ledger(work, timeline):
        if extra.get(PIPELINE_KEY) != work.pipeline.name:
            continue
        replays = extra[KIND_KEY] == transaction.kind.value == Kind.REPLAY.value
        if work.ledger.find(extra[TRANSACTION_KEY]) is None and (
            replays or overlap(mine, (item for item, *_ in ranges_of(extra)))
        ):
            return instant.time
    return None


def refuse_foreign_writes(work: Work, timeline: Timeline | None = None) -> None:
    """Refuses a table on which another client than this pipeline, or a table service, completed a change.

    Reads the commits that the ledger neither has nor accepted in a rebuild; mostly there are none. A change that only
    took rows away passes once a person accepted it.

    Raises:
        PipelineConflict: another pipeline writes to the table.
        ForeignWrite: another client does.
        LedgerLost: the ledger does not know the transaction of a commit or of a pending instant, or it thinks that
            the transaction of a commit was never committed.
    """
    name, timeline = work.pipeline.name, timeline or work.timeline()
    for instant, extra in _not_in_ledger(work, timeline):
        other = extra.get(PIPELINE_KEY)
        if other == name:
            _require_known(work, instant.time, extra[TRANSACTION_KEY])
        elif other is not None:
            _refuse_pipeline(work, instant.time, other)
        operation = timeline.operation(instant)
        if other is None and operation not in SERVICES:
            erasures.require_accepted(work.storage, work.storage.uri, name, erasures.TABLE, instant.time, operation)
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
    """Compares the newest commit of each side; reads one listing and a few small files, however long the history.

    Raises:
        LedgerAhead: the ledger's newest committed transaction is not on the timeline.
        LedgerLost: the ledger does not know the transaction of the table's newest commit of this pipeline, or thinks
            that it was never committed.
    """
    timeline = timeline or work.timeline()
    newest = _newest_commit(work, timeline)
    if newest is not None:
        _require_known(work, *newest)
    latest = work.ledger.latest_committed(work.pipeline.name)
    if latest is None:
        return
    evidence = look(work, latest, timeline)
    if decide(latest.state, evidence.state).stops:
        raise LedgerAhead(
            f"the ledger has transaction {latest.id} committed as instant {latest.instant}, but on the timeline of "
            f"{work.storage.uri} that instant is {evidence.state.value}: the table was restored, replaced or deleted. "
            f"Nothing is written until `{REBUILD} {work.pipeline.name}` has made the ledger agree with the table",
            table=work.storage.uri,
            instant=latest.instant,
            transaction=latest.id,
        )


def ledger_lost(work: Work, instant: str, id_: str, state: State | None = None) -> LedgerLost:
    """The error for an instant of ours that the ledger does not know, or whose transaction it has in another state.

    Args:
        work: the pipeline's.
        instant: of the commit or pending batch.
        id_: of the transaction that it carries.
        state: the ledger's of that transaction; None: it knows none.
    """
    ledger_state = f"has it as {state.value}: it is older than the table" if state else "does not know it: it was lost"
    return LedgerLost(
        f"{work.storage.uri}: instant {instant} carries transaction {id_} of pipeline {work.pipeline.name}, but the "
        f"ledger {ledger_state}. Nothing is written until `{REBUILD} {work.pipeline.name}` has rebuilt it from the "
        "table",
        table=work.storage.uri,
        instant=instant,
        transaction=id_,
    )


def _require_known(work: Work, instant: str, id_: str) -> None:
    """Raises LedgerLost unless the ledger has the commit's transaction as PREPARED or COMMITTED.

    A replica or a backup that took the ledger's place may have it as planned, and later as aborted.
    """
    transaction = work.ledger.find(id_)
    state = transaction.state if transaction else None
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


def _pending_owners(storage: Storage, timeline: Timeline) -> Iterator[tuple[str, batch_files.Owner]]:
    for instant in _pending(timeline):
        owner = batch_files.read_owner(storage, instant)
        if owner is not None:
            yield instant, owner


def _pending(timeline: Timeline) -> list[str]:
    """Pending instants, and instants removed by an unfinished rollback."""
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
