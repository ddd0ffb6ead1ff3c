"""Pipelines and their shards, written on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import LedgerPipeline, LedgerShard
from airflow_provider_slshudi.ledger.upsert import upsert


def register(connection: Connection, wanted: LedgerPipeline) -> None:
    """See `Ledger.register`."""
    lengths = {"name": models.NAME_LENGTH, "source": models.PATH_LENGTH, "table": models.PATH_LENGTH}
    for field, longest in lengths.items():
        value = getattr(wanted, field)
        if not 0 < len(value) <= longest:
            raise LedgerError(
                f"pipeline {wanted.name!r}: its {field} has {len(value)} characters, 1 to {longest} are allowed",
                pipeline=wanted.name,
            )
    if _is_registered(connection, wanted):
        return
    try:
        with connection.begin_nested():
            row = {"name": wanted.name, "source": wanted.source, "base_path": wanted.table}
            connection.execute(insert(models.pipelines).values(**row, created=now(connection)))
            for table in (models.leases, models.service_leases):
                connection.execute(insert(table).values(pipeline=wanted.name))
    except IntegrityError:  # somebody registered in between
        if not _is_registered(connection, wanted):
            raise


def _is_registered(connection: Connection, wanted: LedgerPipeline) -> bool:
    table = models.pipelines
    query = select(table.c.name, table.c.source, table.c.base_path)
    same = or_(table.c.name == wanted.name, table.c.base_path == wanted.table)
    found = [LedgerPipeline(*row) for row in connection.execute(query.where(same))]
    for other in found:
        if other.name != wanted.name:
            raise PipelineConflict(
                f"table {wanted.table} belongs to pipeline {other.name}; pipeline {wanted.name} needs another table",
                pipeline=wanted.name,
                other=other.name,
            )
        if other != wanted:
            raise PipelineConflict(
                f"pipeline {wanted.name} moves {other.source} into {other.table}, "
                f"not {wanted.source} into {wanted.table}; give the new one another name",
                pipeline=wanted.name,
                other=f"{other.source} into {other.table}",
            )
    return bool(found)


def accept(connection: Connection, pipeline: str, completion: str) -> None:
    """See `Ledger.accept`."""
    table = models.pipelines
    connection.execute(update(table).where(table.c.name == pipeline).values(accepted=completion))


def save_shards(connection: Connection, pipeline: str, shards: Sequence[LedgerShard]) -> None:
    """See `Ledger.save_shards`."""
    reads.lock_pipeline(connection, pipeline)
    known = {shard.id: shard for shard in reads.shards(connection, pipeline)}
    rows = [
        shard_row(pipeline, shard)
        for shard in shards
        if shard.id not in known or replace(shard, first=known[shard.id].first) != known[shard.id]
    ]
    upsert(connection, models.shards, rows, ["status", "hash_begin", "hash_end"])


def shard_row(pipeline: str, shard: LedgerShard) -> dict[str, Any]:
    """A shard's row but for its figures."""
    row = {"pipeline": pipeline, "shard": shard.id, "status": shard.status, "first": shard.first}
    return row | {"hash_begin": shard.hash_begin, "hash_end": shard.hash_end}
