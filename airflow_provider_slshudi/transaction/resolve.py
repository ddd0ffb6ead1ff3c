"""Carries out what the recovery table decides for one transaction; the commit of a healthy run is one of its rows."""

from __future__ import annotations

import logging

from airflow_provider_slshudi.exceptions import (
    CommitStateUnknown,
    JobDenied,
    JobFailed,
    LedgerAhead,
    LedgerLost,
    ManifestError,
    TableError,
    TableMismatch,
)
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.instant_metadata import action, extra_of, ranges_text
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import context, cutoff, timeline_view
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision, InstantState, Obstacle, decide, why
from airflow_provider_slshudi.transaction.evidence import REBUILD, Evidence, committed_elsewhere, look, state_of_pending
from airflow_provider_slshudi.transaction.tables import TransactionTables

_log = logging.getLogger(__name__)


def resolve(work: Work, transaction: Transaction, lease: Lease, timeline: Timeline | None = None) -> Decision:
    """Decides a transaction and acts on it; the caller holds the pipeline's lease and the transaction's token.

    Callers that read the table's timeline under the lease pass it.

    Args:
        work: the pipeline's.
        transaction: under this run's token.
        lease: the pipeline's.
        timeline: the table's, see above.

    Raises:
        TimelineUnreadable, CommitStateUnknown: nothing is known; a later call finds out.
        LedgerAhead, LedgerLost, TableMismatch: a person has to look; the message says at what.
    """
    timeline = _whole(work, timeline)
    evidence = look(work, transaction, timeline)
    decision, reason = decide(transaction.state, evidence.state), why(transaction.state, evidence.state)
    batch = None
    if decision is Decision.RECOMMIT:
        obstacle, other = _obstacle(work, timeline, transaction, str(evidence.instant))
        if obstacle is None:
            batch = _standing_order(work, transaction)
            obstacle = Obstacle.WITHDRAWN if batch is None and transaction.manifest is not None else None
        if obstacle is not None:
            decision = decide(transaction.state, evidence.state, obstacle)
            reason = obstacle.value.format(instant=other)
    _log.info(
        "transaction %s of %s/%s: ledger %s, timeline %s: %s (%s)",
        transaction.id,
        transaction.dag_id,
        transaction.run_id,
        transaction.state.value,
        evidence.state.value,
        decision.value,
        reason,
    )
    work.ledger.note(
        transaction.id,
        "decision",
        {
            "by": str(work.run),
            "ledger": transaction.state.value,
            "timeline": evidence.state.value,
            "instant": evidence.instant,
            "decision": decision.value,
            "why": reason,
        },
    )
    reach(Point.COMMIT_DECIDED if decision is Decision.RECOMMIT else Point.SETTLE_DECIDED)
    match decision:
        case Decision.ABORT:
            abort(work, transaction, lease, evidence, reason)
        case Decision.ROLL_BACK_AND_ABORT:
            roll_back(work, lease, str(evidence.instant), transaction.id, transaction.token)
            abort(work, transaction, lease, evidence, reason, is_rolled_back=True)
        case Decision.RECOMMIT:
            _commit(work, transaction, lease, batch)
        case Decision.MARK_COMMITTED:
            if TransactionTables.of(work, transaction.instant).unsettled(transaction) is None:
                _keep(work, transaction)
                _committed(work, transaction, evidence, timeline)
            else:
                _commit(work, transaction, lease)
        case Decision.NOTHING_TO_DO:
            pass
        case _:
            raise _stop(work, transaction, evidence, decision, reason)
    return decision


def _whole(work: Work, timeline: Timeline | None) -> Timeline:
    """The table's timeline without what was cut off; `timeline` where that can have nothing of the kind."""
    if cutoff.take_away(work) or timeline is None:
        return work.timeline()
    return timeline


def roll_back_orphan(work: Work, lease: Lease, transaction: Transaction, instant: str) -> None:
    """Rolls back an instant that its transaction does not go on with.

    Args:
        work: the pipeline's.
        lease: the pipeline's.
        transaction: the one that opened the instant.
        instant: a pending one.
    """
    reason = why(State.ABORTED, InstantState.REQUESTED)
    detail = {
        "by": str(work.run),
        "ledger": transaction.state.value,
        "timeline": state_of_pending(work.timeline(), instant).value,
        "instant": instant,
        "decision": Decision.ROLL_BACK.value,
        "why": reason,
    }
    work.ledger.note(transaction.id, "decision", detail)
    roll_back(work, lease, instant, transaction.id, transaction.token)
    fencing.delete(work.storage, instant)


def roll_back(work: Work, lease: Lease, instant: str, id_: str, token: int = 0) -> None:
    """Takes a pending instant and its files away, also files that a living append still writes.

    Args:
        work: the pipeline's.
        lease: the pipeline's.
        instant: a pending one.
        id_: of its transaction; empty: it has none.
        token: of that transaction.

    Raises:
        TableError: the instant is still pending.
    """
    tables = TransactionTables.of(work, instant)
    tables.fence(instant)
    reach(Point.SETTLE_FENCED)
    with tables.swept(instant):
        order = work.order(transaction=id_, token=token, instant=instant)
        work.change(lease, Verb.ROLLBACK, order, len(markers.marked(work.storage, instant)))
    reach(Point.SETTLE_ROLLED_BACK)
    is_pending = state_of_pending(work.timeline(), instant) is not InstantState.NOTHING
    if is_pending or tables.is_pending_beside(instant):
        raise TableError(
            f"{work.storage.uri}: instant {instant} is still on a timeline of the table, or of one beside it, after "
            "its rollback",
            table=work.storage.uri,
            instant=instant,
        )


def abort(
    work: Work, transaction: Transaction, lease: Lease, seen: Evidence, reason: str, is_rolled_back: bool = False
) -> None:
    """Frees the ranges of a transaction whose instant is not pending in the main table.

    Args:
        work: the pipeline's.
        transaction: under this run's token.
        lease: the pipeline's.
        seen: what the timeline shows of it.
        reason: for its history.
        is_rolled_back: whether its instant was rolled back just now.
    """
    tables = TransactionTables.of(work, seen.instant)
    uploads = not is_rolled_back and seen.instant is not None and _may_upload(work, seen.instant)
    if seen.instant is not None and (uploads or tables.is_pending_beside(seen.instant)):
        # Another client rolled back the main table's instant, and did not know of those beside it, nor of uploads.
        roll_back(work, lease, seen.instant, transaction.id, transaction.token)
    elif seen.instant is not None:
        # The run that took the instant away may have died, or left files behind.
        tables.fence(seen.instant)
        with tables.swept(seen.instant):
            pass
    work.ledger.aborted(transaction.id, transaction.token, f"timeline {seen.state.value}: {reason}")
    reach(Point.SETTLE_ABORTED)
    # Only this folder: a driver may yet put the instant of another on the timeline, and its owner file shows whose.
    if seen.instant is not None:
        fencing.delete(work.storage, seen.instant)
    reach(Point.SETTLE_CLEANED)


def _commit(work: Work, transaction: Transaction, lease: Lease, batch: BatchOrder | None = None) -> None:
    order = _commit_order(work, transaction, batch)
    files, cpu = int((transaction.manifest or {}).get("files", 0)), None
    try:
        cpu = work.change(lease, Verb.COMMIT, order, files)
    except JobFailed as error:
        # The job may have died after the commit: only the timeline knows.
        after = look(work, transaction)
        if after.state is not InstantState.COMPLETED_OURS:
            if isinstance(error, JobDenied):
                raise
            raise CommitStateUnknown(
                f"the commit of instant {transaction.instant} did not end well and the timeline shows "
                f"{after.state.value}; the data is written and the next settle recommits it. {error}",
                table=work.storage.uri,
                instant=transaction.instant,
            ) from None
        _log.warning("instant %s is committed all the same: %s", transaction.instant, error)
        _keep(work, transaction)
    timeline = timeline_view.timeline(work)
    after = look(work, transaction, timeline)
    if after.state is not InstantState.COMPLETED_OURS:
        raise CommitStateUnknown(
            f"the commit of instant {transaction.instant} ended well, but the timeline shows {after.state.value}",
            table=work.storage.uri,
            instant=transaction.instant,
        )
    if (unsettled := TransactionTables.of(work, transaction.instant).unsettled(transaction)) is not None:
        raise CommitStateUnknown(
            f"instant {transaction.instant} is committed in the table, but not yet in {unsettled} beside "
            "it; the next settle commits it there",
            table=work.storage.uri,
            instant=transaction.instant,
        )
    _committed(work, transaction, after, timeline, cpu)


def _commit_order(work: Work, transaction: Transaction, batch: BatchOrder | None = None) -> JobOrder:
    """The commit's order; `batch` is the append's, where it was read."""
    recorded = transaction.manifest
    if recorded is None or transaction.instant is None:
        raise ManifestError(
            f"transaction {transaction.id} is PREPARED without a manifest or an instant in the ledger",
            table=work.storage.uri,
            transaction=transaction.id,
        )
    token = int(recorded["token"])
    attempt = Attempt(work.storage, transaction.id, transaction.instant, token)
    batch = batch or attempt.order(transaction.order_digest)
    totals = {item.range: item for item in work.ledger.totals(transaction.id)}
    counted_ranges = ((item, totals.get(item)) for item in work.ledger.ranges(transaction.id))
    quarantined, routed = recorded.get("quarantined"), recorded.get("routed")
    extra = extra_of(
        transaction.id,
        transaction.pipeline,
        transaction.kind.value,
        (transaction.dag_id, transaction.run_id),
        ranges_text(
            (item, total.rows, total.bytes, total.filtered) if total else (item, None, None, 0)
            for item, total in counted_ranges
        ),
        None if quarantined is None else (quarantined, recorded["digest"]),
        None if routed is None else (routed, recorded["digest"]),
        transaction.filter,
    )
    extra_digest = attempt.leave_extra(extra)
    return JobOrder(
        work.planned(batch), transaction.id, token, transaction.instant, str(recorded["digest"]), extra_digest
    )


def _may_upload(work: Work, instant: str) -> bool:
    """Whether tasks may still write files of an instant into an object store, where only a job ends their uploads.

    Told by what stays until the transaction is aborted: a job that failed is begun again.
    """
    stored = not all(storage.renames for storage in TransactionTables.of(work, instant).storages(instant))
    return stored and batch_files.read_owner(work.storage, instant) is not None


def _standing_order(work: Work, transaction: Transaction) -> BatchOrder | None:
    """A prepared batch's order; None if it is withdrawn: a run that began to give the batch up died."""
    recorded = transaction.manifest
    if recorded is None:
        return None
    attempt = Attempt(work.storage, transaction.id, str(transaction.instant), int(recorded["token"]))
    return attempt.standing_order(transaction.order_digest)


def _obstacle(
    work: Work, timeline: Timeline, transaction: Transaction, instant: str
) -> tuple[Obstacle | None, str | None]:
    """Why a recorded batch cannot be committed again, by the timeline, and the other instant that is in its way."""
    if (other := _overtaken(work, timeline, instant)) is not None:
        return Obstacle.OVERTAKEN, other
    other = committed_elsewhere(work, timeline, transaction)
    return (None if other is None else Obstacle.COMMITTED_ELSEWHERE), other


def _overtaken(work: Work, timeline: Timeline, instant: str) -> str | None:
    """The instant of another write that was completed after an upsert began, and that the upsert did not read."""
    table = work.pipeline.table
    if table.upsert is None:
        return None
    written = timeline.completed(action(table), "replacecommit")
    return next((other.time for other in written if str(other.completion) > instant and other.time != instant), None)


def _keep(work: Work, transaction: Transaction) -> None:
    """Puts completions on the disk whose driver may have died before it did."""
    for storage in TransactionTables.of(work, transaction.instant).written(transaction):
        storage.sync()


def _committed(
    work: Work, transaction: Transaction, seen: Evidence, timeline: Timeline, cpu: float | None = None
) -> None:
    more = {**timeline_view.compared(work, transaction, timeline, seen.instant), **context.of_driver(cpu)}
    reach(Point.COMMIT_SEEN)
    work.ledger.committed(transaction.id, transaction.token, seen.completion or "", more)
    reach(Point.COMMIT_TOLD)
    if seen.instant is not None:
        fencing.delete(work.storage, seen.instant)
    reach(Point.COMMIT_CLEANED)


def _stop(work: Work, transaction: Transaction, seen: Evidence, decision: Decision, reason: str) -> Exception:
    said = (
        f"transaction {transaction.id} is {transaction.state.value} in the ledger, its instant "
        f"{seen.instant or '(none)'} is {seen.state.value} on the timeline of {work.storage.uri}: {reason}."
    )
    table, instant = work.storage.uri, seen.instant
    if decision is Decision.STOP_LEDGER_AHEAD:
        return LedgerAhead(
            f"{said} Run `{REBUILD} {work.pipeline.name}`", table=table, instant=instant, transaction=transaction.id
        )
    if decision is Decision.STOP_LEDGER_LOST:
        return LedgerLost(
            f"{said} Run `{REBUILD} {work.pipeline.name}`", table=table, instant=instant, transaction=transaction.id
        )
    return TableMismatch(said, table=table, instant=instant)
