"""Pipelines and their shards, written on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, update

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.records import LATE, LedgerShard
from airflow_provider_slshudi.ledger.upsert import upsert


def accept(connection: Connection, pipeline: str, completion: str) -> None:
    """See `Ledger.accept`."""
    table = models.pipelines
    connection.execute(update(table).where(table.c.name == pipeline).values(accepted=completion))


def save_shards(connection: Connection, pipeline: str, shards: Sequence[LedgerShard]) -> None:
    """See `Ledger.save_shards`."""
    reads.lock_pipeline(connection, pipeline)
    known = {shard.id: shard for shard in reads.shards(connection, pipeline)}
    # Where duty begins does not change once it is sure.
    sure = {id_: shard.first for id_, shard in known.items() if shard.status != LATE}
    seen = (replace(shard, first=sure.get(shard.id, shard.first)) for shard in shards)
    rows = [shard_row(pipeline, shard) for shard in seen if shard != known.get(shard.id)]
    upsert(connection, models.shards, rows, ["status", "hash_begin", "hash_end", "last_end", "first"])


def shard_row(pipeline: str, shard: LedgerShard) -> dict[str, Any]:
    """A shard's row without its bytes and rows per log group."""
    row = {"pipeline": pipeline, "shard": shard.id, "status": shard.status, "first": shard.first}
    return row | {"hash_begin": shard.hash_begin, "hash_end": shard.hash_end, "last_end": shard.end}
