"""Pipelines and their shards, written on a connection."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import LedgerPipeline, LedgerShard


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
            connection.execute(insert(models.leases).values(pipeline=wanted.name))
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
    new, changed = [], []
    for shard in shards:
        row = {"status": shard.status, "hash_begin": shard.hash_begin, "hash_end": shard.hash_end}
        stored = known.get(shard.id)
        if stored is None:
            new.append({"pipeline": pipeline, "shard": shard.id, "first": shard.first} | row)
        elif any(getattr(stored, field) != value for field, value in row.items()):
            changed.append({"of_pipeline": pipeline, "of_shard": shard.id} | row)
    table = models.shards
    if new:
        connection.execute(insert(table), new)
    if changed:
        same = (table.c.pipeline == bindparam("of_pipeline"), table.c.shard == bindparam("of_shard"))
        # Columns that are not named here are set from the rows.
        connection.execute(update(table).where(*same), changed)
