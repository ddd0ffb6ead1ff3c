"""Repairs a table that two ledgers wrote to, so that it holds each log once.

The ledger has no part in it until the end: it is one of the two that were wrong. A repair that dies leaves a pending
instant of a transaction that no ledger knows. The instant stops settle and plan, and the next try rolls it back.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import CommitStateUnknown, IllegalTransition, JobFailed, TableError
from airflow_provider_slshudi.hudi.actions import COMPACTION
from airflow_provider_slshudi.hudi.extra import RANGES_NOW_KEY, extra_of
from airflow_provider_slshudi.hudi.layout import CLUSTERING, Phase
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.records import CommittedBatch, RangeTotals
from airflow_provider_slshudi.ledger.states import Kind
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.notes.erased import count
from airflow_provider_slshudi.notes.handover import BatchOrder, Claim, Manifest
from airflow_provider_slshudi.notes.job import JobOrder, Verb
from airflow_provider_slshudi.protocol import quarantine
from airflow_provider_slshudi.protocol.columns import require_fit
from airflow_provider_slshudi.protocol.doubled import Doubled, doubled
from airflow_provider_slshudi.protocol.evidence import pending_of
from airflow_provider_slshudi.protocol.rebuild import commits_of, committed_batches, rebuild
from airflow_provider_slshudi.protocol.resolve import roll_back
from airflow_provider_slshudi.protocol.settle import register
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import Range, overlap, subtract

_TOKEN = 1


@dataclass(frozen=True)
class Dropped:
    """What a commit lost: ranges that an earlier commit has, and the number of their rows."""

    transaction: str
    instant: str
    ranges: list[Range]
    rows: int


@dataclass(frozen=True)
class Repaired:
    """What was taken out of the table, and the instant that did it; None where nothing was doubled."""

    instant: str | None
    dropped: list[Dropped]


@dataclass(frozen=True)
class _Part:
    """A part (`range`) of a recorded range (`of`), and whether its rows go."""

    of: Range
    range: Range
    goes: bool


def drop_doubled(work: Work) -> Repaired:
    """Takes ranges that earlier commits hold out of later ones, then makes the ledger anew from the table.

    A table with upserts keeps its rows, since they are merged. Later batches read each doubled shard again, in order,
    from its first doubled cursor on, so that no row stays in an older state.

    Pause the pipeline's DAGs first. The repair may be repeated.

    Raises:
        IllegalTransition: the ledger has a live transaction that the table has not committed; recovery decides it
            first.
        TableError: the rows are not those that the commits recorded; the table is as it was.
        CommitStateUnknown: the commit ended badly; a second try finds out.
        TableMismatch: the table and its quarantine are of different times.
        ColumnMismatch: the table's columns cannot become the pipeline's.
    """
    register(work)
    require_fit(work)
    with work.service_lease(), work.lease() as lease:
        commits = commits_of(work, work.timeline())
        batches = committed_batches(work, commits)
        found = doubled(batches)
        if found:
            # First: whatever is pending afterwards belongs to no commit, and is rolled back.
            for instant in quarantine.finish(work, lease, {batch.instant: batch.id for batch in batches}):
                handover.delete(work.storage, instant)
            quarantine.require_whole(work, ((instant, extra) for instant, _, extra in commits))
            _clear(work, lease, {batch.id for batch in batches})
            parts = _parts(work, batches, found)
            done = _drop(work, lease, {batch.instant: batch for batch in batches}, parts)
        else:
            done = Repaired(None, [])
    rebuild(work)
    return done


def _clear(work: Work, lease: Lease, committed: set[str]) -> None:
    """Rolls back pending instants: they were written beside rows that go now."""
    for live in work.ledger.live(work.pipeline.name):
        if live.id not in committed:
            raise IllegalTransition(
                f"transaction {live.id} is {live.state.value}: let recovery decide it first (`slshudi recover`)",
                transaction=live.id,
                found=live.state.value,
                wanted="COMMITTED or ABORTED",
            )
    services = (CLUSTERING, COMPACTION)
    rewriting = [item.time for item in work.timeline().pending() if item.action in services]
    for instant in dict.fromkeys(
        [*(instant for instant, _ in pending_of(work)), *rewriting, *quarantine.pending(work)]
    ):
        roll_back(work, lease, instant, "")
        handover.delete(work.storage, instant)


def _parts(work: Work, batches: Sequence[CommittedBatch], found: Sequence[Doubled]) -> dict[str, list[_Part]]:
    """By instant, the parts of the ranges of each commit that loses some."""
    if work.pipeline.table.upsert is None:
        going = {item.batch.instant: item.ranges for item in found}
    else:
        first: dict[int, int] = {}
        for twice in (part for item in found for part in item.ranges):
            first[twice.shard] = min(twice.begin, first.get(twice.shard, twice.begin))
        since = [Range(shard, begin, 2**63 - 1) for shard, begin in first.items()]
        going = {batch.instant: since for batch in batches if overlap(_read(batch), since)}
    parts: dict[str, list[_Part]] = {}
    for batch in batches:
        for item in _read(batch) if batch.instant in going else ():
            goes = overlap([item], going[batch.instant])
            stays = subtract([item], goes)
            parts.setdefault(batch.instant, []).extend(
                _Part(item, part, part in goes) for part in sorted([*goes, *stays])
            )
    return parts


def _read(batch: CommittedBatch) -> list[Range]:
    return [item for item in batch.ranges if not item.gap]


def _drop(work: Work, lease: Lease, batches: dict[str, CommittedBatch], parts: dict[str, list[_Part]]) -> Repaired:
    id_ = f"repair-{uuid.uuid4().hex}"
    work.launcher.run(Verb.OPEN, work.order(transaction=id_, token=_TOKEN), {})
    instant = next(instant for instant, owner in pending_of(work) if owner == id_)
    claim = Claim(work.storage, id_, instant, _TOKEN)
    try:
        drop = {
            of: [(part.range.shard, part.range.begin, part.range.end, part.goes) for part in items]
            for of, items in parts.items()
        }
        described = work.pipeline.model_dump(mode="json")
        told = handover.write_order(work.storage, BatchOrder(id_, _TOKEN, instant, described, [], {}, drop=drop))
        work.launcher.run(Verb.APPEND, JobOrder(described, id_, _TOKEN, instant, told), {})
        manifest, digest = claim.manifest()
        now, dropped = _checked(work, manifest, batches, parts)
    except Exception:
        roll_back(work, lease, instant, id_)
        handover.delete(work.storage, instant)
        raise
    run = work.run.dag_id, work.run.run_id
    quarantined = None if manifest.quarantine is None else (manifest.quarantined, digest)
    extra = extra_of(id_, work.pipeline.name, Kind.REPAIR.value, run, "{}", quarantined)
    extra[RANGES_NOW_KEY] = json.dumps(now)
    left = claim.leave_extra(extra)
    _commit(work, lease, JobOrder(described, id_, _TOKEN, instant, digest, left))
    return Repaired(instant, dropped)


def _commit(work: Work, lease: Lease, order: JobOrder) -> None:
    """Commits the instant; the rebuild completes the quarantine's part if the driver died before that."""
    failed: JobFailed | None = None
    try:
        work.change(lease, Verb.COMMIT, order)
    except JobFailed as error:
        failed = error
    found = work.timeline().get(order.instant)
    if found is None or found.phase is not Phase.COMPLETED:
        raise CommitStateUnknown(
            f"the commit of instant {order.instant}, which takes doubled rows out of {work.storage.uri}, did not end "
            f"well, and the timeline does not show it; try again. {failed or ''}",
            table=work.storage.uri,
            instant=order.instant,
        )
    if not quarantine.is_pending(work, order.instant):
        handover.delete(work.storage, order.instant)


def _checked(
    work: Work, manifest: Manifest, batches: dict[str, CommittedBatch], parts: dict[str, list[_Part]]
) -> tuple[dict[str, list[list[int]]], list[Dropped]]:
    """The ranges that the commits keep, with rows and bytes, and what each commit loses.

    Raises:
        TableError: a range has another number of rows than its commit recorded.
    """
    now: dict[str, list[list[int]]] = {}
    dropped = []
    for instant, items in parts.items():
        recorded = {item.range: item for item in batches[instant].totals}
        rows = dict(zip(items, _rows(work, manifest, instant, items, recorded), strict=True))
        erased = dict(zip(items, count(work.storage, instant, [part.range for part in items]), strict=True))
        for of in dict.fromkeys(part.of for part in items):
            there = sum(rows[part] + erased[part] for part in items if part.of == of)
            if there != recorded[of].rows:
                raise TableError(
                    f"{work.storage.uri}: instant {instant} recorded {recorded[of].rows} rows of {of}, and {there} of "
                    "them are there or accepted as erased: a replay moved some, or another client changed them. The "
                    "table is as it was. If a client erased them, accept that first (`slshudi table accept-erased`); "
                    "otherwise restore the table with Hudi to before the first doubled commit, then run `slshudi "
                    f"ledger rebuild {work.pipeline.name}`",
                    table=work.storage.uri,
                    instant=instant,
                )
        now[instant] = [
            [
                *(part.range.shard, part.range.begin, part.range.end, rows[part] + erased[part]),
                recorded[part.of].bytes * (rows[part] + erased[part]) // max(1, recorded[part.of].rows),
            ]
            for part in items
            if not part.goes
        ]
        gone = {part: count for part, count in rows.items() if part.goes}
        dropped.append(Dropped(batches[instant].id, instant, [part.range for part in gone], sum(gone.values())))
    return now, dropped


def _rows(
    work: Work, manifest: Manifest, instant: str, items: Sequence[_Part], recorded: Mapping[Range, RangeTotals]
) -> list[int]:
    """The number of rows of each part; upserted rows name no cursor, so there a part gets its share by length."""
    if work.pipeline.table.upsert is None:
        return manifest.found[instant]

    def until(part: _Part, cursor: int) -> int:
        return recorded[part.of].rows * (cursor - part.of.begin) // len(part.of)

    return [until(part, part.range.end) - until(part, part.range.begin) for part in items]
