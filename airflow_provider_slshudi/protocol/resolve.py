"""Carries out what the recovery table decides for one transaction; the commit of a healthy run is one of its rows."""

from __future__ import annotations

import json
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
from airflow_provider_slshudi.hudi import exchange, marking
from airflow_provider_slshudi.hudi.instants import action
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import RangeTotals, Transaction
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.planning.recovery import Decision, InstantState, decide, why
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol import aside
from airflow_provider_slshudi.protocol.evidence import REBUILD, Evidence, committed_elsewhere, look, state_of_pending
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import Range

_log = logging.getLogger(__name__)


def resolve(work: Work, transaction: Transaction, lease: Lease) -> Decision:
    """Decides a transaction and acts on it; the caller holds the pipeline's lease and the transaction's token.

    Raises:
        TimelineUnreadable, CommitStateUnknown: nothing is known; a later call finds out.
        LedgerAhead, LedgerLost, TableMismatch: a person has to look; the message says at what.
    """
    timeline = work.timeline()
    seen = look(work, transaction, timeline)
    decision, reason = decide(transaction.state, seen.state), why(transaction.state, seen.state)
    if decision is Decision.RECOMMIT and (other := _overtaken(work, timeline, str(seen.instant))) is not None:
        decision = Decision.ROLL_BACK_AND_ABORT
        reason = f"what it merged is out of date: instant {other} was completed since"
    if decision is Decision.RECOMMIT and (other := committed_elsewhere(work, timeline, transaction)) is not None:
        decision = Decision.ROLL_BACK_AND_ABORT
        reason = f"another ledger's batch has committed the same ranges as instant {other}"
    if decision is Decision.RECOMMIT and _is_withdrawn(work, transaction):
        decision = Decision.ROLL_BACK_AND_ABORT
        reason = "its order was withdrawn: a rollback of it was begun, and did not end"
    _log.info(
        "transaction %s of %s/%s: ledger %s, timeline %s: %s (%s)",
        transaction.id,
        transaction.dag_id,
        transaction.run_id,
        transaction.state.value,
        seen.state.value,
        decision.value,
        reason,
    )
    work.ledger.note(
        transaction.id,
        "decision",
        {
            "by": str(work.run),
            "ledger": transaction.state.value,
            "timeline": seen.state.value,
            "instant": seen.instant,
            "decision": decision.value,
            "why": reason,
        },
    )
    reach(Point.COMMIT_DECIDED if decision is Decision.RECOMMIT else Point.SETTLE_DECIDED)
    match decision:
        case Decision.ABORT:
            abort(work, transaction, lease, seen, reason)
        case Decision.ROLL_BACK_AND_ABORT:
            roll_back(work, lease, str(seen.instant), transaction.id, transaction.token)
            abort(work, transaction, lease, seen, reason)
        case Decision.RECOMMIT:
            _commit(work, transaction, lease)
        case Decision.MARK_COMMITTED:
            if aside.is_settled(work, transaction):
                _committed(work, transaction, seen)
            else:
                _commit(work, transaction, lease)
        case Decision.NOTHING_TO_DO:
            pass
        case _:
            raise _stop(work, transaction, seen, decision, reason)
    return decision


def roll_back_orphan(work: Work, lease: Lease, transaction: Transaction, instant: str) -> None:
    """Takes an instant off the timeline that its transaction does not go on with."""
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
    exchange.delete(work.storage, instant)


def roll_back(work: Work, lease: Lease, instant: str, id_: str, token: int = 0) -> None:
    """Takes a pending instant off the timeline with its files, those that a living append still writes included.

    Raises:
        TableError: it is still there.
    """
    exchange.fence(work.storage, instant)
    reach(Point.SETTLE_FENCED)
    with aside.swept(work, instant):
        order = work.order(transaction=id_, token=token, instant=instant)
        work.change(lease, Verb.ROLLBACK, order, len(marking.marked(work.storage, instant)))
    reach(Point.SETTLE_ROLLED_BACK)
    left = state_of_pending(work.timeline(), instant) is not InstantState.NOTHING
    if left or aside.is_pending(work, instant):
        raise TableError(
            f"{work.storage.uri}: instant {instant} is still on the timeline after its rollback, or the quarantine's",
            table=work.storage.uri,
            instant=instant,
        )


def abort(work: Work, transaction: Transaction, lease: Lease, seen: Evidence, reason: str) -> None:
    """Frees the ranges of a transaction whose instant is not pending in the main table."""
    if seen.instant is not None and aside.is_pending(work, seen.instant):
        # Somebody rolled the main table's instant back, and knew of no other.
        roll_back(work, lease, seen.instant, transaction.id, transaction.token)
    elif seen.instant is not None:
        # Whoever took the instant away, and died or left something.
        with aside.swept(work, seen.instant):
            exchange.fence(work.storage, seen.instant)
    work.ledger.aborted(transaction.id, transaction.token, f"timeline {seen.state.value}: {reason}")
    reach(Point.SETTLE_ABORTED)
    # No other folder: its driver may put the instant on the timeline yet, and the owner's name is how that is noticed.
    if seen.instant is not None:
        exchange.delete(work.storage, seen.instant)
    reach(Point.SETTLE_CLEANED)


def _commit(work: Work, transaction: Transaction, lease: Lease) -> None:
    order = _commit_order(work, transaction)
    files = int((transaction.manifest or {}).get("files", 0))
    try:
        work.change(lease, Verb.COMMIT, order, files)
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
    after = look(work, transaction)
    if after.state is not InstantState.COMPLETED_OURS:
        raise CommitStateUnknown(
            f"the commit of instant {transaction.instant} ended well, but the timeline shows {after.state.value}",
            table=work.storage.uri,
            instant=transaction.instant,
        )
    if not aside.is_settled(work, transaction):
        raise CommitStateUnknown(
            f"instant {transaction.instant} is committed, but its part in {work.pipeline.quarantine_path} is not yet; "
            "the next settle commits that",
            table=work.storage.uri,
            instant=transaction.instant,
        )
    _committed(work, transaction, after)


def _commit_order(work: Work, transaction: Transaction) -> JobOrder:
    recorded = transaction.manifest
    if recorded is None or transaction.instant is None:
        raise ManifestError(
            f"transaction {transaction.id} is PREPARED without a manifest or an instant in the ledger",
            table=work.storage.uri,
            transaction=transaction.id,
        )
    token = int(recorded["token"])
    # The pipeline as it was when the batch was planned, whatever its file says by now.
    batch = exchange.read_order(work.storage, transaction.id, transaction.instant, token)
    extra = {
        exchange.TRANSACTION_KEY: transaction.id,
        exchange.PIPELINE_KEY: transaction.pipeline,
        exchange.KIND_KEY: transaction.kind.value,
        exchange.DAG_KEY: transaction.dag_id,
        exchange.RUN_KEY: transaction.run_id,
        exchange.RANGES_KEY: ranges_text(work.ledger.ranges(transaction.id), work.ledger.totals(transaction.id)),
    }
    if recorded.get("quarantined") is not None:
        extra[exchange.QUARANTINE_KEY] = json.dumps({"rows": recorded["quarantined"], "digest": recorded["digest"]})
    left = exchange.write_extra(work.storage, transaction.instant, token, extra)
    return JobOrder(batch.pipeline, transaction.id, token, transaction.instant, str(recorded["digest"]), left)


def ranges_text(ranges: list[Range], totals: list[RangeTotals]) -> str:
    """Ranges as the commit's extra metadata holds them: shard -> [[begin, end, rows, raw bytes], ...].

    Rows and bytes of a gap are null: it was never read.
    """
    read = {item.range: item for item in totals}
    by_shard: dict[str, list[list[int | None]]] = {}
    for item in sorted(ranges):
        found = read.get(item)
        row = [item.begin, item.end, found.rows if found else None, found.bytes if found else None]
        by_shard.setdefault(str(item.shard), []).append(row)
    return json.dumps(by_shard, separators=(",", ":"))


def _is_withdrawn(work: Work, transaction: Transaction) -> bool:
    """Whether a prepared batch was being given up when whoever did it died: from then on nothing can commit it."""
    recorded = transaction.manifest
    return recorded is not None and not exchange.is_ordered(
        work.storage, str(transaction.instant), int(recorded["token"])
    )


def _overtaken(work: Work, timeline: Timeline, instant: str) -> str | None:
    """A write of somebody else's that was completed after an upsert began, which read the table without it."""
    table = work.pipeline.table
    if table.upsert is None:
        return None
    written = timeline.completed(action(table), "replacecommit")
    return next((other.time for other in written if str(other.completion) > instant and other.time != instant), None)


def _committed(work: Work, transaction: Transaction, seen: Evidence) -> None:
    reach(Point.COMMIT_SEEN)
    work.ledger.committed(transaction.id, transaction.token, seen.completion or "")
    reach(Point.COMMIT_TOLD)
    if seen.instant is not None:
        exchange.delete(work.storage, seen.instant)
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
