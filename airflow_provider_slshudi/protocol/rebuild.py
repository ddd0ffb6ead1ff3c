"""Makes the ledger anew from the table: every commit, also an archived one, carries its transaction and ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.extra import (
    DAG_KEY,
    KIND_KEY,
    PIPELINE_KEY,
    RUN_KEY,
    TRANSACTION_KEY,
    ranges_of,
)
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, PROPERTIES, REPLACE
from airflow_provider_slshudi.hudi.timeline import CHANGES, Commit, Timeline
from airflow_provider_slshudi.ledger.records import CommittedBatch, Duties, RangeTotals
from airflow_provider_slshudi.ledger.states import Kind
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.protocol import cutoff, doubled, duties, quarantine
from airflow_provider_slshudi.protocol.evidence import check_table_against_ledger, pending_of
from airflow_provider_slshudi.protocol.resolve import roll_back
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.storage import Storage


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
        timeline = work.timeline()
        commits = commits_of(work, timeline)
        batches = committed_batches(work, commits)
        if twice := doubled.doubled(batches):
            raise doubled.refuse(work, twice)
        batches = doubled.without_filled_gaps(batches)
        _require_no_foreign_pending(work, timeline)
        # First: all that the ledger calls committed must be in the quarantine, too.
        finished = quarantine.finish(work, lease, {batch.instant: batch.id for batch in batches})
        quarantine.require_whole(work, ((instant, extra) for instant, _, extra in commits))
        # Refuses live transactions before anything touches their pending instants.
        work.ledger.rebuild(name, batches, duties.read(work))
        for instant in finished:
            handover.delete(work.storage, instant)
        completed = [*timeline.completed(*CHANGES), *quarantine.timeline_of(work).completed(*CHANGES)]
        work.ledger.accept(name, max((str(instant.completion) for instant in completed), default=""))
        pending = pending_of(work)
        for instant, id_ in pending:
            roll_back(work, lease, instant, id_)
            handover.delete(work.storage, instant)
        for instant in quarantine.pending(work):
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
        for storage in (work.storage, Storage(work.pipeline.quarantine_path)):
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
        work.ledger.rebuild(work.pipeline.name, [], Duties())
        work.ledger.accept(work.pipeline.name, "")
    return Rebuilt(0, [])


def commits_of(work: Work, timeline: Timeline) -> list[Commit]:
    """The table's commits, see `Timeline.commits`; refuses a quarantine with commits that the table lacks.

    Raises:
        TimelineUnreadable: the quarantine is not where it was made.
        TableMismatch: the table was restored, and the quarantine was not.
    """
    quarantine.require_known(work)
    commits = list(timeline.commits())
    quarantine.require_no_more(work, {instant for instant, _, _ in commits})
    return commits


def committed_batches(work: Work, commits: Iterable[Commit]) -> list[CommittedBatch]:
    """The batches that the commits (`Timeline.commits`) hold, in the order of completion."""
    return [
        batch
        for instant, completion, extra in sorted(commits, key=lambda item: item[1])
        for batch in _batch(work, instant, completion, extra)
    ]


def _batch(work: Work, instant: str, completion: str, extra: Mapping[str, str]) -> Iterator[CommittedBatch]:
    if extra.get(PIPELINE_KEY) != work.pipeline.name:
        return
    ranges, totals = [], []
    for item, count, size in ranges_of(extra):
        ranges.append(item)
        if count is not None and size is not None:
            totals.append(RangeTotals(item, count, size, None, None))
    yield CommittedBatch(
        extra[TRANSACTION_KEY],
        Kind(extra[KIND_KEY]),
        instant,
        completion,
        extra[DAG_KEY],
        extra[RUN_KEY],
        tuple(ranges),
        tuple(totals),
    )
