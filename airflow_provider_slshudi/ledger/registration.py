"""Registration of pipelines with a ledger, and a trial of all that pipelines ask of its database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, delete, insert, inspect, or_, select, update
from sqlalchemy.exc import IntegrityError

from airflow_provider_slshudi.config.sources import is_same_or_more
from airflow_provider_slshudi.exceptions import LedgerError, PipelineConflict
from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import VERSION, now, scripts, shown, transaction, upgrade, version
from airflow_provider_slshudi.ledger.lease import end, holding, new_nonce, take
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
    pipelines = _same_name_or_table(connection, wanted)
    for other in pipelines:
        if other.name != wanted.name:
            raise PipelineConflict(
                f"table {wanted.table} belongs to pipeline {other.name}; pipeline {wanted.name} needs another table",
                pipeline=wanted.name,
                other=other.name,
            )
        same = {
            "`source`": is_same_or_more(other.source, wanted.source),
            "`table.path`": other.table == wanted.table,
        }
        if not all(same.values()):
            edited = " and ".join(field for field, is_same in same.items() if not is_same)
            raise PipelineConflict(
                f"pipeline {wanted.name} moves {other.source} into {other.table}, "
                f"not {wanted.source} into {wanted.table}. If its file was edited, put {edited} back (further "
                "logstores may follow the present ones, in source.also); a pipeline of its own needs another name",
                pipeline=wanted.name,
                other=f"{other.source} into {other.table}",
            )
    return bool(pipelines)


def _extend(connection: Connection, wanted: LedgerPipeline) -> None:
    """Keeps the source of a pipeline that got further logstores."""
    table = models.pipelines
    connection.execute(update(table).where(table.c.name == wanted.name).values(source=wanted.source))


def _same_name_or_table(connection: Connection, wanted: LedgerPipeline) -> list[LedgerPipeline]:
    table = models.pipelines
    query = select(table.c.name, table.c.source, table.c.base_path)
    same = or_(table.c.name == wanted.name, table.c.base_path == wanted.table)
    pipelines = (LedgerPipeline(*row) for row in connection.execute(query.where(same)))
    return sorted(pipelines, key=lambda other: other.name == wanted.name)


def _make_room(connection: Connection, wanted: LedgerPipeline) -> None:
    """Corrects or forgets registrations that clash and wrote nothing: a pipeline's file was corrected since."""
    others = [other for other in _same_name_or_table(connection, wanted) if other != wanted]
    for other in others:
        if (other.name, other.table) == (wanted.name, wanted.table) and is_same_or_more(other.source, wanted.source):
            _extend(connection, wanted)
            continue
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
        for source_table in (models.shards, models.sightings, models.unnamed_keys, models.partitions):
            connection.execute(delete(source_table).where(source_table.c.pipeline == wanted.name))
        forgotten = dict.fromkeys(("looked", "began", "start", "passed", "losses"))
        connection.execute(update(table).where(table.c.name == wanted.name).values(forgotten))
    if known.table != wanted.table:
        connection.execute(delete(models.timelines).where(models.timelines.c.pipeline == wanted.name))


def _forget(connection: Connection, pipeline: str) -> None:
    mine = select(models.transactions.c.id).where(models.transactions.c.pipeline == pipeline)
    for table in (models.events, models.ranges, models.packed):
        connection.execute(delete(table).where(table.c.transaction_id.in_(mine)))
    owned = (models.transactions, models.coverage, models.shards, models.leases, models.service_leases)
    beside = (models.dags, models.sightings, models.timelines, models.troubles, models.unnamed_keys)
    for table in (*owned, *beside, models.consumers, models.partitions, models.completions):
        connection.execute(delete(table).where(table.c.pipeline == pipeline))
    connection.execute(delete(models.pipelines).where(models.pipelines.c.name == pipeline))


_SECONDS = 60
_AIRFLOWS = "dag_run"


@dataclass(frozen=True)
class Versions:
    """What is in a ledger's database.

    Attributes:
        database: the database system and its version.
        tables: the version of the ledger's tables; None where there are none.
        newest: the version that this package gives them.
        known: whether this package knows the tables' version.
        airflows: whether Airflow's own tables are there, too.
        tls: whether the connection is by TLS; None for a file.
    """

    database: str
    tables: str | None
    newest: str
    known: bool
    airflows: bool
    tls: bool | None


def versions(engine: Engine) -> Versions:
    """The versions of database and tables; raises as `transaction`."""
    with transaction(engine, write=False) as connection:
        table_version, airflows = version(connection), inspect(connection).has_table(_AIRFLOWS)
        tls = _is_by_tls(connection)
        number = ".".join(map(str, connection.dialect.server_version_info or ("of unknown version",)))
    revisions = {script.revision for script in scripts().walk_revisions()}
    return Versions(
        f"{engine.dialect.name} {number}",
        table_version,
        VERSION,
        table_version is None or table_version in revisions,
        airflows,
        tls,
    )


def _is_by_tls(connection: Connection) -> bool | None:
    """Asks the client's end, or of MySQL the session: a pooler's own way to the server is another one."""
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        return bool(driver.pgconn.ssl_in_use)
    if connection.dialect.name == "mysql":
        return bool(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").one()[1])
    return None


def trial(engine: Engine) -> None:
    """Registers a pipeline, takes its lease and gives it back, and has the database forget all of that.

    Where there are no tables it makes them, which is forgotten as well; so not on MySQL, which would keep them. If
    this process dies, the database forgets by itself.

    Raises:
        LedgerUnavailable, LedgerDenied, LedgerError: as `transaction`; this user may not make tables, or not write.
    """
    try:
        with transaction(engine, write=True) as connection:
            if version(connection) is None:
                upgrade(connection)
            _lease(connection)
            raise _Forget
    except _Forget:
        return


def _lease(connection: Connection) -> None:
    name = f"slshudi-trial-{uuid4().hex}"
    register(connection, LedgerPipeline(name, name, name))
    take(connection, models.leases, name, name, _SECONDS, new_nonce(_SECONDS))
    held = holding(connection, models.leases, name)
    if held is None or not end(connection, held):
        raise LedgerError(f"ledger {shown(connection.engine.url)}: a lease that was just taken is not there")


class _Forget(Exception):
    """Rolls the transaction back."""
