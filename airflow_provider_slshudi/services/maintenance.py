"""A table's services, under the lease: cleaning, archiving, rewriting of small files; and its entry in a catalog."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_provider_slshudi.exceptions import ConfigError, ForeignWrite, TableError
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.beside import Beside, require_there, route_keys, tables_beside
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, PROPERTIES, Phase
from airflow_provider_slshudi.hudi.timeline import CHANGES, CleanPlan, Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.services.mirrors import release
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.settle import register

_LOOKS, _LOOK_SECONDS = 20, 1
_log = logging.getLogger(__name__)
_PENDING_WRITES = (*CHANGES, "clustering", "compaction", "logcompaction")


@dataclass(frozen=True)
class Cleaned:
    """What a clean deleted; `instant` is None where there was nothing to do."""

    instant: str | None
    files: int
    bytes: int


@dataclass(frozen=True)
class Archived:
    """How many instants went to the archive, and how many commits stay on the active timeline.

    Attributes:
        held_by: the oldest pending instant, where more commits stay than the pipeline's file asks for.
    """

    instants: int
    commits: int
    held_by: str | None


def clean(work: Work) -> Cleaned:
    """Deletes replaced files that are older than the pipeline's file says to keep, in the tables beside too.

    Files stay that a snapshot has of a commit which a consumer has not confirmed, for as long as the consumer's `hold`.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed, MirrorFailed: the next run goes on where this one
            ended.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
    """
    register(work)
    done = _clean(work, fit, needed_by_consumers)
    for beside in beside_of(work).values():
        more = _clean(beside, lambda _: True)
        done = Cleaned(done.instant or more.instant, done.files + more.files, done.bytes + more.bytes)
    return done


def needed_by_consumers(work: Work) -> str:
    """The oldest instant that a consumer needs, empty where none does; warns of those that need it too long."""
    holds = work.ledger.holds(work.pipeline.name)
    for hold in holds:
        if hold.is_told:
            _log.warning("pipeline %s: %s", work.pipeline.name, hold)
    return min((hold.instant for hold in holds if hold.instant is not None), default="")


def _clean(work: Work, fit: Callable[[Work], bool], needed: Callable[[Work], str] = lambda _: "") -> Cleaned:
    with work.lease() as lease:
        reach(Point.CLEAN_LEASED)
        planned = _planned(work, lease, needed(work)) if fit(work) else None
    if planned is None:
        return Cleaned(None, 0, 0)
    plan = _plan(work, planned)
    leaving = plan.files
    if leaving and work.pipeline.table.upsert is not None:
        # Before they go. Without `upsert` no row changes: snapshots that stay have all rows of all commits.
        work.ledger.save_cleaned(work.pipeline.name, plan.until or planned)
    release(work, leaving)
    # Without the lease, since it takes minutes on object stores: no snapshot that is kept names these files.
    files, size = work.storage.delete_files(leaving)
    reach(Point.CLEAN_DELETED)
    with work.lease() as lease:
        if _pending_clean(work) == planned:
            _run(work, lease, Verb.CLEAN, planned)
            if _pending_clean(work) == planned:
                raise TableError(
                    f"{work.storage.uri}: the job ended well, but clean {planned} is still pending",
                    table=work.storage.uri,
                    instant=planned,
                )
    return Cleaned(planned, files, size)


def archive(work: Work) -> Archived:
    """Moves the oldest instants from the active timeline into the archive; raises as `clean`.

    Hudi leaves instants on the active timeline that are later than the oldest pending one, than the oldest one that
    cleaning keeps, or than the metadata table's last compaction. So do those from the first on that a consumer has not
    confirmed, for as long as the consumer's `hold`.
    """
    register(work)
    _meet_nothing_pending(work)
    with work.lease() as lease:
        reach(Point.ARCHIVE_LEASED)
        if not fit(work):
            return Archived(0, 0, None)
        before = _completed(work.timeline())
        _sweep(work)
        _run(work, lease, Verb.ARCHIVE, keep=needed_by_consumers(work))
        timeline = work.timeline()
        for beside in beside_of(work).values():
            if _may_archive(beside, timeline):
                _sweep(beside)
                _run(beside, lease, Verb.ARCHIVE)
    commits = len(timeline.completed(*CHANGES))
    pending = (instant.time for instant in timeline.pending() if instant.action in _PENDING_WRITES)
    held = next(pending, None) if commits > work.pipeline.maintenance.max_commits else None
    if held is not None:
        _log.warning("%s: instant %s is pending and holds archival back", work.storage.uri, held)
    return Archived(len(before - _completed(timeline)), commits, held)


def _meet_nothing_pending(work: Work) -> None:
    """Waits some seconds for a moment between two batches, the only one at which version 6 lets archival act."""
    for _ in range(_LOOKS):
        timeline = work.timeline()
        if timeline.layout is not LAYOUT_1 or not timeline.pending():
            return
        time.sleep(_LOOK_SECONDS)


def _sweep(work: Work) -> None:
    """Deletes files of instants that were given up: after archival, readers that list files take them for committed."""
    if file_names := leftovers.sweep_all(work.storage):
        _log.warning(
            "%s: deleted %d files of no instant: %s", work.storage.uri, len(file_names), ", ".join(file_names[:3])
        )


def beside_of(work: Work) -> dict[str, Work]:
    """The work on each of the pipeline's tables beside that there is, by what messages call it.

    Raises:
        TimelineUnreadable: one was made and is gone.
    """
    tables = tables_beside(work.pipeline)
    for table in tables:
        require_there(table)
    return {
        table.called: replace(work, pipeline=table.pipeline) for table in tables if table.storage.exists(PROPERTIES)
    }


def tables_of(work: Work) -> list[Work]:
    """Work on the table, and on those beside that there are; raises as `beside_of`."""
    return [work, *beside_of(work).values()]


def _may_archive(aside: Work, main: Timeline) -> bool:
    """Whether the table beside has commits, and no batch can still add one that is older than its newest.

    A pending instant of the main table may yet come to its timeline, which does not show it before.
    """
    commits = [instant.time for instant in Timeline.load(aside.storage).completed(*CHANGES)]
    return bool(commits) and all(instant.time > commits[-1] for instant in main.pending())


def fit(work: Work) -> bool:
    """Whether there is a table; raises as `require_agreement` where a person has to look at it."""
    require_agreement(work)
    return work.storage.exists(PROPERTIES)


def require_table(work: Work) -> None:
    """Raises TableError if there is no table, and as `fit`."""
    if not fit(work):
        raise TableError(f"{work.storage.uri} has no table yet: run a batch first", table=work.storage.uri)


def _run(work: Work, lease: Lease, verb: Verb, instant: str = "", keep: str = "") -> None:
    work.change(lease, verb, work.order(instant=instant, keep=keep))


def _planned(work: Work, lease: Lease, needed: str) -> str | None:
    """The clean to carry out: the one that an earlier run began, else a new one; None where there is nothing to do."""
    begun = _pending_clean(work)
    if begun is None:
        _run(work, lease, Verb.PLAN_CLEAN, keep=needed)
    return begun or _pending_clean(work)


def _pending_clean(work: Work) -> str | None:
    return work.timeline().pending_clean()


def _plan(work: Work, planned: str) -> CleanPlan:
    """What a planned clean deletes.

    Raises:
        ForeignWrite: another client planned the clean, or restored the table since, so deleting would do harm.
    """
    timeline = work.timeline()
    plan = timeline.clean_plan(planned)
    file, why = timeline.clean_plan_file(planned), ""
    if plan.partitions:
        why = (
            f"would delete the whole folders {', '.join(plan.partitions[:3])}, where a batch may be writing: pause the "
            "pipeline's DAGs, then finish the clean with the client that planned it"
        )
    if plan.outside:
        why = (
            f"names files that are not in the table's folder ({', '.join(plan.outside[:3])}): find out who planned it, "
            f"then remove {file} and, if it is there, {planned}.clean.inflight"
        )
    if any(restore.time > planned for restore in timeline.completed("restore")):
        why = (
            "was planned before the table was restored, and may name files that are in use again: remove "
            f"{file} and, if it is there, {planned}.clean.inflight"
        )
    if why:
        raise ForeignWrite(
            f"{work.storage.uri}: the pending clean {planned} {why}",
            table=work.storage.uri,
            instant=planned,
            operation="clean",
        )
    return plan


def _completed(timeline: Timeline) -> set[str]:
    return {instant.time for instant in timeline if instant.phase is Phase.COMPLETED}


def sync(work: Work) -> None:
    """Brings the catalog's entries for the table and the routes' tables up to their newest commits.

    Raises:
        ConfigError: the pipeline's file names no catalog.
        JobFailed: the metastore did not answer, or refused; the error ends with the metastore's message.
    """
    pipeline = work.pipeline
    if pipeline.catalog is None:
        raise ConfigError(
            f"pipeline {pipeline.name} names no `catalog` to tell of its table", source=pipeline.name, field="catalog"
        )
    work.launcher.run(Verb.SYNC, work.order(), {})
    for key in route_keys(pipeline):
        table = Beside(key, pipeline)
        if table.storage.exists(PROPERTIES):
            work.launcher.run(Verb.SYNC, JobOrder.of(table.pipeline), {})
