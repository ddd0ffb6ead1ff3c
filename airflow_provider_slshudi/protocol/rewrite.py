"""Clustering and compaction beside ingestion: rows move into other files, and no batch waits for that.

Planned under the pipeline's lease, written without it, completed under it again: seconds, minutes, seconds. All of it
is done under the service lease, so a plan that is pending when somebody gets that lease is nobody's work any more:
completed where all its files were written, rolled back otherwise. It is never written a second time under its instant,
so a driver that comes to life late writes files that belong to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi import exchange
from airflow_provider_slshudi.hudi import rewrite as files
from airflow_provider_slshudi.hudi.timeline import Phase, Timeline
from airflow_provider_slshudi.job.orders import Verb
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol.maintain import fit
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work, driver_time


@dataclass(frozen=True)
class Rewritten:
    """What a clustering or compaction did; `instant` is None where there was nothing to do.

    Attributes:
        files, bytes: what was read.
        into_files, into_bytes: what it became.
    """

    instant: str | None
    files: int = 0
    bytes: int = 0
    into_files: int = 0
    into_bytes: int = 0


@dataclass(frozen=True)
class _Kind:
    action: str
    plan: Verb
    write: Verb
    complete: Verb
    leased: Point
    seen: Point


_CLUSTERING = _Kind(
    "clustering",
    Verb.PLAN_CLUSTERING,
    Verb.CLUSTER,
    Verb.COMPLETE_CLUSTERING,
    Point.CLUSTER_LEASED,
    Point.CLUSTER_SEEN,
)
_COMPACTION = _Kind(
    "compaction",
    Verb.PLAN_COMPACTION,
    Verb.COMPACT,
    Verb.COMPLETE_COMPACTION,
    Point.COMPACT_LEASED,
    Point.COMPACT_SEEN,
)


def cluster(work: Work) -> Rewritten:
    """Makes few files of many small ones, as the pipeline's `maintenance.clustering` says.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: the next run goes on where this one ended.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
    """
    return _rewrite(work, _CLUSTERING)


def compact(work: Work) -> Rewritten:
    """Merges the log files of a Merge-On-Read table into base files; raises as `cluster`."""
    return _rewrite(work, _COMPACTION)


def _rewrite(work: Work, kind: _Kind) -> Rewritten:
    register(work)
    with work.service_lease() as mine:
        with work.lease() as lease:
            reach(kind.leased)
            if not fit(work):
                return Rewritten(None)
            instant = _written_before(work, kind) or _planned(work, kind, lease)
        if instant is None:
            return Rewritten(None)
        if not files.has_manifest(work.storage, instant):
            work.launcher.run(kind.write, work.order(instant=instant), {})
        # Somebody else may have rolled it back, had this process stood still.
        mine.renew()
        written = files.read_manifest(work.storage, instant)
        with work.lease() as lease:
            work.launcher.run(kind.complete, work.order(instant=instant, until=driver_time(lease)), {})
            found = Timeline.load(work.storage).get(instant)
            if found is None or found.phase is not Phase.COMPLETED:
                raise TableError(
                    f"{work.storage.uri}: the job ended well, but {kind.action} {instant} is not completed",
                    table=work.storage.uri,
                    instant=instant,
                )
        reach(kind.seen)
        exchange.delete(work.storage, instant)
    return Rewritten(instant, written.read_files, written.read_bytes, len(written.paths), written.bytes)


def _planned(work: Work, kind: _Kind, lease: Lease) -> str | None:
    """A new plan, once what was left half done is out of its way."""
    for instant in _left(work, kind):
        work.launcher.run(Verb.ROLLBACK, work.order(instant=instant, until=driver_time(lease)), {})
        exchange.delete(work.storage, instant)
    work.launcher.run(kind.plan, work.order(until=driver_time(lease)), {})
    return next(iter(_pending(work, kind)), None)


def _written_before(work: Work, kind: _Kind) -> str | None:
    """One that died before it was completed, all its files being there."""
    timeline = Timeline.load(work.storage)
    return next(
        (
            instant
            for instant in _pending(work, kind)
            if instant not in timeline.rolling_back and files.has_manifest(work.storage, instant)
        ),
        None,
    )


def _pending(work: Work, kind: _Kind) -> list[str]:
    timeline = Timeline.load(work.storage)
    return [
        instant.time
        for instant in timeline.pending()
        if instant.action == kind.action and files.planned_by_us(timeline, instant, work.pipeline.name)
    ]


def _left(work: Work, kind: _Kind) -> list[str]:
    """What is pending of our services, and what a rollback of theirs took off the timeline before it died."""
    timeline = Timeline.load(work.storage)
    gone = [
        instant
        for instant in timeline.rolling_back
        if timeline.get(instant) is None
        and exchange.read_owner(work.storage, instant) is None
        and work.ledger.by_instant(work.pipeline.name, instant) is None
    ]
    return [*_pending(work, kind), *gone]
