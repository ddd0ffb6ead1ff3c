"""Registers which name, source and table belong together, on a connection."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import LedgerPipeline
from airflow_provider_slshudi.ledger.transactions import aborted, take_over


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
    _make_room(connection, wanted)
    if _is_registered(connection, wanted):
        return
    try:
        with connection.begin_nested():
            row = {"name": wanted.name, "source": wanted.source, "base_path": wanted.table}
            connection.execute(insert(models.pipelines).values(**row, created=now(connection)))
            for table in (models.leases, models.service_leases):
                connection.execute(insert(table).values(pipeline=wanted.name))
    except IntegrityError:  # another process registered in between
        if not _is_registered(connection, wanted):
            raise


def require(connection: Connection, wanted: LedgerPipeline) -> None:
    """See `Ledger.require`."""
    if not _is_registered(connection, wanted):
        raise LedgerError(f"the ledger knows no pipeline {wanted.name}", pipeline=wanted.name)


def _is_registered(connection: Connection, wanted: LedgerPipeline) -> bool:
    found = _same_name_or_table(connection, wanted)
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
                f"not {wanted.source} into {wanted.table}; put these back into its file, or give it another name",
                pipeline=wanted.name,
                other=f"{other.source} into {other.table}",
            )
    return bool(found)


def _same_name_or_table(connection: Connection, wanted: LedgerPipeline) -> list[LedgerPipeline]:
    table = models.pipelines
    query = select(table.c.name, table.c.source, table.c.base_path)
    same = or_(table.c.name == wanted.name, table.c.base_path == wanted.table)
    found = (LedgerPipeline(*row) for row in connection.execute(query.where(same)))
    return sorted(found, key=lambda other: other.name == wanted.name)


def _make_room(connection: Connection, wanted: LedgerPipeline) -> None:
    """Corrects or forgets registrations that clash and wrote nothing: a pipeline's file was corrected since."""
    others = [other for other in _same_name_or_table(connection, wanted) if other != wanted]
    for other in others:
        reads.lock_pipeline(connection, other.name)
        if reads.has_written(connection, other.name):
            return
        if other.name == wanted.name:
            _correct(connection, other, wanted)
        elif reads.live(connection, other.name):
            return
        else:
            _forget(connection, other.name)


def _correct(connection: Connection, known: LedgerPipeline, wanted: LedgerPipeline) -> None:
    table = models.pipelines
    values = {"source": wanted.source, "base_path": wanted.table}
    connection.execute(update(table).where(table.c.name == wanted.name).values(values))
    for planned in reads.live(connection, wanted.name):
        taken = take_over(connection, planned.id)
        aborted(connection, taken.id, taken.token, f"it was to move {known.source} into {known.table}")
    if known.source != wanted.source:
        for seen in (models.shards, models.sightings, models.unnamed_keys):
            connection.execute(delete(seen).where(seen.c.pipeline == wanted.name))
    if known.table != wanted.table:
        connection.execute(delete(models.timelines).where(models.timelines.c.pipeline == wanted.name))


def _forget(connection: Connection, pipeline: str) -> None:
    mine = select(models.transactions.c.id).where(models.transactions.c.pipeline == pipeline)
    for table in (models.events, models.ranges, models.packed):
        connection.execute(delete(table).where(table.c.transaction_id.in_(mine)))
    owned = (models.transactions, models.coverage, models.shards, models.leases, models.service_leases)
    for table in (*owned, models.dags, models.sightings, models.timelines, models.troubles, models.unnamed_keys):
        connection.execute(delete(table).where(table.c.pipeline == pipeline))
    connection.execute(delete(models.pipelines).where(models.pipelines.c.name == pipeline))
