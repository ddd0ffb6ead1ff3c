"""The ledger's tables, and one statement that inserts or updates many of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.types import TypeDecorator

# Names compare letter by letter on MySQL too, as they do elsewhere; but there, blanks at their ends do not count.
_MYSQL: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
PREFIX = "slshudi_"
NAME_LENGTH = 250
RUN_LENGTH = 2 * NAME_LENGTH + 1  # a DAG and its run
PATH_LENGTH = 700  # the longest text that MySQL indexes whole in utf8mb4
_BLOB = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql")


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC datetime with microseconds, also where the database keeps no zone."""

    impl = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuses naive times, whose zone would have to be guessed."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        value = value.astimezone(timezone.utc)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Adds the zone where the database keeps none: it holds UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)
# `accepted`: other clients' writes up to this time (Hudi's completion time) are known and meant to be there. `looked`
# is the service's time (unix seconds) of the newest list of shards; `folded` the place up to which `partitions` know
# what was committed; `places` the place of the newest commit; see `partition_rows`. All that the service received
# since `began` is the pipeline's, and until `passed` the partitions that no batch wrote to are among `partitions`,
# too. `start` is the file's `source.start` of then. `losses` are what was lost; see `partition_rows.Loss`.
# `announced` are numbers of completions by the asset that has events of them. `cleaned`: of instants before this one
# a clean may have deleted rows as they were before later commits changed them; NULL: none did.
pipelines = Table(
    f"{PREFIX}pipeline",
    metadata,
    Column("name", String(NAME_LENGTH), primary_key=True),
    Column("source", String(PATH_LENGTH), nullable=False),
    Column("base_path", String(PATH_LENGTH), nullable=False, unique=True),
    Column("accepted", String(32)),
    Column("looked", BigInteger),
    Column("folded", BigInteger),
    Column("places", BigInteger),
    Column("began", BigInteger),
    Column("start", String(20)),
    Column("passed", BigInteger),
    Column("losses", JSON(none_as_null=True)),
    Column("announced", JSON(none_as_null=True)),
    Column("cleaned", String(32)),
    Column("created", UtcTime, nullable=False),
    **_MYSQL,
)


def _pipeline(primary_key: bool = True) -> Column[str]:
    reference = ForeignKey(pipelines.c.name)
    return Column("pipeline", String(NAME_LENGTH), reference, primary_key=primary_key, nullable=False)


# `nonce` tells two holders of one name apart: a task and its retry; `process` tells whether the holder still lives.
def _leases(name: str) -> Table:
    return Table(
        f"{PREFIX}{name}",
        metadata,
        _pipeline(),
        Column("holder", String(NAME_LENGTH)),
        Column("nonce", String(32)),
        Column("expires", UtcTime),
        Column("process", String(NAME_LENGTH)),
        **_MYSQL,
    )


# The DAGs that have worked on a pipeline as their own; see `dags`.
dags = Table(
    f"{PREFIX}dag",
    metadata,
    # No foreign key: an older process that forgets a pipeline knows nothing of this table.
    Column("pipeline", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("dag_id", String(NAME_LENGTH), primary_key=True, nullable=False),
    **_MYSQL,
)
leases = _leases("lease")
# For the run that rewrites the table's files, which takes minutes and decides nothing.
service_leases = _leases("service_lease")
shards = Table(
    f"{PREFIX}shard",
    metadata,
    _pipeline(),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("status", String(20), nullable=False),
    Column("hash_begin", String(64), nullable=False),
    Column("hash_end", String(64), nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last_end", BigInteger),
    Column("bytes_per_group", Float),
    Column("rows_per_group", Float),
    Column("unread_since", BigInteger),
    Column("marks", JSON(none_as_null=True)),
    **_MYSQL,
)
# What a look at the service's shards told of all of them together; see `records.BacklogSample`.
sightings = Table(
    f"{PREFIX}sighting",
    metadata,
    # No foreign key: an older process that forgets a pipeline knows nothing of this table.
    Column("pipeline", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("at", UtcTime, primary_key=True, nullable=False),
    Column("came", BigInteger),
    Column("came_bytes", BigInteger),
    Column("unread", BigInteger, nullable=False),
    Column("unread_bytes", BigInteger),
    Column("unread_since", BigInteger),
    Column("kept", BigInteger),
    **_MYSQL,
)
# What a run last saw of a table's timeline; see `records.SeenTimeline`.
timelines = Table(
    f"{PREFIX}timeline",
    metadata,
    Column("pipeline", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("run", String(RUN_LENGTH), nullable=False),
    Column("oldest", String(32), nullable=False),
    Column("first", String(32), nullable=False),
    Column("instants", JSON, nullable=False),
    **_MYSQL,
)
# The failure of a step of a DAG, until that step succeeds again; also of a pipeline that is not registered yet.
troubles = Table(
    f"{PREFIX}trouble",
    metadata,
    Column("pipeline", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("dag_id", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("step", String(64), primary_key=True, nullable=False),
    Column("error", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Column("waits", Boolean, nullable=False),
    Column("run_id", String(NAME_LENGTH), nullable=False),
    Column("transaction_id", String(40)),
    Column("since", UtcTime, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("times", Integer, nullable=False),
    **_MYSQL,
)
# A key of logs that no column names, from its first sighting on; `id` is the key's SHA-256. See `records.UnnamedKey`.
unnamed_keys = Table(
    f"{PREFIX}unnamed_key",
    metadata,
    Column("pipeline", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("id", String(64), primary_key=True, nullable=False),
    Column("key", String(NAME_LENGTH), nullable=False),
    # No foreign key: the key outlives a transaction that a rebuild of the ledger forgets.
    Column("transaction_id", String(40), nullable=False),
    Column("first", UtcTime, nullable=False),
    Column("last", UtcTime, nullable=False),
    Column("logs", BigInteger, nullable=False),
    Column("looked", BigInteger, nullable=False),
    Column("examples", JSON, nullable=False),
    Column("values_until", UtcTime),
    Column("kept_in", String(NAME_LENGTH)),
    Index(None, "first"),
    **_MYSQL,
)
transactions = Table(
    f"{PREFIX}transaction",
    metadata,
    Column("id", String(40), primary_key=True),
    _pipeline(primary_key=False),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("token", Integer, nullable=False),
    Column("instant", String(32)),
    Column("dag_id", String(NAME_LENGTH), nullable=False),
    Column("run_id", String(NAME_LENGTH), nullable=False),
    Column("manifest", JSON(none_as_null=True)),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("error", Text),
    Column("created", UtcTime, nullable=False),
    Column("changed", UtcTime, nullable=False),
    Column("heartbeat", UtcTime, nullable=False),
    Column("process", String(NAME_LENGTH)),
    Column("completed", String(32)),
    Column("order_digest", String(64)),
    Column("values_until", UtcTime),
    Column("partitions", JSON(none_as_null=True)),
    Column("filter", JSON(none_as_null=True)),
    Column("place", BigInteger),
    UniqueConstraint("pipeline", "instant"),
    UniqueConstraint("pipeline", "place"),
    Index(None, "pipeline", "id"),
    Index(None, "pipeline", "state", "id"),
    Index(None, "pipeline", "completed"),
    Index(None, "pipeline", "values_until"),
    Index(None, "run_id"),
    **_MYSQL,
)


def _transaction(primary_key: bool = True) -> Column[str]:
    reference = ForeignKey(transactions.c.id)
    return Column("transaction_id", String(40), reference, primary_key=primary_key, nullable=False)


ranges = Table(
    f"{PREFIX}range",
    metadata,
    _transaction(),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("begin_cursor", BigInteger, primary_key=True, autoincrement=False),
    Column("end_cursor", BigInteger, nullable=False),
    Column("gap", Boolean, nullable=False),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("first_time", BigInteger),
    Column("last_time", BigInteger),
    Column("filtered", BigInteger),
    **_MYSQL,
)
# An old transaction's events, and its ranges but gaps, in the place of their rows; see `packing`.
packed = Table(
    f"{PREFIX}packed",
    metadata,
    _transaction(),
    Column("ranges", _BLOB, nullable=False),
    Column("events", _BLOB, nullable=False),
    **_MYSQL,
)
coverage = Table(
    f"{PREFIX}coverage",
    metadata,
    _pipeline(),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("begin_cursor", BigInteger, primary_key=True, autoincrement=False),
    Column("end_cursor", BigInteger, nullable=False),
    **_MYSQL,
)
events = Table(
    f"{PREFIX}event",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    _transaction(primary_key=False),
    Column("at", UtcTime, nullable=False),
    Column("what", String(64), nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "transaction_id", "id"),
    **_MYSQL,
)
# What people had done to a pipeline; `result` is empty until it has ended. No rebuild of the ledger forgets it.
deeds = Table(
    f"{PREFIX}deed",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("pipeline", String(NAME_LENGTH), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("act", String(64), nullable=False),
    Column("who", String(NAME_LENGTH), nullable=False),
    Column("reason", Text, nullable=False),
    Column("run", String(RUN_LENGTH), nullable=False),
    Column("transaction_id", String(40)),
    Column("result", Text),
    Column("about", JSON(none_as_null=True)),
    Index(None, "pipeline", "id"),
    **_MYSQL,
)


# Who computes on the table next, and how far that consumer has come; see `records.Consumer`.
consumers = Table(
    f"{PREFIX}consumer",
    metadata,
    _pipeline(),
    Column("name", String(NAME_LENGTH), primary_key=True, nullable=False),
    Column("of", String(16), nullable=False),
    Column("confirmed", BigInteger, nullable=False),
    Column("taken", BigInteger),
    Column("nonce", String(32)),
    Column("taker", String(RUN_LENGTH + NAME_LENGTH)),
    Column("process", String(NAME_LENGTH)),
    Column("hold", Integer, nullable=False),
    Column("created", UtcTime, nullable=False),
    Column("changed", UtcTime, nullable=False),
    **_MYSQL,
)
# A partition of event times; see `records.PartitionRow`.
partitions = Table(
    f"{PREFIX}partition",
    metadata,
    _pipeline(),
    Column("value", String(32), primary_key=True, nullable=False),
    Column("begin", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("commits", Integer, nullable=False),
    Column("times", Integer, nullable=False),
    Column("gaps", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("opened", BigInteger, nullable=False),
    Column("completed", UtcTime),
    Index(None, "pipeline", "state"),
    Index(None, "pipeline", "begin"),
    **_MYSQL,
)
# Each time that a partition became complete, in this order; see `records.Completion`.
completions = Table(
    f"{PREFIX}completion",
    metadata,
    _pipeline(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("value", String(32), nullable=False),
    Column("times", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("gaps", Integer, nullable=False),
    Column("watermark", BigInteger, nullable=False),
    Column("proof", _BLOB, nullable=False),
    Column("at", UtcTime, nullable=False),
    Index(None, "pipeline", "value", "number"),
    **_MYSQL,
)


def columns(table: Table, record: type[Any]) -> list[ColumnElement[Any]]:
    """The table's columns in the order of a record's fields; `transaction` is kept as `transaction_id`."""
    names = (field.name for field in fields(record))
    return [table.c[name] if name in table.c else table.c[f"{name}_id"].label(name) for name in names]


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Sequence[str]) -> None:
    """Inserts whole `rows`; where a row of the same primary key is there, its columns `changes` are set instead.

    Drivers send the rows together; an UPDATE per row would cost MySQL a round trip for each.

    Args:
        connection: of a writing transaction.
        table: one of `models`.
        rows: whole rows, by column.
        changes: names of the columns to set.
    """
    if not rows:
        return
    if connection.dialect.name == "mysql":
        added = mysql.insert(table)
        connection.execute(added.on_duplicate_key_update({name: added.inserted[name] for name in changes}), rows)
        return
    insert = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    excluded = {name: insert.excluded[name] for name in changes}
    connection.execute(insert.on_conflict_do_update(index_elements=table.primary_key.columns, set_=excluded), rows)
