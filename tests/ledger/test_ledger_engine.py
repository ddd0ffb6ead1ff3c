"""Reaching a ledger's database: URLs, faults, secrets, and the schema's versions."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import sqlite3
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.schema import CreateIndex, CreateTable

from airflow_provider_slshudi.exceptions import ConfigError, LedgerError, LedgerUnavailable, RuntimeMissing
from airflow_provider_slshudi.ledger import engine as ledger_engine
from airflow_provider_slshudi.ledger.engine import (
    VERSION_TABLE,
    migrate,
    now,
    open_engine,
    require_version,
    transaction,
)
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.models import metadata
from tests.databases import MariadbServer
from tests.users import NOBODY, open_folder, run_as

PASSWORD = "s3cret-word"
USE = """
import sys
from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
try:
    Ledger(open_engine(f"sqlite:///{sys.argv[1]}")).register("ads", "sls://shop/ads", "file:///lake/ads")
    print("written")
except SlsHudiError as error:
    print(type(error).__name__, *(vars(error).get(name) for name in ("path", "owner", "user")), error, sep="\\n")
"""


@pytest.mark.parametrize(
    "url",
    [
        "no url",
        "",
        f"oracle://me:{PASSWORD}@host/db",
        f"postgresql+nothing://me:{PASSWORD}@host/db",
        f"postgresql://me:{PASSWORD}@host:port/db",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine(url)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert (caught.value.source, caught.value.field) == ("ledger", "url")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="name a file"):
        open_engine(url)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(RuntimeMissing, match="pymysql"):
        open_engine(f"mysql://me:{PASSWORD}@host/db")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_is_reached_by_psycopg_whatever_the_scheme(scheme: str) -> None:
    assert open_engine(f"{scheme}://me@host/db").driver == "psycopg"


def test_an_unreachable_server_is_unavailable_and_its_password_stays_hidden() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        port = taken.getsockname()[1]
        ledger = Ledger(open_engine(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/db"))
        with pytest.raises(LedgerUnavailable, match=f"postgresql://me@127.0.0.1:{port}/db") as caught:
            ledger.pipelines()
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_missing_directory_is_unavailable_and_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="nowhere/ledger"):
        Ledger(open_engine(f"sqlite:///{tmp_path}/nowhere/ledger.db")).pipelines()


@pytest.mark.parametrize("refusing", ["ledger.db", "ledger.db-wal", "."])
def test_a_file_that_this_user_may_not_write_is_named_with_its_owner(refusing: str, sqlite_template: Path) -> None:
    with open_folder() as place:
        file = place / "ledger.db"
        file.write_bytes(sqlite_template.read_bytes())
        file.chmod(0o666)
        if refusing == "ledger.db-wal":
            (place / refusing).touch()
        path = (place / refusing).resolve()
        path.chmod(0o555 if refusing == "." else 0o444)
        kind, named, owner, user, said = run_as(NOBODY, USE, file).splitlines()
        path.chmod(0o777)
    assert (kind, named, owner) == ("LedgerDenied", str(path), path_owner := Path("/proc/self").owner()), said
    assert user == ("nobody" if os.geteuid() == 0 else path_owner)
    assert str(path) in said and f"belongs to {owner}" in said and f"runs as {user}" in said


def test_what_root_does_in_the_ledger_of_another_user_does_not_lock_that_user_out(sqlite_template: Path) -> None:
    with open_folder() as place:
        file = place / "ledger.db"
        file.write_bytes(sqlite_template.read_bytes())
        if os.geteuid() == 0:
            os.chown(file, NOBODY, NOBODY)
        ledger = Ledger(open_engine(f"sqlite:///{file}"))
        ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
        assert run_as(NOBODY, USE, file).strip() == "written"


def test_values_stay_out_of_errors(engine: Engine) -> None:
    ledger = Ledger(engine)
    ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
    with pytest.raises(LedgerError) as caught, transaction(engine, write=True) as connection:
        connection.execute(metadata.tables["slshudi_lease"].insert().values(pipeline="nobody", holder=PASSWORD))
    assert not isinstance(caught.value, LedgerUnavailable)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_ledger_that_was_never_migrated_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="migrate it first"):
        Ledger(open_engine(f"sqlite:///{tmp_path}/ledger.db")).pipelines()


def test_a_writer_that_finds_the_database_locked_is_told_after_a_while(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.ledger.engine._LOCK_SECONDS", 0.2)
    path = tmp_path / "ledger.db"
    path.write_bytes(sqlite_template.read_bytes())
    ledger = Ledger(open_engine(f"sqlite:///{path}"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked"):
        ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
    assert ledger.pipelines() == []  # readers do not wait for writers
    other.rollback()
    ledger.register("clicks", "sls://shop/clicks", "file:///lake/clicks")
    other.close()


def test_a_server_that_ends_the_connection_is_unavailable_and_then_reached_again(postgres_engine: Engine) -> None:
    end = text("SELECT pg_terminate_backend(:pid)")
    with pytest.raises(LedgerUnavailable), transaction(postgres_engine, write=True) as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        with postgres_engine.connect() as other:
            assert other.scalar(end, {"pid": pid})
        now(connection)

    with postgres_engine.connect() as idle, postgres_engine.connect() as other:
        pid = idle.scalar(text("SELECT pg_backend_pid()"))
        idle.rollback()
        idle.close()  # back into the pool, where it dies
        assert other.scalar(end, {"pid": pid})
    for _ in range(2):  # whichever connection the pool gives
        assert isinstance(Ledger(postgres_engine).pipelines(), list)


@pytest.mark.parametrize(
    ("server", "own", "forbid", "told"),
    [
        ("postgres_engine", "pg_backend_pid()", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "read-only"),
        ("mariadb_engine", "connection_id()", "SET SESSION TRANSACTION READ ONLY", "READ ONLY"),
    ],
    ids=["postgresql", "mysql"],
)
def test_a_server_that_takes_no_changes_any_more_is_left_for_one_that_does(
    server: str, own: str, forbid: str, told: str, request: pytest.FixtureRequest
) -> None:
    """As an old primary goes on as a replica of the new one, and keeps its connections."""
    engine = open_engine(request.getfixturevalue(server).url.render_as_string(hide_password=False))

    def session() -> int:
        with transaction(engine, write=False) as connection:
            return int(connection.execute(text(f"SELECT {own}")).scalar_one())

    first = session()
    with transaction(engine, write=False) as connection:
        connection.execute(text(forbid))
    with pytest.raises(LedgerUnavailable, match=told), transaction(engine, write=True) as connection:
        connection.execute(text("CREATE TABLE slshudi_nothing (id int)"))
    assert session() != first
    engine.dispose()


class _Fault(Exception):
    """Of a driver's."""


class _Mysql:
    """A connection to a server with these variables."""

    OperationalError = _Fault

    def __init__(self, **variables: object) -> None:
        self._variables = {"read_only": 0, "innodb_read_only": 0, **variables}
        self._asked: list[str] = []

    @contextmanager
    def cursor(self) -> Iterator[_Mysql]:
        yield self

    def execute(self, query: str) -> None:
        self._asked = re.findall(r"@@GLOBAL\.(\w+)", query)

    def fetchone(self) -> list[object]:
        return [self._variables[name] for name in self._asked]


@pytest.mark.parametrize("variable", ["read_only", "innodb_read_only"])
@pytest.mark.parametrize(("on", "off"), [(1, 0), ("ON", "OFF"), ("NO_LOCK_NO_ADMIN", "OFF")])
def test_mysql_says_in_numbers_or_words_that_it_takes_no_changes(variable: str, on: object, off: object) -> None:
    record: Any = SimpleNamespace(info={})
    # A new session is refused, a used one is left for a new one.
    for error in (_Fault, DisconnectionError):
        with pytest.raises(error, match="knows less"):
            ledger_engine._leave_mysql_replica(_Mysql(**{variable: on}), record, None)
    ledger_engine._leave_mysql_replica(_Mysql(**{variable: off}), record, None)


def test_a_process_that_is_older_than_the_installed_package_does_not_write(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a scheduler that was not started again after an upgrade."""
    monkeypatch.setattr(ledger_engine, "VERSION", "0000")
    with pytest.raises(LedgerError, match="start Airflow's scheduler again"):
        migrate(engine)


def test_a_look_is_answered_by_a_replica_that_takes_no_changes(postgres_engine: Engine) -> None:
    url = postgres_engine.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    told = url.render_as_string(hide_password=False)
    looking, writing = open_engine(told, writes=False), open_engine(told)
    require_version(looking)
    with pytest.raises(LedgerUnavailable, match="read-only"):
        require_version(writing)
    for engine in (looking, writing):
        engine.dispose()


def test_models_and_migrations_agree(engine: Engine) -> None:
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_models_are_legal_on_mysql() -> None:
    for table in metadata.sorted_tables:
        assert "utf8mb4_bin" in str(CreateTable(table).compile(dialect=mysql.dialect()))
        for index in table.indexes:
            length = sum(4 * getattr(column.type, "length", 8) for column in index.columns)
            assert length <= 3072, f"{index.name}: InnoDB's longest key has 3072 bytes"
            assert str(CreateIndex(index).compile(dialect=mysql.dialect()))


def test_migrating_again_changes_nothing_and_takes_no_lock(engine: Engine) -> None:
    statements: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", listen)
    try:
        migrate(engine)
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    assert not [text for text in statements if text.split()[0] in ("CREATE", "INSERT", "UPDATE", "ALTER")]
    assert not any("IMMEDIATE" in text or "advisory" in text for text in statements)


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(sqlite_template.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608 - a constant
    with pytest.raises(LedgerError, match="9999"):
        migrate(open_engine(f"sqlite:///{path}"))


@pytest.fixture
def fresh_mariadb(mariadb: MariadbServer) -> Iterator[Engine]:
    """An empty database on a server that is not strict."""
    made = [f"{verb} slshudi_fresh" for verb in ("DROP DATABASE IF EXISTS", "CREATE DATABASE")]
    mariadb.execute(*made, "SET GLOBAL sql_mode = ''")
    engine = open_engine(make_url(mariadb.url).set(database="slshudi_fresh").render_as_string(hide_password=False))
    yield engine
    engine.dispose()
    mariadb.execute("SET GLOBAL sql_mode = DEFAULT")


class _Killed(BaseException):
    """The process ends."""


@pytest.mark.long
def test_a_migration_on_mysql_that_is_killed_at_any_statement_is_ended_by_the_next(fresh_mariadb: Engine) -> None:
    left, done = 0, list[str]()

    def kill(_: Connection, __: object, statement: str, *rest: object) -> None:
        nonlocal left
        if statement.split()[0] in ("CREATE", "ALTER", "INSERT", "UPDATE", "COMMIT"):
            left -= 1
            if left == 0:
                raise _Killed
            done.append(statement)

    def empty() -> None:
        with fresh_mariadb.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("DROP DATABASE slshudi_fresh"))
            connection.execute(text("CREATE DATABASE slshudi_fresh"))
        fresh_mariadb.dispose()

    event.listen(fresh_mariadb, "before_cursor_execute", kill)
    migrate(fresh_mariadb)
    total = len(done)
    assert total > 20
    for number in range(1, total + 1):
        empty()
        left = number
        with pytest.raises(_Killed):
            migrate(fresh_mariadb)
        fresh_mariadb.dispose()
        migrate(fresh_mariadb)
        with fresh_mariadb.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            found = compare_metadata(context, metadata)
        assert found == [], f"killed at {number} of {total}"


def test_mysql_cuts_no_text_and_waits_for_nobody_for_long(fresh_mariadb: Engine) -> None:
    migrate(fresh_mariadb)
    with fresh_mariadb.connect() as connection:
        strict, idle = connection.execute(text("SELECT @@SESSION.sql_mode, @@SESSION.wait_timeout")).one()
    assert "STRICT_TRANS_TABLES" in strict and idle == 30
    with pytest.raises(LedgerError, match="too long"), transaction(fresh_mariadb, write=True) as connection:
        connection.execute(text("INSERT INTO slshudi_service_lease (pipeline, nonce) VALUES ('a', REPEAT('b', 33))"))


def test_what_mysql_will_never_take_is_no_fault_that_passes(fresh_mariadb: Engine) -> None:
    migrate(fresh_mariadb)
    with pytest.raises(LedgerError, match="refused") as caught, transaction(fresh_mariadb, write=True) as connection:
        connection.execute(text("SELECT nothing FROM slshudi_pipeline"))
    assert not isinstance(caught.value, LedgerUnavailable)


def _migrate(url: str, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    try:
        engine = open_engine(url)
        migrate(engine)
        Ledger(engine).pipelines()
        results.put("")  # type: ignore[attr-defined]
    except Exception as error:
        results.put(repr(error))  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql", "mysql"])
def test_several_processes_migrate_an_empty_database_at_once(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path}/fresh.db"
    else:
        server = "postgres_engine" if backend == "postgresql" else "mariadb_engine"
        admin = request.getfixturevalue(server).execution_options(isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("DROP DATABASE IF EXISTS slshudi_test_fresh"))
            connection.execute(text("CREATE DATABASE slshudi_test_fresh"))
        url = admin.url.set(database="slshudi_test_fresh").render_as_string(hide_password=False)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([Ledger.__module__])
    start, results = processes.Barrier(3), processes.Queue()
    workers = [processes.Process(target=_migrate, args=(url, start, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert answers == ["", "", ""]
    engine = open_engine(url)
    assert Ledger(engine).pipelines() == []
    engine.dispose()


def test_a_new_file_that_another_process_is_setting_up_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses to change the journal's mode beside a writer at once, without its usual patience."""
    other = sqlite3.connect(tmp_path / "fresh.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(1, lambda: other.execute("COMMIT"))
    release.start()
    engine = open_engine(f"sqlite:///{tmp_path}/fresh.db")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    release.join()
    other.close()
    engine.dispose()


def test_the_version_that_a_process_begins_with_is_the_newest_that_is_installed() -> None:
    assert ledger_engine.scripts().get_current_head() == ledger_engine.VERSION
