"""Clustering beside ingestion: rows move into other files, and no batch waits for that.

Planned under the pipeline's lease, written without it, completed under it again: seconds, minutes, seconds. All of it
is done under the service lease, so a plan that is pending when somebody gets that lease is nobody's work any more:
completed where all its files were written, rolled back otherwise. It is never written a second time under its instant,
so a driver that comes to life late writes files that belong to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi import clustering, exchange
from airflow_provider_slshudi.hudi.timeline import Phase, Timeline
from airflow_provider_slshudi.job.orders import Verb
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol.maintain import fit
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work, driver_time


@dataclass(frozen=True)
class Clustered:
    """What a clustering did; `instant` is None where there was nothing to do.

    Attributes:
        files, bytes: what was read.
        into_files, into_bytes: what it became.
    """

    instant: str | None
    files: int = 0
    bytes: int = 0
    into_files: int = 0
    into_bytes: int = 0


def cluster(work: Work) -> Clustered:
    """Makes few files of many small ones, as the pipeline's `maintenance.clustering` says.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: the next run goes on where this one ended.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
        TableError: the job ended well and the table does not show it.
    """
    register(work)
    with work.service_lease() as mine:
        with work.lease() as lease:
            reach(Point.CLUSTER_LEASED)
            instant = (_written_before(work) or _planned(work, lease)) if _fits(work) else None
        if instant is None:
            return Clustered(None)
        if not clustering.has_manifest(work.storage, instant):
            work.launcher.run(Verb.CLUSTER, work.order(instant=instant), {})
        # Somebody else may have rolled it back, had this process stood still.
        mine.renew()
        written = clustering.read_manifest(work.storage, instant)
        with work.lease() as lease:
            work.launcher.run(Verb.COMPLETE_CLUSTERING, work.order(instant=instant, until=driver_time(lease)), {})
            found = Timeline.load(work.storage).get(instant)
            if found is None or found.phase is not Phase.COMPLETED:
                raise TableError(
                    f"{work.storage.uri}: the job ended well, but clustering {instant} is not completed",
                    table=work.storage.uri,
                    instant=instant,
                )
        reach(Point.CLUSTER_SEEN)
        _tidy(work)
    return Clustered(instant, written.read_files, written.read_bytes, len(written.paths), written.bytes)


def _fits(work: Work) -> bool:
    """Rows that have keys stay in the files of their buckets."""
    return fit(work) and work.pipeline.table.upsert is None


def _tidy(work: Work) -> None:
    """Removes the manifests of what is completed or gone, be it this run's or a dead one's."""
    pending = {instant.time for instant in Timeline.load(work.storage).pending()}
    for instant in clustering.manifests(work.storage):
        if instant not in pending:
            exchange.delete(work.storage, instant)


def _planned(work: Work, lease: Lease) -> str | None:
    """A new plan, once what was left half done is out of its way."""
    for instant in _left(work):
        work.launcher.run(Verb.ROLLBACK, work.order(instant=instant, until=driver_time(lease)), {})
    work.launcher.run(Verb.PLAN_CLUSTERING, work.order(until=driver_time(lease)), {})
    return next(iter(_pending(work)), None)


def _written_before(work: Work) -> str | None:
    """One that died before it was completed, all its files being there."""
    undone = Timeline.load(work.storage).rolling_back
    found = (instant for instant in _pending(work) if instant not in undone)
    return next((instant for instant in found if clustering.has_manifest(work.storage, instant)), None)


def _pending(work: Work) -> list[str]:
    timeline = Timeline.load(work.storage)
    return [
        instant.time
        for instant in timeline.pending()
        if instant.action == "clustering" and clustering.planned_by_us(timeline, instant, work.pipeline.name)
    ]


def _left(work: Work) -> list[str]:
    """What is pending of ours, and what a rollback of such took off the timeline before it died."""
    timeline = Timeline.load(work.storage)
    gone = [
        instant
        for instant in timeline.rolling_back
        if timeline.get(instant) is None
        and exchange.read_owner(work.storage, instant) is None
        and work.ledger.by_instant(work.pipeline.name, instant) is None
    ]
    return [*_pending(work), *gone]
