"""Table services beside ingestion: cleaning and archival.

What changes the table's metadata is done under the pipeline's lease, as commits are, and takes seconds; files are
deleted without it. No pending batch is touched or waited for. What was cut off is carried on by the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_provider_slshudi.exceptions import ForeignWrite, TableError
from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.quarantine import require_there, table_of
from airflow_provider_slshudi.hudi.timeline import CHANGES, FOLDER, PROPERTIES, Phase, Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol.evidence import require_agreement
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work

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
    """Deletes the files that were replaced before what the pipeline's file says to keep, in the quarantine too.

    Raises:
        LeaseHeld, TimelineUnreadable, LedgerUnavailable, JobFailed: the next run goes on where this one ended.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: a person has to look; nothing was done.
    """
    register(work)
    done = _clean(work, fit)
    aside = aside_of(work)
    if aside is None:
        return done
    more = _clean(aside, lambda _: True)
    return Cleaned(done.instant or more.instant, done.files + more.files, done.bytes + more.bytes)


def _clean(work: Work, fit: Callable[[Work], bool]) -> Cleaned:
    with work.lease() as lease:
        reach(Point.CLEAN_LEASED)
        planned = _planned(work, lease) if fit(work) else None
    if planned is None:
        return Cleaned(None, 0, 0)
    # Named by no snapshot that is to be kept, whoever reads or writes meanwhile; on object stores this takes minutes.
    files, size = work.storage.delete_files(_files(work, planned))
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

    Hudi keeps on the active timeline what is later than the oldest pending instant, than what cleaning keeps, or than
    the metadata table's last compaction.
    """
    register(work)
    with work.lease() as lease:
        reach(Point.ARCHIVE_LEASED)
        if not fit(work):
            return Archived(0, 0, None)
        before = _completed(work.timeline())
        _sweep(work)
        _run(work, lease, Verb.ARCHIVE)
        timeline = work.timeline()
        aside = aside_of(work)
        if aside is not None and _may_archive(aside, timeline):
            _sweep(aside)
            _run(aside, lease, Verb.ARCHIVE)
    commits = len(timeline.completed(*CHANGES))
    pending = (instant.time for instant in timeline.pending() if instant.action in _PENDING_WRITES)
    held = next(pending, None) if commits > work.pipeline.maintenance.max_commits else None
    if held is not None:
        _log.warning("%s: instant %s is pending and holds archival back", work.storage.uri, held)
    return Archived(len(before - _completed(timeline)), commits, held)


def _sweep(work: Work) -> None:
    """Before archival goes past instants that were given up, and readers that list files take theirs for committed."""
    if left := leftovers.sweep_all(work.storage):
        _log.warning("%s: deleted %d files of no instant: %s", work.storage.uri, len(left), ", ".join(left[:3]))


def aside_of(work: Work) -> Work | None:
    """The same for the quarantine; None where there is none.

    Raises:
        TimelineUnreadable: there was one, and it is not there.
    """
    aside = replace(work, pipeline=table_of(work.pipeline))
    require_there(work.storage, aside.storage)
    return aside if aside.storage.exists(PROPERTIES) else None


def _may_archive(aside: Work, main: Timeline) -> bool:
    """Whether there is something, and no batch may yet come with an instant that is older than what is there.

    What the main table has pending may come to the quarantine's timeline, where nothing of it can be seen yet.
    """
    commits = [instant.time for instant in Timeline.load(aside.storage).completed(*CHANGES)]
    return bool(commits) and all(instant.time > commits[-1] for instant in main.pending())


def fit(work: Work) -> bool:
    """Whether there is a table; one that a person has to look at is left as it is."""
    require_agreement(work)
    return work.storage.exists(PROPERTIES)


def _run(work: Work, lease: Lease, verb: Verb, instant: str = "") -> None:
    work.change(lease, verb, work.order(instant=instant))


def _planned(work: Work, lease: Lease) -> str | None:
    """The clean that is to be carried out: one that a run before began, else a new one."""
    begun = _pending_clean(work)
    if begun is None:
        _run(work, lease, Verb.PLAN_CLEAN)
    return begun or _pending_clean(work)


def _pending_clean(work: Work) -> str | None:
    return work.timeline().pending_clean()


def _files(work: Work, planned: str) -> list[str]:
    """The files that a clean is to delete.

    Raises:
        ForeignWrite: somebody else did what would make deleting them wrong.
    """
    timeline = work.timeline()
    plan = timeline.clean_plan(planned)
    why = ""
    if plan.partitions:
        why = (
            f"would delete the folders of {', '.join(plan.partitions[:3])}, and a batch may be writing there: finish "
            "it with the client that planned it, while the pipeline's DAGs are paused"
        )
    if plan.outside:
        why = (
            f"names files that are not in the table's folder ({', '.join(plan.outside[:3])}): find out who planned it, "
            f"then remove {FOLDER}/{planned}.clean.requested and, if it is there, {planned}.clean.inflight"
        )
    if any(restore.time > planned for restore in timeline.completed("restore")):
        why = (
            "was planned before the table was restored, and may name files that are in use again: remove "
            f"{FOLDER}/{planned}.clean.requested and, if it is there, {planned}.clean.inflight"
        )
    if why:
        raise ForeignWrite(
            f"{work.storage.uri}: the pending clean {planned} {why}",
            table=work.storage.uri,
            instant=planned,
            operation="clean",
        )
    return plan.files


def _completed(timeline: Timeline) -> set[str]:
    return {instant.time for instant in timeline if instant.phase is Phase.COMPLETED}
