"""The metastore fails in the middle of each step: nothing is decided wrongly, and the next run settles what is left.

Each failure strikes one unlucky batch again and again, at every moment at which a step is about to ask the ledger or
is in the middle of a change. A step that fails says so by `LedgerUnavailable`; in the end every log is there once.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text, update

from airflow_provider_slshudi.exceptions import LedgerError, LedgerLost, LedgerUnavailable
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.models import leases, metadata
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.system.processes import this_process
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.databases import PostgresServer, postgres_server
from tests.points import FOLDER
from tests.scenarios import Scenario
from tests.transaction.checks import NAME, assert_exact, phase
from tests.wire import Fault, Wire, wire_to

Make = Callable[..., Scenario]
LOGS = 40
ENGINE = "airflow_provider_slshudi.ledger.engine"

MOMENTS = frozenset(
    {
        Point.PLAN_LEASED,
        Point.PLAN_BEGINNING,
        Point.OPEN_ORDERED,
        Point.SETTLE_LEASED,
        Point.SETTLE_TAKEN_OVER,
        Point.SETTLE_DECIDED,
        Point.RECORD_CHECKED,
        Point.RECORD_HALF,
        Point.COMMIT_LEASED,
        Point.COMMIT_DECIDED,
        Point.COMMIT_SEEN,
        Point.COMMIT_HALF,
    }
)
# In the middle of one SQL transaction, which may hold locks by then.
HALVES = frozenset({Point.RECORD_HALF, Point.COMMIT_HALF})


@pytest.fixture(autouse=True)
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where points are armed; no heartbeat comes in between what is counted, and no step waits for a ledger."""
    folder = tmp_path / "points"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setattr("airflow_provider_slshudi.transaction.context.PULSE_SECONDS", 3600.0)
    monkeypatch.setattr("airflow_provider_slshudi.transaction.context.REST_SECONDS", 0.0)
    return folder


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@dataclass
class Metastore:
    """A PostgreSQL database of a test's own, reached through a wire that fails."""

    server: PostgresServer
    wire: Wire
    database: str

    @property
    def url(self) -> str:
        """The ledger's way, through the wire."""
        return self._url(self.wire.port)

    def execute(self, *statements: str) -> None:
        """Runs statements past the wire, each by itself."""
        with self.session() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def session(self) -> Connection:
        """A session past the wire, whose statements commit by themselves."""
        return create_engine(self._url(self.server.port), isolation_level="AUTOCOMMIT").connect()

    def end_sessions(self) -> None:
        """Ends all sessions but its own, as an administrator would."""
        self.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "  # noqa: S608 - a name of its own
            f"WHERE datname = '{self.database}' AND pid <> pg_backend_pid()"
        )

    def _url(self, port: int) -> str:
        return make_url(self.server.url).set(port=port, database=self.database).render_as_string()


@pytest.fixture
def metastore(postgresql: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Metastore]:
    database = f"ledger_{abs(hash(request.node.name)) % 10**9}"
    admin = create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {database}"))
    admin.dispose()
    with wire_to(postgresql.port) as wire:
        yield Metastore(postgresql, wire, database)


@dataclass
class Unlucky:
    """A pipeline whose steps meet a failure.

    `strike` lets the metastore fail, `mend` repairs it. `failed` are the points, of `moments`, at which steps failed.
    """

    pipeline: Scenario
    points: Path
    strike: Callable[[], object]
    mend: Callable[[], object] = lambda: None
    moments: frozenset[Point] = MOMENTS
    failed: set[Point] = field(default_factory=set)
    runs: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def engine(self) -> Engine:
        """The ledger's engine."""
        return self.pipeline.work.ledger._engine

    def run(self) -> Work:
        """The next run."""
        return self.pipeline.by(f"run-{next(self.runs)}")

    def meets(self, point: Point, step: Callable[[], object]) -> BaseException | None:
        """Runs a step that meets the failure at a point; gives what the step raised."""
        if point not in self.moments:
            return None
        armed = self.points / point.value
        armed.write_text("hold")
        held = armed.with_name(f"{armed.name}.{os.getpid()}")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(step)
            while not held.exists() and not running.done():
                time.sleep(0.005)
            if held.exists():
                self.strike()
                held.unlink()
            armed.unlink(missing_ok=True)
            error = running.exception()
        self.mend()
        self.process_ends()
        if error is not None:
            assert isinstance(error, LedgerUnavailable), (point, error)
            self.failed.add(point)
        return error

    def process_ends(self) -> None:
        """What its process's end does for a step that could not release its lease; the tests' own process lives on."""
        gone = f"{this_process().rpartition('/')[0]}/0"
        with self.engine.begin() as connection:
            connection.execute(update(leases).values(process=gone))

    def settles(self) -> list[Decision]:
        """The next run's settle."""
        return [item.decision for item in settle(self.run(), lambda run: True)]

    def opened(self, work: Work) -> Transaction:
        """A batch up to OPEN, undisturbed."""
        settle(work, lambda run: True)
        return self.pipeline.open(work)

    def whole_way(self) -> Transaction:
        """The unlucky batch: every step meets the failure at each of its moments, and the next run goes on."""
        for point in (Point.PLAN_LEASED, Point.PLAN_BEGINNING):
            work = self.run()
            settle(work, lambda run: True)
            self.meets(point, partial(plan.tail, work))
            self.nothing_committed()
        work = self.run()
        settle(work, lambda run: True)
        self.meets(Point.OPEN_ORDERED, partial(self.pipeline.open, work))
        for point in (Point.SETTLE_LEASED, Point.SETTLE_TAKEN_OVER, Point.SETTLE_DECIDED):
            self.meets(point, self.settles)
            self.nothing_committed()

        work = self.run()
        opened = self.opened(work)
        steps.append(work, opened.id, opened.token)
        for point in (Point.RECORD_CHECKED, Point.RECORD_HALF):
            self.meets(point, partial(steps.record, work, opened.id, opened.token))
            assert self.pipeline.work.ledger.get(opened.id).state in (State.OPEN, State.PREPARED)
        assert steps.record(work, opened.id, opened.token).state is State.PREPARED
        for point in (Point.COMMIT_LEASED, Point.COMMIT_DECIDED):
            self.meets(point, partial(steps.commit, work, opened.id, opened.token))
            self.nothing_committed()
        # Hudi commits once, whatever the ledger is told of it.
        self.meets(Point.COMMIT_SEEN, self.settles)
        self.meets(Point.COMMIT_HALF, self.settles)
        if not self.failed.isdisjoint({Point.COMMIT_SEEN, Point.COMMIT_HALF}):
            assert phase(self.pipeline, opened) is Phase.COMPLETED
        self.settles()
        found = self.pipeline.work.ledger.get(opened.id)
        assert found.state is State.COMMITTED
        return found

    def nothing_committed(self) -> None:
        """Neither side says so."""
        assert Timeline.load(self.pipeline.work.storage).completed("commit") == []
        assert self.pipeline.work.ledger.latest_committed(NAME) is None


def made(scenario: Make, url: str = "") -> Scenario:
    pipeline = scenario(shards=1, ledger_url=url)
    pipeline.put(LOGS)
    return pipeline


def test_a_server_that_is_killed_between_any_two_words_of_a_step(
    scenario: Make, points: Path, metastore: Metastore
) -> None:
    moments = frozenset(
        {Point.PLAN_BEGINNING, Point.OPEN_ORDERED, Point.SETTLE_DECIDED, Point.COMMIT_DECIDED, Point.COMMIT_SEEN}
    )
    server = metastore.server
    unlucky = Unlucky(made(scenario, metastore.url), points, server.kill, server.start, moments | HALVES)
    unlucky.whole_way()
    assert unlucky.failed == moments | HALVES
    assert_exact(unlucky.pipeline, LOGS)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_connection_that_ends_at_a_commit_leaves_unknown_what_was_committed(
    scenario: Make, points: Path, metastore: Metastore, fault: Fault
) -> None:
    def strike() -> None:
        metastore.wire.fault = fault

    unlucky = Unlucky(made(scenario, metastore.url), points, strike)
    unlucky.whole_way()
    # Where only the answer was lost, the change is found to be done, and its step does not come that far again.
    assert unlucky.failed == (MOMENTS - HALVES if fault is Fault.ANSWER_LOST else MOMENTS)
    assert_exact(unlucky.pipeline, LOGS)


def test_a_server_that_takes_no_changes(scenario: Make, points: Path, metastore: Metastore) -> None:
    def read_only(mode: str) -> None:
        metastore.execute(f"ALTER DATABASE {metastore.database} SET default_transaction_read_only = {mode}")
        metastore.end_sessions()

    def writable() -> None:
        with metastore.session() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text(f"ALTER DATABASE {metastore.database} RESET default_transaction_read_only"))
        metastore.end_sessions()

    unlucky = Unlucky(made(scenario, metastore.url), points, partial(read_only, "on"), writable)
    unlucky.whole_way()
    assert unlucky.failed == MOMENTS
    assert_exact(unlucky.pipeline, LOGS)


def test_a_server_whose_rows_somebody_else_keeps_locked(
    scenario: Make, points: Path, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{ENGINE}._LIMITS", "SET LOCAL lock_timeout = '300ms'")
    with ExitStack() as locks:

        def lock() -> None:
            other = locks.enter_context(create_engine(metastore._url(metastore.server.port)).connect())
            other.execute(text(f"LOCK TABLE {', '.join(metadata.tables)} IN EXCLUSIVE MODE"))

        unlucky = Unlucky(made(scenario, metastore.url), points, lock, locks.close, MOMENTS - HALVES)
        unlucky.whole_way()
    assert unlucky.failed == MOMENTS - HALVES
    assert_exact(unlucky.pipeline, LOGS)


@pytest.mark.parametrize("point", sorted(HALVES))
def test_a_session_that_is_ended_in_the_middle_of_a_change(
    scenario: Make, points: Path, metastore: Metastore, point: Point
) -> None:
    unlucky = Unlucky(made(scenario, metastore.url), points, metastore.end_sessions, moments=frozenset({point}))
    unlucky.whole_way()
    assert unlucky.failed == {point}
    assert_exact(unlucky.pipeline, LOGS)


def test_a_server_that_falls_silent_is_not_waited_for_for_ever(
    scenario: Make, points: Path, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{ENGINE}._CONNECT_SECONDS", 2)
    monkeypatch.setattr(f"{ENGINE}._ANSWER_SECONDS", 1.0)

    def says(fault: Fault | None) -> None:
        metastore.wire.fault = fault

    unlucky = Unlucky(
        made(scenario, metastore.url), points, partial(says, Fault.SILENT), partial(says, None), frozenset(HALVES)
    )
    unlucky.whole_way()
    assert unlucky.failed == HALVES
    assert_exact(unlucky.pipeline, LOGS)


def test_a_slow_server_slows_a_batch_and_nothing_else(scenario: Make, metastore: Metastore) -> None:
    pipeline = made(scenario, metastore.url)
    metastore.wire.delay = 0.005
    assert pipeline.batch("run-1").state is State.COMMITTED
    metastore.wire.delay = 0.0
    assert_exact(pipeline, LOGS)


def test_an_append_goes_on_without_the_metastore(
    scenario: Make,
    points: Path,
    metastore: Metastore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = made(scenario, metastore.url)
    unlucky = Unlucky(
        pipeline, points, metastore.server.kill, metastore.server.start, frozenset({Point.APPEND_LAUNCHED})
    )
    work = unlucky.run()
    opened = unlucky.opened(work)
    monkeypatch.setattr("airflow_provider_slshudi.transaction.context.PULSE_SECONDS", 0.05)
    assert unlucky.meets(Point.APPEND_LAUNCHED, partial(steps.append, work, opened.id, opened.token)) is None
    assert "did not answer" in caplog.text  # heartbeats that were in vain
    steps.record(work, opened.id, opened.token)
    assert steps.commit(work, opened.id, opened.token).state is State.COMMITTED
    assert_exact(pipeline, LOGS)


def test_the_answer_to_prepared_is_lost_and_the_retry_finds_it_done(
    scenario: Make, points: Path, metastore: Metastore
) -> None:
    def strike() -> None:
        metastore.wire.fault = Fault.ANSWER_LOST

    unlucky = Unlucky(made(scenario, metastore.url), points, strike)
    work = unlucky.run()
    opened = unlucky.opened(work)
    steps.append(work, opened.id, opened.token)
    assert unlucky.meets(Point.RECORD_HALF, partial(steps.record, work, opened.id, opened.token)) is not None
    before = work.ledger.get(opened.id)
    assert before.state is State.PREPARED
    assert steps.record(work, opened.id, opened.token) == before
    assert steps.commit(work, opened.id, opened.token).state is State.COMMITTED
    assert_exact(unlucky.pipeline, LOGS)


def test_a_ledger_that_is_gone_right_after_hudi_s_commit_is_told_by_the_next_run(
    scenario: Make, points: Path, metastore: Metastore
) -> None:
    unlucky = Unlucky(made(scenario, metastore.url), points, metastore.server.kill, metastore.server.start)
    work = unlucky.run()
    settle(work, lambda run: True)
    prepared = unlucky.pipeline.prepare(work)
    assert unlucky.meets(Point.COMMIT_SEEN, partial(steps.commit, work, prepared.id, prepared.token)) is not None
    assert phase(unlucky.pipeline, prepared) is Phase.COMPLETED
    assert work.ledger.get(prepared.id).state is State.PREPARED
    assert unlucky.settles() == [Decision.MARK_COMMITTED]
    assert_exact(unlucky.pipeline, LOGS)


def test_a_server_that_refuses_to_tell_is_not_one_that_knows_nothing(scenario: Make, metastore: Metastore) -> None:
    pipeline = made(scenario, metastore.url)
    pipeline.batch("run-1")
    metastore.execute("CREATE ROLE clerk LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO clerk")
    metastore.execute("REVOKE SELECT ON slshudi_transaction FROM clerk")
    engine = create_engine(make_url(metastore.url).set(username="clerk"))
    work = pipeline.by("run-2", ledger=type(pipeline.work.ledger)(engine))
    with pytest.raises(LedgerError, match="permission denied") as refused:
        verify(work)
    assert not isinstance(refused.value, LedgerLost)
    engine.dispose()
    metastore.execute("DROP OWNED BY clerk", "DROP ROLE clerk")
    assert_exact(pipeline, LOGS)


# SQLite


def locked(url: str, locks: ExitStack) -> None:
    """Somebody else's transaction that writes."""
    other = sqlite3.connect(str(make_url(url).database), isolation_level=None, check_same_thread=False)
    locks.callback(other.close)
    other.execute("BEGIN IMMEDIATE")


def test_a_file_that_somebody_else_keeps_locked(scenario: Make, points: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ENGINE}._LOCK_SECONDS", 0.3)
    pipeline = made(scenario)
    with ExitStack() as locks:
        strike = partial(locked, str(pipeline.work.ledger._engine.url), locks)
        unlucky = Unlucky(pipeline, points, strike, locks.close, MOMENTS - HALVES)
        unlucky.whole_way()
    assert unlucky.failed == MOMENTS - HALVES
    assert_exact(pipeline, LOGS)


def test_a_file_that_takes_no_changes(scenario: Make, points: Path) -> None:
    # SQLite's own switch: a file's mode does not bind root, as which tests may run.
    def refuse(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only = ON")

    def allow(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only = OFF")

    pipeline = made(scenario)
    engine = pipeline.work.ledger._engine

    def strike() -> None:
        event.listen(engine, "begin", refuse)

    def mend() -> None:
        if event.contains(engine, "begin", refuse):
            event.remove(engine, "begin", refuse)
            event.listen(engine, "begin", allow)

    unlucky = Unlucky(pipeline, points, strike, mend, MOMENTS - HALVES)
    unlucky.whole_way()
    assert unlucky.failed == MOMENTS - HALVES
    assert_exact(pipeline, LOGS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk has to be mounted, which takes root: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_full(scenario: Make, points: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"

    def fill() -> None:
        with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))

    pipeline = made(scenario, f"sqlite:///{small_disk / 'ledger.db'}")
    unlucky = Unlucky(pipeline, points, fill, lambda: filler.unlink(missing_ok=True))
    unlucky.whole_way()
    assert unlucky.failed == MOMENTS
    assert_exact(pipeline, LOGS)


def test_a_file_that_is_deleted_while_it_is_used_is_missed_at_the_next_change(scenario: Make, tmp_path: Path) -> None:
    pipeline = made(scenario)
    first = pipeline.batch("run-1")
    pipeline.put(10, first=LOGS)
    prepared = pipeline.prepare(pipeline.by("run-2"))
    away = tmp_path / "away"
    away.mkdir()
    for file in tmp_path.glob("ledger.db*"):
        shutil.move(file, away)
    with pytest.raises(LedgerError, match="has no tables"):
        steps.commit(pipeline.by("run-2"), prepared.id, prepared.token)
    assert phase(pipeline, prepared) is Phase.INFLIGHT
    assert [item.time for item in Timeline.load(pipeline.work.storage).completed("commit")] == [first.instant]
    # An operator finds the file again.
    pipeline.work.ledger._engine.dispose()
    for file in away.iterdir():
        shutil.move(file, tmp_path / file.name)
    assert [item.decision for item in settle(pipeline.by("run-3"), lambda run: True)] == [Decision.RECOMMIT]
    assert_exact(pipeline, LOGS + 10)


@pytest.mark.parametrize("fallen_back_to", [State.PLANNED, State.OPEN, State.PREPARED])
def test_a_ledger_that_fell_back_to_before_a_commit_is_noticed_and_rebuilt(
    scenario: Make, tmp_path: Path, fallen_back_to: State
) -> None:
    """A replica that had not received everything, or a backup, took the place of the database."""
    pipeline = made(scenario)
    work = pipeline.by("run-1")
    engine, copy = work.ledger._engine, tmp_path / "copy.db"

    def keep_if(state: State) -> None:
        if state is fallen_back_to:
            with sqlite3.connect(str(engine.url.database)) as source, sqlite3.connect(copy) as target:
                source.backup(target)

    settle(work, lambda run: True)
    planned = plan.tail(work)
    assert planned is not None
    keep_if(State.PLANNED)
    steps.open_instant(work, planned.id, planned.token)
    keep_if(State.OPEN)
    steps.append(work, planned.id, planned.token)
    steps.record(work, planned.id, planned.token)
    keep_if(State.PREPARED)
    steps.commit(work, planned.id, planned.token)
    engine.dispose()
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    copy.rename(str(engine.url.database))

    if fallen_back_to is State.PREPARED:
        assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.MARK_COMMITTED]
    else:
        with pytest.raises(LedgerLost, match="slshudi ledger rebuild ad_events"):
            settle(pipeline.by("run-2"), lambda run: True)
        assert rebuild(pipeline.work).committed == 1
    assert_exact(pipeline, LOGS)
