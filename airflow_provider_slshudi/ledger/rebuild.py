"""A pipeline's transactions and coverage made anew from what the table's commits say, written on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from airflow_provider_slshudi.exceptions import IllegalTransition
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.coverage import cover, learn_density
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import GONE, LATE, UNKNOWN, CommittedBatch, Duties
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.ledger.transactions import note


def rebuild(connection: Connection, pipeline: str, batches: Sequence[CommittedBatch], kept: Duties) -> None:
    """See `Ledger.rebuild`."""
    reads.lock_pipeline(connection, pipeline)
    told = {batch.id for batch in batches}
    # One that the table committed is live in a ledger that is older than the table: a replica, a backup.
    for live in (found for found in reads.live(connection, pipeline) if found.id not in told):
        raise IllegalTransition(
            f"transaction {live.id} is {live.state.value}: let recovery decide it first, "
            "a rebuilt ledger would not know of it",
            transaction=live.id,
            found=live.state.value,
            wanted="COMMITTED or ABORTED",
        )
    mine = select(models.transactions.c.id).where(models.transactions.c.pipeline == pipeline)
    for table in (models.events, models.ranges):
        connection.execute(delete(table).where(table.c.transaction_id.in_(mine)))
    for table in (models.transactions, models.coverage):
        connection.execute(delete(table).where(table.c.pipeline == pipeline))
    _add_missing_shards(connection, pipeline, batches, kept)
    for batch in batches:
        _insert(connection, pipeline, batch)
    cover(connection, pipeline, [item for batch in batches for item in batch.ranges])


def _add_missing_shards(connection: Connection, pipeline: str, batches: Sequence[CommittedBatch], kept: Duties) -> None:
    """The service tells the rest at the next plan. Of a shard that is not kept nobody knows what was unread before."""
    covered: dict[int, int] = {}
    for batch in batches:
        for item in batch.ranges:
            covered[item.shard] = min(item.begin, covered.get(item.shard, item.begin))
    known = {shard.id for shard in reads.shards(connection, pipeline)}
    rest: dict[str, Any] = {"pipeline": pipeline, "hash_begin": "", "hash_end": ""}
    new = [
        {"shard": shard, "first": kept.first.get(shard, covered.get(shard)), "status": _status(shard, kept)} | rest
        for shard in sorted(kept.first.keys() | covered.keys())
        if shard not in known
    ]
    if new:
        connection.execute(insert(models.shards), new)


def _status(shard: int, kept: Duties) -> str:
    if shard in kept.gone:
        return GONE
    return UNKNOWN if shard in kept.first else LATE


def _insert(connection: Connection, pipeline: str, batch: CommittedBatch) -> None:
    at, read = now(connection), {item.range: item for item in batch.totals}
    row: dict[str, Any] = {"id": batch.id, "pipeline": pipeline, "kind": batch.kind.value, "token": 1}
    row |= {"state": State.COMMITTED.value, "instant": batch.instant, "completed": batch.completed}
    row |= {"dag_id": batch.dag_id, "run_id": batch.run_id, "created": at, "changed": at, "heartbeat": at}
    row |= {"rows": sum(item.rows for item in batch.totals), "bytes": sum(item.bytes for item in batch.totals)}
    connection.execute(insert(models.transactions).values(row))
    ranges = []
    for item in batch.ranges:
        key = {"transaction_id": batch.id, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
        found = read.get(item)
        ranges.append(key | {"gap": item.gap, "rows": found and found.rows, "bytes": found and found.bytes})
    if ranges:
        connection.execute(insert(models.ranges), ranges)
    learn_density(connection, pipeline, batch.totals)
    note(connection, batch.id, "rebuilt", {"instant": batch.instant, "completed": batch.completed})
