"""The ledger made anew from the table: every commit carries its transaction and ranges, archived ones too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi import exchange
from airflow_provider_slshudi.hudi.timeline import CHANGES, COMMITS, Timeline
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import CommittedBatch, RangeTotals
from airflow_provider_slshudi.ledger.states import Kind
from airflow_provider_slshudi.protocol import aside
from airflow_provider_slshudi.protocol.evidence import check_table_against_ledger, pending_of
from airflow_provider_slshudi.protocol.resolve import roll_back
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work, driver_time
from airflow_provider_slshudi.ranges import Range


@dataclass(frozen=True)
class Rebuilt:
    """How many committed transactions the table told of, and the pending instants that were rolled back."""

    committed: int
    rolled_back: list[str]


def rebuild(work: Work) -> Rebuilt:
    """Replaces what the ledger says of the pipeline by what the table says, and takes other clients' writes as meant.

    Pending instants of the pipeline are rolled back: what was recorded of them is lost, and their ranges are read
    again. The pipeline's DAGs have to be paused.

    Raises:
        IllegalTransition: a transaction of the ledger is live and not committed on the table; recovery decides that
            first.
        TimelineUnreadable: nothing is known, nothing was changed.
        TableError: an instant is still pending after its rollback.
    """
    register(work)
    name = work.pipeline.name
    with work.lease() as lease:
        timeline = Timeline.load(work.storage)
        batches = sorted(_committed(work, timeline), key=lambda batch: batch.completed)
        # First: what the ledger calls committed has to be in the quarantine, too.
        finished = _finish_quarantine(work, lease, {batch.instant: batch.id for batch in batches})
        # Refuses live transactions before an instant of theirs is touched that is not committed.
        work.ledger.rebuild(name, batches)
        for instant in finished:
            exchange.delete(work.storage, instant)
        completed = timeline.completed(*CHANGES)
        work.ledger.accept(name, max((str(instant.completion) for instant in completed), default=""))
        pending = pending_of(work)
        for instant, id_ in pending:
            roll_back(work, instant, id_)
            exchange.delete(work.storage, instant)
        for instant in aside.pending(work):
            roll_back(work, instant, "")
    check_table_against_ledger(work)
    return Rebuilt(len(batches), [instant for instant, _ in pending])


def _finish_quarantine(work: Work, lease: Lease, committed: Mapping[str, str]) -> list[str]:
    """Completes what the quarantine has pending of batches that the main table has; gives their instants.

    `committed` are the main table's, with their transactions.
    """
    found = [instant for instant in aside.pending(work) if instant in committed]
    for instant in found:
        work.launcher.run(Verb.COMMIT, _order(work, instant, committed[instant], driver_time(lease)), {})
        if aside.is_pending(work, instant):
            raise TableError(
                f"{work.pipeline.quarantine_path}: the job ended well, but instant {instant} is still pending",
                table=work.pipeline.quarantine_path,
                instant=instant,
            )
    return found


def _order(work: Work, instant: str, id_: str, until: float) -> JobOrder:
    """The order to commit again what the main table has; the quarantine's part is what is left to do.

    Raises:
        ManifestError: what that takes is not there any more.
    """
    timeline = Timeline.load(work.storage)
    found = timeline.get(instant)
    extra = timeline.extra_metadata(found) if found is not None else {}
    digest = json.loads(extra.get(exchange.QUARANTINE_KEY, "{}")).get("digest")
    token = exchange.token_of(work.storage, id_, instant, digest)
    batch = exchange.read_order(work.storage, id_, instant, token)
    left = exchange.write_extra(work.storage, instant, token, extra)
    return JobOrder(batch.pipeline, id_, token, instant, digest, left, until)


def _committed(work: Work, timeline: Timeline) -> Iterator[CommittedBatch]:
    completed = timeline.completed(*COMMITS)
    for instant in completed:
        yield from _batch(work, instant.time, str(instant.completion), timeline.extra_metadata(instant))
    seen = {instant.time for instant in completed}
    for time, completion, extra in timeline.archived_commits():
        # Archival writes the archive first: one that was cut off leaves an instant in both, and the next in it twice.
        if time not in seen:
            seen.add(time)
            yield from _batch(work, time, completion, extra)


def _batch(work: Work, instant: str, completion: str, extra: Mapping[str, str]) -> Iterator[CommittedBatch]:
    if extra.get(exchange.PIPELINE_KEY) != work.pipeline.name:
        return
    ranges, totals = [], []
    for shard, rows in json.loads(extra[exchange.RANGES_KEY]).items():
        for begin, end, count, size in rows:
            item = Range(int(shard), begin, end, gap=count is None)
            ranges.append(item)
            if count is not None:
                totals.append(RangeTotals(item, count, size, None, None))
    yield CommittedBatch(
        extra[exchange.TRANSACTION_KEY],
        Kind(extra[exchange.KIND_KEY]),
        instant,
        completion,
        extra[exchange.DAG_KEY],
        extra[exchange.RUN_KEY],
        tuple(ranges),
        tuple(totals),
    )
