"""Makes a pipeline's transactions and coverage anew from the table's commits, on a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from airflow_provider_slshudi.exceptions import IllegalTransition
from airflow_provider_slshudi.ledger import models, partition_rows, reads
from airflow_provider_slshudi.ledger.coverage import cover, learn_density
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.pipeline_rows import shard_row
from airflow_provider_slshudi.ledger.records import (
    GONE,
    LATE,
    CommittedBatch,
    LedgerShard,
    StartPositions,
    State,
    later,
)
from airflow_provider_slshudi.ledger.transactions import note


def rebuild(connection: Connection, pipeline: str, batches: Sequence[CommittedBatch], kept: StartPositions) -> None:
    """Replaces a pipeline's transactions and coverage by the table's `batches`; known shards stay.

    Raises:
        IllegalTransition: a live transaction is not among `batches`.
    """
    reads.lock_pipeline(connection, pipeline)
    batch_ids = {batch.id for batch in batches}
    # In a ledger older than the table (a replica, a backup) a transaction that the table committed may be live.
    for live in (transaction for transaction in reads.live(connection, pipeline) if transaction.id not in batch_ids):
        raise IllegalTransition(
            f"transaction {live.id} is {live.state.value}: let recovery decide it first, "
            "a rebuilt ledger would not know of it",
            transaction=live.id,
            found=live.state.value,
            wanted="COMMITTED or ABORTED",
        )
    commits = _commits(connection, pipeline)
    places = {instant: place for instant, place, _ in commits}
    instants = {batch.instant for batch in batches}
    partition_rows.reopen(
        connection, pipeline, [partitions for instant, _, partitions in commits if instant not in instants]
    )
    mine = select(models.transactions.c.id).where(models.transactions.c.pipeline == pipeline)
    # No process tells of a transaction between the deletion of its events and its own.
    connection.execute(mine.with_for_update())
    for table in (models.events, models.ranges, models.packed):
        connection.execute(delete(table).where(table.c.transaction_id.in_(mine)))
    for table in (models.transactions, models.coverage):
        connection.execute(delete(table).where(table.c.pipeline == pipeline))
    _begin_shards(connection, pipeline, batches, kept)
    last = reads.last_place(connection, pipeline)
    for batch in sorted(batches, key=lambda batch: batch.completed):
        # Consumers have come as far as these places; what the ledger had not heard of follows.
        place = places.get(batch.instant)
        if place is None:
            last = place = last + 1
        _insert(connection, pipeline, batch, place)
    reads.set_last_place(connection, pipeline, last)
    cover(connection, pipeline, [item for batch in batches for item in batch.ranges])


def _begin_shards(
    connection: Connection, pipeline: str, batches: Sequence[CommittedBatch], kept: StartPositions
) -> None:
    """Begins each shard where the table or this ledger says, whichever is earlier; the ledger may have begun anew.

    The next plan asks the service for the rest. A shard that neither knows becomes LATE: it is not known what was
    unread before its first committed cursor.
    """
    covered: dict[int, int] = {}
    for batch in batches:
        for item in batch.ranges:
            covered[item.shard] = min(item.begin, covered.get(item.shard, item.begin))
    stored_shards = {shard.id: shard for shard in reads.shards(connection, pipeline)}
    new = [
        LedgerShard(id_, LATE, "", "", covered[id_])
        for id_ in covered.keys() - stored_shards.keys() - kept.first.keys()
    ]
    joined_shards = [_joined(stored_shards.get(id_, shard), shard) for id_, shard in kept.shards().items()]
    rows = [shard_row(pipeline, shard) for shard in (*new, *joined_shards)]
    upsert(connection, models.shards, rows, ["status", "last_end", "first"])


def _joined(known: LedgerShard, told: LedgerShard) -> LedgerShard:
    """The ledger's shard joined with what the table `told`; not LATE, since the table keeps no late shards."""
    status = told.status if told.status == GONE or known.status == LATE else known.status
    return replace(known, status=status, first=min(known.first, told.first), end=later(known.end, told.end))


def _commits(connection: Connection, pipeline: str) -> list[tuple[str, int, Mapping[str, int] | None]]:
    """Each commit that the ledger knows: its instant, its place, and the rows that it wrote by partition."""
    table = models.transactions.c
    query = select(table.instant, table.place, table.partitions)
    query = query.where(table.pipeline == pipeline, table.place.is_not(None))
    return [(instant, place, partitions) for instant, place, partitions in connection.execute(query)]


def _insert(connection: Connection, pipeline: str, batch: CommittedBatch, place: int) -> None:
    moment, read = now(connection), {item.range: item for item in batch.totals}
    row: dict[str, Any] = {"id": batch.id, "pipeline": pipeline, "kind": batch.kind.value, "token": 1}
    row |= {"state": State.COMMITTED.value, "instant": batch.instant, "completed": batch.completed}
    row |= {"dag_id": batch.dag_id, "run_id": batch.run_id, "created": moment, "changed": moment, "heartbeat": moment}
    row |= {"place": place, "partitions": batch.partitions}
    row |= {"filter": None if batch.filter is None else dict(batch.filter)}
    row |= {"rows": sum(item.rows for item in batch.totals), "bytes": sum(item.bytes for item in batch.totals)}
    connection.execute(insert(models.transactions).values(row))
    ranges = []
    for item in batch.ranges:
        key = {"transaction_id": batch.id, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
        totals = read.get(item)
        ranges.append(key | {"gap": item.gap, "rows": totals and totals.rows, "bytes": totals and totals.bytes})
        ranges[-1]["filtered"] = totals and totals.filtered
    if ranges:
        connection.execute(insert(models.ranges), ranges)
    learn_density(connection, pipeline, batch.totals)
    note(connection, batch.id, "rebuilt", {"instant": batch.instant, "completed": batch.completed})
