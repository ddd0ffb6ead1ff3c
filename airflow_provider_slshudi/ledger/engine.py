"""The way to the ledger's database: engines, SQL transactions, the clock, and the schema's migrations."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, func, make_url, select, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from airflow_provider_slshudi.exceptions import (
    ConfigError,
    LedgerDenied,
    LedgerEmpty,
    LedgerError,
    LedgerUnavailable,
    RuntimeMissing,
)
from airflow_provider_slshudi.ledger.models import PREFIX
from airflow_provider_slshudi.storage import owners

VERSION_TABLE = f"{PREFIX}alembic_version"

_WRITE = "slshudi_write"
_FILE = "slshudi_file"
_USED = "slshudi_used"
_TARGET = "target_session_attrs"
_WRITER = "read-write"
_READ_ONLY = "25006"
_MIGRATION_LOCK = int.from_bytes(b"slshudi", "big")
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 20
_STATEMENT_SECONDS = 30
_LOOK_SECONDS = 60
# So long a migration waits for others.
_MIGRATION_SECONDS = 60
# Longer than any limit that the server keeps itself, a migration's lock included.
_ANSWER_SECONDS = 90
# MySQL knows no limit on an idle transaction alone: an idle connection of the pool is closed too, and made again. A
# server that is not strict cuts texts that are too long, and says nothing.
_MYSQL_SESSION = (
    f"SET SESSION wait_timeout = {_STATEMENT_SECONDS}, innodb_lock_wait_timeout = {_LOCK_SECONDS}, "
    f"lock_wait_timeout = {_MIGRATION_SECONDS}, sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')"
)
# MySQL's driver has one type for servers that are gone and for statements that no server would take: what is there
# already, is not there, may not be done. https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_MYSQL_REFUSES = {1050, 1054, 1060, 1061, 1064, 1091, 1142, 1143, 1227, 1364}
# Numbers in MySQL, words in newer MariaDB.
_OFF = {"0", "OFF"}
_LIMITS = "; ".join(
    f"SET LOCAL {name} = '{seconds}s'"
    for name, seconds in (
        ("statement_timeout", _STATEMENT_SECONDS),
        ("lock_timeout", _LOCK_SECONDS),
        ("idle_in_transaction_session_timeout", _STATEMENT_SECONDS),
    )
)
VERSION = "0001"
"""Of the tables that this package reads and writes: what a process began with, also after an upgrade."""
_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
}


def open_engine(url: str | URL, writes: bool = True) -> Engine:
    """The engine for a ledger at an SQLAlchemy URL; nothing is connected yet.

    Without `writes` a server does that takes no changes, where none is found that takes them.

    SQLite waits for other writers and writes in WAL mode; PostgreSQL (psycopg 3) and MySQL read committed data,
    with time limits on connecting, locks, answers and idle transactions, and on PostgreSQL on statements.

    Raises:
        ConfigError: the URL is invalid, names no file, or names another database than these three.
        RuntimeMissing: the database's driver is not installed.
    """
    target = _parse(url)
    backend = target.get_backend_name()
    options: dict[str, Any] = {"hide_parameters": True, "pool_pre_ping": backend != "sqlite"}
    if backend == "sqlite":
        options["connect_args"] = {"timeout": _LOCK_SECONDS}
    else:
        options |= {"isolation_level": "READ COMMITTED", "connect_args": {"connect_timeout": _CONNECT_SECONDS}}
        if not writes:
            # So long a look may last at a replica that lags.
            options["pool_recycle"] = _LOOK_SECONDS
    if backend == "postgresql":
        # A pooler lends its sessions by the transaction: what one prepared, another finds there, or does not.
        options["connect_args"] |= {"prepare_threshold": None}
        # A host that vanished without closing is noticed within about half a minute.
        options["connect_args"] |= {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
        options["connect_args"] |= {"tcp_user_timeout": _STATEMENT_SECONDS * 1000}
        if writes and _TARGET not in target.query:
            # Of several hosts the one that writes; a replica that is not promoted yet does not answer.
            options["connect_args"][_TARGET] = _WRITER
    elif backend == "mysql":
        options["connect_args"] |= {
            "read_timeout": _ANSWER_SECONDS,
            "write_timeout": _ANSWER_SECONDS,
            "init_command": _MYSQL_SESSION,
        }
    try:
        engine = create_engine(target, **options)
    except ModuleNotFoundError as error:
        raise RuntimeMissing(
            f"the ledger {shown(target)} needs the Python module {error.name!r}: install that driver; it comes with "
            "`pip install 'airflow-provider-slshudi[postgres]'`, or `[mysql]`"
        ) from error
    _listen(engine, writes)
    return engine


def _listen(engine: Engine, writes: bool) -> None:
    backend = engine.dialect.name
    if backend == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "checkout", _require_file)
        event.listen(engine, "begin", _begin_sqlite)
    elif backend == "postgresql":
        event.listen(engine, "connect", _set_up_postgresql)
        event.listen(engine, "begin", _limit_postgresql)
        event.listen(engine, "handle_error", _leave_replica)
        if not writes and _TARGET not in engine.url.query and _has_several_hosts(engine.url):
            event.listen(engine, "do_connect", _find_writer)
    elif backend == "mysql":
        event.listen(engine, "handle_error", _leave_replica)
        if writes:
            event.listen(engine, "checkout", _leave_mysql_replica)


def _parse(url: str | URL) -> URL:
    try:
        target = make_url(url)
        driver = target.drivername
        if driver in _DRIVERS:
            target = target.set(drivername=_DRIVERS[driver])
        elif driver.partition("+")[0] not in _DRIVERS:
            raise NoSuchModuleError
        target.get_dialect()
    except ModuleNotFoundError:
        return target  # create_engine says which one
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Without the text, which may hold a password, and without the cause, which may quote it.
        raise ConfigError(
            "the ledger's URL is no SQLAlchemy URL of SQLite, PostgreSQL or MySQL; "
            "expected one like sqlite:////var/lib/ledger.db or postgresql://user:password@host/database",
            source="ledger",
            field="url",
        ) from None
    if target.get_backend_name() == "sqlite" and target.database in (None, "", ":memory:"):
        raise ConfigError(
            "a ledger in memory forgets what was committed; name a file, like sqlite:////var/lib/ledger.db",
            source="ledger",
            field="url",
            value=shown(target),
        )
    return target


def shown(url: URL) -> str:
    """A ledger's URL without its password."""
    return URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database).render_as_string()


def _set_up_sqlite(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # SQLAlchemy's `begin` event opens transactions, see below
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _write_ahead(connection)
    connection.execute("PRAGMA foreign_keys=ON")
    record.info[_FILE] = _file_of(connection)


def _write_ahead(connection: sqlite3.Connection) -> None:
    # SQLite does not wait when two connections change a file's mode at once: it refuses one immediately.
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0.02)


def _file_of(connection: sqlite3.Connection) -> tuple[int, int] | None:
    try:
        file_stat = Path(connection.execute("PRAGMA database_list").fetchone()[2]).stat()
    except FileNotFoundError:
        return None
    return file_stat.st_dev, file_stat.st_ino


def _require_file(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
    # SQLite goes on in a file that was deleted or replaced, and no other process would ever see what it writes there.
    if _file_of(connection) != record.info[_FILE]:
        raise DisconnectionError("the ledger's file was deleted or replaced")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes then would fail when another one wrote in between.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _set_up_postgresql(connection: Any, _: object) -> None:
    wait = connection.wait
    connection.wait = lambda exchange, *args, **options: wait(_in_time(connection, exchange), *args, **options)


def _limit_postgresql(connection: Connection) -> None:
    """Sets limits for a transaction alone: behind a pooler the next one may have another session of the server."""
    connection.connection.driver_connection.execute(_LIMITS)  # type: ignore[union-attr]


def _has_several_hosts(target: URL) -> bool:
    hosts = target.query.get("host", target.host or "")
    return not isinstance(hosts, str) or "," in hosts


def _find_writer(dialect: Any, _: object, arguments: list[Any], options: dict[str, Any]) -> Any:
    """A connection to the host that writes; None if there is none, so that SQLAlchemy takes any that answers."""
    try:
        return dialect.connect(*arguments, **{**options, _TARGET: _WRITER})
    except dialect.dbapi.OperationalError:
        return None


def _leave_replica(context: ExceptionContext) -> None:
    """A server that takes no changes any more is another's replica: the next connection finds the one that does."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _leave_mysql_replica(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
    """MySQL's driver does not ask whether a server is a replica, and one that becomes so keeps its connections."""
    was_used = record.info.get(_USED, False)
    record.info[_USED] = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only")
        if _OFF.issuperset(map(str, cursor.fetchone())):
            return
    text = "it is read-only: a replica, which knows less than the server that writes"
    # The pool tries a connection once more where a used one is of no use.
    raise DisconnectionError(text) if was_used else connection.OperationalError(text)


def _in_time(connection: Any, exchange: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Ends a connection that gives no answer: a stopped server, or a proxy, keeps it alive and says nothing."""
    from psycopg import OperationalError as OperationalFault

    until = time.monotonic() + _ANSWER_SECONDS
    try:
        wait_event = next(exchange)
        while True:
            ready = yield wait_event
            if not ready and time.monotonic() > until:
                # Half an exchange is no state to go on from.
                connection.pgconn.finish()
                raise OperationalFault(f"no answer within {_ANSWER_SECONDS:.0f} s")
            wait_event = exchange.send(ready)
    except StopIteration as end:
        return end.value


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """One SQL transaction: committed at the end of the block, rolled back when it raises.

    Raises:
        LedgerUnavailable: the database did not answer, or not in time.
        LedgerDenied: this process's user may not use SQLite's file, one beside it, or their folder.
        LedgerError: the database refused: its tables are missing, or a value does not fit.
    """
    try:
        with engine.connect().execution_options(**{_WRITE: write}) as connection, connection.begin():
            yield connection
    except PoolTimeout as error:
        raise LedgerUnavailable(f"ledger {shown(engine.url)}: all its connections are in use") from error
    except DBAPIError as error:
        where, reason = shown(engine.url), str(error.orig).strip()
        if _is_missing_table(error):
            raise LedgerError(f"ledger {where} has no tables: migrate it first ({reason})") from error
        if engine.dialect.name == "sqlite" and isinstance(error, OperationalError) and "locked" not in reason:
            require_files(engine.url)
        is_fault = isinstance(error, (OperationalError, InterfaceError, InternalError)) and not _is_refused(error)
        if is_fault or error.connection_invalidated:
            raise LedgerUnavailable(f"ledger {where} did not answer: {reason}") from error
        raise LedgerError(f"ledger {where} refused: {reason}") from error


def require_files(url: URL) -> None:
    """Checks that this process's user may use SQLite's file, those beside it, and their folder.

    Raises:
        LedgerDenied: one of them refuses.
    """
    file = Path(url.database or "")
    needed = {file.with_name(file.name + suffix): os.R_OK | os.W_OK for suffix in ("", "-wal", "-shm")}
    for path, how in {file.parent: os.W_OK | os.X_OK, **needed}.items():
        is_present = os.path.lexists(path)
        checked_path = str(path) if is_present else owners.refusing(path)[0]
        if not owners.may(checked_path, how if is_present else os.X_OK):
            owner, user = owners.name_of(Path(checked_path).stat().st_uid), owners.this_user()
            raise LedgerDenied(
                f"ledger {shown(url)}: {checked_path} belongs to {owner}; this process runs as {user}, who may not "
                f"write to it. Give it to the user that runs the pipelines (`chown`), or run this as {owner}",
                path=checked_path,
                owner=owner,
                user=user,
            )


def _is_missing_table(error: DBAPIError) -> bool:
    orig = error.orig
    state, args = getattr(orig, "sqlstate", None), getattr(orig, "args", ())
    return state == "42P01" or args[:1] == (1146,) or "no such table" in str(orig)


def _is_refused(error: DBAPIError) -> bool:
    return not _MYSQL_REFUSES.isdisjoint(getattr(error.orig, "args", ())[:1])


def now(connection: Connection) -> datetime:
    """The time (UTC) of the clock that heartbeats, events and leases use."""
    if connection.dialect.name == "sqlite":
        return datetime.now(timezone.utc)
    clock = func.utc_timestamp(6) if connection.dialect.name == "mysql" else func.clock_timestamp()
    value: datetime = connection.execute(select(clock)).scalar_one()
    return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


def migrate(engine: Engine) -> None:
    """Brings the ledger's tables to this package's version; does nothing if they have it.

    Several processes may do so at once.

    Raises:
        LedgerUnavailable: as `transaction`.
        LedgerError: the tables are of a newer version than this package.
    """
    with transaction(engine, write=False) as connection:
        stored_version = version(connection)
    if stored_version == VERSION:
        return
    with transaction(engine, write=True) as connection:
        upgrade(connection)


def require_version(engine: Engine) -> None:
    """Checks that the tables are of this package's version, and makes nothing, also no SQLite file.

    Raises:
        LedgerUnavailable: as `transaction`.
        LedgerEmpty: there are no tables.
        LedgerError: they are of another version.
    """
    stored_version, own_version = None, VERSION
    if engine.dialect.name != "sqlite" or Path(engine.url.database or "").exists():
        with transaction(engine, write=False) as connection:
            stored_version = version(connection)
    if stored_version is None:
        raise LedgerEmpty(f"ledger {shown(engine.url)} has no tables yet: the first run of a pipeline makes them")
    if stored_version != own_version:
        raise LedgerError(
            f"ledger {shown(engine.url)} has tables of version {stored_version}, and this package reads version "
            f"{own_version}: the next run of a pipeline brings them there, unless they are newer"
        )


def version(connection: Connection) -> str | None:
    """The version of the ledger's tables; None where there are none."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def scripts() -> ScriptDirectory:
    """The versions that this package knows."""
    return ScriptDirectory.from_config(_config())


def upgrade(connection: Connection) -> None:
    """Brings the tables to this package's version, as part of a writing `transaction`; MySQL keeps it in any case.

    Raises:
        LedgerError: the tables are of a newer version than this package.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'"))
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    config = _config()
    config.attributes["connection"] = connection
    try:
        with _alone(connection):
            command.upgrade(config, "head")
    except CommandError as error:
        raise LedgerError(
            f"ledger {shown(connection.engine.url)} has version {version(connection)}, which this package does not "
            "know: install the version of airflow-provider-slshudi that wrote it, or a newer one"
        ) from error
    if (stored_version := version(connection)) != VERSION:
        raise LedgerError(
            f"ledger {shown(connection.engine.url)} has version {stored_version}, and this process began before "
            f"airflow-provider-slshudi was upgraded, with version {VERSION}: start Airflow's scheduler again"
        )


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Keeps other processes from migrating on MySQL, whose DDL ends transactions and their locks."""
    if connection.dialect.name != "mysql":
        yield
        return
    name = f"slshudi-migrate-{connection.engine.url.database}"[:64]
    lock_request = {"name": name, "seconds": _MIGRATION_SECONDS}
    if connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), lock_request).scalar_one() != 1:
        raise LedgerUnavailable(
            f"ledger {shown(connection.engine.url)}: another process has migrated it for {_MIGRATION_SECONDS} s"
        )
    try:
        yield
        # The next process reads the version that is committed.
        connection.exec_driver_sql("COMMIT")
    finally:
        # With a connection its locks end.
        if not connection.invalidated:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
