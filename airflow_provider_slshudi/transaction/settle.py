"""Settle: decides all that earlier runs left undecided, before anything new starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_slshudi.exceptions import BatchUnderWay, TailUnderWay, TerminalError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import cutoff
from airflow_provider_slshudi.transaction.context import Work, is_of
from airflow_provider_slshudi.transaction.dangling import Ended, abandoned, is_quiet, quiet_in
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.evidence import ledger_lost, pending_of, require_agreement
from airflow_provider_slshudi.transaction.resolve import resolve, roll_back_orphan
from airflow_provider_slshudi.transaction.tables import Timelines, TransactionTables

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settled:
    """A dangling transaction and what was decided for it."""

    transaction: str
    instant: str | None
    decision: Decision


def register(work: Work) -> None:
    """Makes the pipeline known to the ledger; refuses a table or a name that another pipeline, or user, has."""
    work.require_owner()
    pipeline = work.pipeline
    work.ledger.register(pipeline.name, pipeline.source.identity, pipeline.table.path, work.run.dag_id)
    work.ledger.forget_values(pipeline.name)


def dangling_transactions(work: Work, ended: Ended) -> dict[str, str]:
    """Ids of the live transactions that no run works on, oldest first, and why: also all that are of this very run."""
    reasons = {}
    for live in work.ledger.live(work.pipeline.name):
        mine = is_of(work.ledger, live, work.run)
        if why := "it is of this very run" if mine else abandoned(work.ledger, live, ended):
            reasons[live.id] = why
    return reasons


def require_turn(work: Work) -> None:
    """Makes the batches of one DAG's tail go one after the other as long as a run works on the earlier one.

    A batch that is quiet holds up no other: its run died where this machine cannot tell, or waits for Airflow. A later
    one goes on beside it, as a backfill does.

    Raises:
        TailUnderWay: another run works on a batch.
    """
    for live in work.ledger.live(work.pipeline.name):
        if live.dag_id != work.run.dag_id or live.kind is not Kind.TAIL or is_of(work.ledger, live, work.run):
            continue
        time_to_quiet = quiet_in(work.ledger, live)
        if time_to_quiet >= timedelta():
            raise TailUnderWay(
                f"run {live.run_id} of {live.dag_id} works on transaction {live.id}, which is {live.state.value}: the "
                "next batch of the tail begins once that one is committed or aborted",
                pipeline=work.pipeline.name,
                transaction=live.id,
                quiet_in=time_to_quiet.total_seconds(),
            )


def require_alone(work: Work) -> None:
    """Makes batches go one after the other where their order counts: an upsert reads the rows that the one before left.

    Raises:
        BatchUnderWay: the pipeline's batches go in order, and a transaction of another run is live.
    """
    if not work.pipeline.in_order:
        return
    for live in work.ledger.live(work.pipeline.name):
        if not is_of(work.ledger, live, work.run):
            raise BatchUnderWay(
                f"the batches of pipeline {work.pipeline.name} go one after the other, and transaction {live.id} of "
                f"{live.dag_id}/{live.run_id} is {live.state.value}: try again once it is committed or aborted",
                pipeline=work.pipeline.name,
                transaction=live.id,
                active=not is_quiet(work.ledger, live),
            )


def settle(work: Work, ended: Ended, wait: float | None = None) -> list[Settled]:
    """Decides every dangling transaction of the pipeline, then checks that ledger and table agree.

    Where two drivers completed an instant alike, one completion stays. Waits `wait` seconds for the lease, see
    `Work.lease`.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, CommitStateUnknown: try again later.
        LedgerAhead, LedgerLost, TableMismatch, ForeignWrite, PipelineConflict: a person has to look.
    """
    register(work)
    settled = []
    tables = TransactionTables.of(work)
    timelines = _in_order(work, ended)
    if timelines is None:
        with work.lease(wait) as lease:
            reach(Point.SETTLE_LEASED)
            for storage in _cut_off(tables.survey().storages):
                properties.restore(storage)
                _log.warning("%s: a driver may have died while it changed %s, which is whole", storage.uri, PROPERTIES)
            cutoff.take_away(work)
            _leave_one_completion(work)
            for id_ in dangling_transactions(work, ended):
                # A decision takes minutes; meanwhile Airflow may have begun to retry the step of the next one.
                if not (why := dangling_transactions(work, ended).get(id_)):
                    continue
                # The new token fences off the run that may still work on it.
                taken = work.ledger.take_over(id_, why)
                _log.info("transaction %s of %s/%s is taken over: %s", id_, taken.dag_id, taken.run_id, why)
                reach(Point.SETTLE_TAKEN_OVER)
                settled.append(Settled(taken.id, taken.instant, resolve(work, taken, lease)))
            waiting = tables.pending_beside()
            for transaction, instant in _orphans(work, waiting):
                roll_back_orphan(work, lease, transaction, instant)
                settled.append(Settled(transaction.id, instant, Decision.ROLL_BACK))
            if unfinished := _unfinished(work, waiting):
                for instant in tables.finish(lease, unfinished):
                    settled.append(Settled(unfinished[instant], instant, Decision.RECOMMIT))
                    fencing.delete(work.storage, instant)
    try:
        require_agreement(work, timelines)
    except TerminalError as error:
        # Another run may have committed between two of its looks; under the lease none does.
        _log.info("looking once more, alone: %s", error)
        with work.lease(wait):
            require_agreement(work)
    return settled


def is_settled(work: Work, ended: Ended) -> bool:
    """Whether `settle` would find nothing to decide: no dangling transaction, no orphan, nothing that was cut off.

    Raises:
        TimelineUnreadable, LedgerUnavailable: nothing is known.
        LedgerLost: a person has to look.
    """
    return _in_order(work, ended) is not None


def _cut_off(tables: Sequence[Storage]) -> list[Storage]:
    """Those whose properties a driver was changing when it died: open, and some readers, see no table there."""
    return [*filter(properties.is_cut_off, tables)]


def _in_order(work: Work, ended: Ended) -> Timelines | None:
    """What a look at the tables saw, if nothing is to be settled; None if something is."""
    tables = TransactionTables.of(work)
    survey = tables.survey()
    if _cut_off(survey.storages) or cutoff.has_cut(work) or dangling_transactions(work, ended):
        return None
    timelines = survey.timelines()
    if any(timeline.completed_twice() for timeline in timelines):
        return None
    waiting = tables.pending_beside(timelines)
    return None if _orphans(work, waiting, timelines.main) or _unfinished(work, waiting) else timelines


def _leave_one_completion(work: Work) -> None:
    """Keeps the earliest of an instant's completions that say the same, since later plans have seen it.

    Raises:
        TimelineUnreadable: the completions do not say the same.
    """
    for storage in TransactionTables.of(work).survey().storages:
        timeline = Timeline.load(storage)
        for stays, *others in timeline.completed_twice():
            if not timeline.say_the_same([stays, *others]):
                timeline.get(stays.time)
            removed = [other.file for other in others]
            transaction = work.ledger.by_instant(work.pipeline.name, stays.time)
            if transaction is not None:
                detail = {"by": str(work.run), "table": storage.uri, "stays": stays.file, "removed": removed}
                main = storage.uri == work.storage.uri
                work.ledger.completed_once(transaction.id, stays.completion if main else None, detail)
            _log.warning("%s: %s stays, %s says the same and is removed", storage.uri, stays.file, ", ".join(removed))
            for other in others:
                timeline.remove(other)


def _unfinished(work: Work, waiting: Iterable[str]) -> dict[str, str]:
    """Pending instants of the quarantine (`waiting`) whose batches the ledger calls committed, with their transactions.

    The quarantine was away, or elsewhere, when the batch was decided.
    """
    batches = ((instant, work.ledger.by_instant(work.pipeline.name, instant)) for instant in waiting)
    return {
        instant: transaction.id
        for instant, transaction in batches
        if transaction is not None and transaction.state is State.COMMITTED
    }


def _orphans(work: Work, waiting: Iterable[str], timeline: Timeline | None = None) -> list[tuple[Transaction, str]]:
    """Pending instants that their transaction does not go on with: a driver that was given up opened them late.

    `waiting` are the quarantine's pending instants. Reads the table's timeline anew unless `timeline` is given.

    Raises:
        LedgerLost: the ledger does not know the transaction of a pending instant.
    """
    orphans = []
    for instant, id_ in pending_of(work, timeline):
        transaction = work.ledger.find(id_)
        if transaction is None:
            raise ledger_lost(work, instant, id_)
        if transaction.state is State.ABORTED or transaction.instant not in (None, instant):
            orphans.append((transaction, instant))
    for instant in waiting:
        transaction = work.ledger.by_instant(work.pipeline.name, instant)
        if transaction is not None and transaction.state is State.ABORTED and (transaction, instant) not in orphans:
            orphans.append((transaction, instant))
    return orphans
