"""Rebuilding the ledger's state of a pipeline from the table's commits, and ranges that two commits hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_provider_slshudi.exceptions import RangesDoubled, TableError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.instant_metadata import (
    DAG_KEY,
    FILTER_KEY,
    KIND_KEY,
    PIPELINE_KEY,
    RUN_KEY,
    TRANSACTION_KEY,
    ranges_of,
)
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, PROPERTIES, REPLACE
from airflow_provider_slshudi.hudi.timeline import CHANGES, Commit, Timeline
from airflow_provider_slshudi.ledger.records import CommittedBatch, Kind, RangeTotals, StartPositions
from airflow_provider_slshudi.planning.ranges import Range, merge, overlap, subtract
from airflow_provider_slshudi.transaction import cutoff, start_positions
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.evidence import check_table_against_ledger, pending_of
from airflow_provider_slshudi.transaction.resolve import roll_back
from airflow_provider_slshudi.transaction.settle import register
from airflow_provider_slshudi.transaction.tables import TransactionTables


@dataclass(frozen=True)
class Doubled:
    """A commit, and those of its ranges (merged) that the table already had when it was completed."""

    batch: CommittedBatch
    ranges: list[Range]

    def __str__(self) -> str:
        ranges = ", ".join(map(str, self.ranges[:5]))
        more = f" and {len(self.ranges) - 5} more" if len(self.ranges) > 5 else ""
        return f"instant {self.batch.instant} (transaction {self.batch.id}) {ranges}{more}"


def doubled(batches: Sequence[CommittedBatch]) -> list[Doubled]:
    """The commits that hold ranges of earlier ones; `batches` are in the order of completion. Gaps hold nothing."""
    doubles, taken = [], list[Range]()
    for batch in batches:
        read = [item for item in batch.ranges if not item.gap]
        if twice := overlap(read, taken):
            doubles.append(Doubled(batch, twice))
        taken = merge([*taken, *read])
    return doubles


def without_filled_gaps(batches: Sequence[CommittedBatch]) -> list[CommittedBatch]:
    """The same batches, with their gaps cut to cursors that no other batch read and no earlier batch has as a gap."""
    if not any(item.gap for batch in batches for item in batch.ranges):
        return list(batches)
    taken = merge(item for batch in batches for item in batch.ranges if not item.gap)
    cut_batches = []
    for batch in batches:
        unread_ranges = subtract((item for item in batch.ranges if item.gap), taken)
        taken = merge([*taken, *unread_ranges])
        gaps = [replace(item, gap=True) for item in unread_ranges]
        cut_batches.append(replace(batch, ranges=(*(item for item in batch.ranges if not item.gap), *gaps)))
    return cut_batches


def refuse(work: Work, found: Sequence[Doubled]) -> RangesDoubled:
    """The error for a table that holds logs twice."""
    return RangesDoubled(
        f"{work.storage.uri}: {len(found)} commits of pipeline {work.pipeline.name} repeat ranges of earlier commits, "
        f"so these logs are in the table twice: {'; '.join(map(str, found[:5]))}"
        f"{'; and more' if len(found) > 5 else ''}. Nothing was changed: a rebuilt ledger would count them once. "
        "Restore the table, and its quarantine, with Hudi or from a backup to before the first of these commits, then "
        f"run `slshudi ledger rebuild {work.pipeline.name}`: later logs are read again",
        table=work.storage.uri,
        instant=found[0].batch.instant,
        ranges=[(item.batch.id, part) for item in found for part in item.ranges],
    )


@dataclass(frozen=True)
class Rebuilt:
    """How many committed transactions the table has, and the pending instants that were rolled back."""

    committed: int
    rolled_back: list[str]


def rebuild(work: Work, table_is_gone: bool = False) -> Rebuilt:
    """Replaces the ledger's records of the pipeline by the table's, and accepts other clients' writes as meant.

    Rolls back the pipeline's pending instants: their manifests are lost, and later batches read their ranges again.
    Pause the pipeline's DAGs first. With `table_is_gone` a person says that the table no longer exists, which nothing
    on storage can prove: the ledger forgets everything, and batches read again what the service still has.

    Raises:
        IllegalTransition: the ledger has a live transaction that the table has not committed; recovery decides it
            first.
        TimelineUnreadable: nothing is known, nothing was changed.
        TableError: an instant is still pending after its rollback; or the table that is said to be gone is there.
        RangesDoubled: commits hold the same ranges; nothing was changed.
        TableMismatch: the table and its quarantine are of different times.
    """
    register(work)
    if table_is_gone:
        return _begin_anew(work)
    name = work.pipeline.name
    with work.lease() as lease:
        cutoff.take_away(work)
        timeline, tables = work.timeline(), TransactionTables.of(work)
        commits = commits_of(work, timeline)
        batches = committed_batches(work, commits)
        if twice := doubled(batches):
            raise refuse(work, twice)
        batches = without_filled_gaps(batches)
        _require_no_foreign_pending(work, timeline)
        # First: all that the ledger calls committed must be in the quarantine, too.
        finished = tables.finish(lease, {batch.instant: batch.id for batch in batches})
        tables.require_whole((commit.time, commit.extra) for commit in commits)
        # Refuses live transactions before anything touches their pending instants.
        work.ledger.rebuild(name, batches, start_positions.read(work))
        if work.pipeline.table.upsert is not None and (cleaned := timeline.cleaned_until()):
            work.ledger.save_cleaned(name, cleaned)
        for instant in finished:
            fencing.delete(work.storage, instant)
        completed = [
            *timeline.completed(*CHANGES),
            *(item for table in tables.beside for item in table.timeline().completed(*CHANGES)),
        ]
        work.ledger.accept(name, max((str(instant.completion) for instant in completed), default=""))
        pending = pending_of(work)
        for instant, id_ in pending:
            roll_back(work, lease, instant, id_)
            fencing.delete(work.storage, instant)
        for instant in tables.pending_beside():
            roll_back(work, lease, instant, "")
    check_table_against_ledger(work)
    return Rebuilt(len(batches), [instant for instant, _ in pending])


def _require_no_foreign_pending(work: Work, timeline: Timeline) -> None:
    """Layout 1 has no completion times, by which a write that is completed later would be told from accepted ones.

    Where rows are only appended, one that replaces no file takes nothing away from a batch.
    """
    if timeline.layout is not LAYOUT_1:
        return
    able = CHANGES if work.pipeline.table.upsert is not None else (REPLACE,)
    ours = {instant for instant, _ in pending_of(work)}
    for instant in timeline.pending():
        if instant.action in able and instant.time not in ours:
            raise TableError(
                f"{work.storage.uri}: {instant.action} {instant.time} of another client is {instant.phase.value}, and "
                "a table of version 6 does not tell afterwards when it was completed: have that client finish it or "
                "roll it back, then run this again",
                table=work.storage.uri,
                instant=instant.time,
            )


def _begin_anew(work: Work) -> Rebuilt:
    with work.lease():
        for storage in TransactionTables.of(work).storages():
            if storage.exists(PROPERTIES) or any(Timeline.load(storage)) or next(storage.walk(), None) is not None:
                raise TableError(
                    f"{storage.uri}: --table-is-gone was given, but the table or files of it are here, and readers of "
                    "a new table would take them for its own. Either remove them, or leave --table-is-gone out to "
                    "rebuild the ledger from the table. If only the quarantine is left, move it away first: its logs "
                    "are read again with all others",
                    table=storage.uri,
                )
        for live in work.ledger.live(work.pipeline.name):
            taken = work.ledger.take_over(live.id)
            work.ledger.aborted(taken.id, taken.token, f"the table is gone, says {work.run}")
        work.ledger.rebuild(work.pipeline.name, [], StartPositions())
        work.ledger.accept(work.pipeline.name, "")
    return Rebuilt(0, [])


def commits_of(work: Work, timeline: Timeline) -> list[Commit]:
    """The table's commits, see `Timeline.commits`; refuses a quarantine with commits that the table lacks.

    Raises:
        TimelineUnreadable: the quarantine is not where it was made.
        TableMismatch: the table was restored, and the quarantine was not.
    """
    tables = TransactionTables.of(work)
    tables.require_known()
    commits = list(timeline.commits())
    tables.require_no_more({commit.time for commit in commits})
    return commits


def committed_batches(work: Work, commits: Iterable[Commit]) -> list[CommittedBatch]:
    """The batches that the commits (`Timeline.commits`) hold, in the order of completion."""
    return [batch for commit in sorted(commits, key=lambda commit: commit.completion) for batch in _batch(work, commit)]


def _batch(work: Work, commit: Commit) -> Iterator[CommittedBatch]:
    extra = commit.extra
    if extra.get(PIPELINE_KEY) != work.pipeline.name:
        return
    ranges, totals = [], []
    for item, count, size, filtered in ranges_of(extra):
        ranges.append(item)
        if count is not None and size is not None:
            totals.append(RangeTotals(item, count, size, None, None, filtered))
    yield CommittedBatch(
        extra[TRANSACTION_KEY],
        Kind(extra[KIND_KEY]),
        commit.time,
        commit.completion,
        extra[DAG_KEY],
        extra[RUN_KEY],
        tuple(ranges),
        tuple(totals),
        None if work.pipeline.table.partition is None else commit.partitions,
        json.loads(extra[FILTER_KEY]) if FILTER_KEY in extra else None,
    )
