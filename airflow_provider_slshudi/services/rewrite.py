"""Clustering and compaction beside ingestion: rows move into other files, and no batch waits for that.

A run plans under the pipeline's lease, writes without it, and completes under it again: seconds, minutes, seconds. It
holds the service lease all the time. So a run that gets that lease knows that none works on a pending plan any more: it
completes the plan if all its files were written, and otherwise rolls it back. No run writes a plan a second time under
its instant, so a driver that wakes up late writes files that belong to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.handover import batch_files, fencing, rewrite_plan
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.instant_metadata import COMPACTION, planned_by_us
from airflow_provider_slshudi.hudi.layout import CLUSTERING, Phase
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.services.maintenance import fit
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import register


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
class _Service:
    action: str
    plan: Verb
    write: Verb
    complete: Verb
    leased: Point
    seen: Point


_CLUSTERING = _Service(
    CLUSTERING,
    Verb.PLAN_CLUSTERING,
    Verb.CLUSTER,
    Verb.COMPLETE_CLUSTERING,
    Point.CLUSTER_LEASED,
    Point.CLUSTER_SEEN,
)
_COMPACTION = _Service(
    COMPACTION,
    Verb.PLAN_COMPACTION,
    Verb.COMPACT,
    Verb.COMPLETE_COMPACTION,
    Point.COMPACT_LEASED,
    Point.COMPACT_SEEN,
)


def cluster(work: Work) -> Rewritten:
    """Merges many small files into few, as the pipeline's `maintenance.clustering` says.

    Leaves a table with `upsert` alone: its rows stay in the files of their buckets.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: the next run goes on where this one ended.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
        TableError: the job ended well and the table does not show it.
    """
    return _rewrite(work, _CLUSTERING, work.pipeline.table.upsert is None)


def compact(work: Work) -> Rewritten:
    """Merges log files of a Merge-On-Read table into base files, after each `maintenance.compact_after` commits.

    Raises as `cluster`.
    """
    return _rewrite(work, _COMPACTION, work.pipeline.compacts)


def _rewrite(work: Work, service: _Service, wanted: bool) -> Rewritten:
    register(work)
    with work.service_lease() as mine:
        with work.lease() as lease:
            reach(service.leased)
            may = fit(work) and wanted
            instant = (_written_before(work, service) or _planned(work, service, lease)) if may else None
        if instant is None:
            return Rewritten(None)
        if not rewrite_plan.has_manifest(work.storage, instant):
            work.launcher.run(service.write, work.order(instant=instant), {})
        # If this process stood still, another run may have rolled the plan back.
        mine.renew()
        written, digest = rewrite_plan.take_manifest(work.storage, instant)
        with work.lease() as lease:
            work.change(lease, service.complete, work.order(instant=instant, digest=digest))
            entry = work.timeline().get(instant)
            if entry is None or entry.phase is not Phase.COMPLETED:
                raise TableError(
                    f"{work.storage.uri}: the job ended well, but {service.action} {instant} is not completed",
                    table=work.storage.uri,
                    instant=instant,
                )
        reach(service.seen)
        _tidy(work)
    return Rewritten(instant, written.read_files, written.read_bytes, len(written.paths), written.bytes)


def _tidy(work: Work) -> None:
    """Removes the manifests of instants that are completed or gone, of this run and of dead ones."""
    pending = {instant.time for instant in work.timeline().pending()}
    for instant in rewrite_plan.manifests(work.storage):
        if instant not in pending:
            fencing.delete(work.storage, instant)


def _planned(work: Work, service: _Service, lease: Lease) -> str | None:
    """Rolls back what dead runs left half done, then makes a new plan; None where there is nothing to do."""
    for instant in _left(work, service):
        with leftovers.swept(work.storage, instant):
            work.change(lease, Verb.ROLLBACK, work.order(instant=instant))
    work.change(lease, service.plan, work.order())
    return next(iter(_pending(work, service)), None)


def _written_before(work: Work, service: _Service) -> str | None:
    """The pending plan of a dead run that wrote all its files; None where there is none."""
    undone = work.timeline().rolling_back
    plans = (instant for instant in _pending(work, service) if instant not in undone)
    return next((instant for instant in plans if rewrite_plan.has_manifest(work.storage, instant)), None)


def _pending(work: Work, service: _Service) -> list[str]:
    timeline = work.timeline()
    return [
        instant.time
        for instant in timeline.pending()
        if instant.action == service.action and planned_by_us(timeline, instant, work.pipeline.name)
    ]


def _left(work: Work, service: _Service) -> list[str]:
    """Our pending plans, and instants of such plans removed by an unfinished rollback."""
    timeline = work.timeline()
    removed_plans = [
        instant
        for instant in timeline.rolling_back
        if timeline.get(instant) is None
        and batch_files.read_owner(work.storage, instant) is None
        and work.ledger.by_instant(work.pipeline.name, instant) is None
    ]
    return [*_pending(work, service), *removed_plans]
