"""Two drivers of one transaction alive at once: real processes, held at points, stopped and woken.

However they meet: one commit on the timeline, every log once, no file that no commit lists.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from airflow_provider_slshudi.exceptions import LeaseHeld, ManifestError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import lease as lease_module
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from tests.crash.cases import Step, Victim
from tests.crash.held import HeldStep, Holds
from tests.crash.world import Line, World
from tests.exact.counts import completed_files, data_files, listed_files
from tests.hudi.conftest import write_files
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.local.process import LocalSls

pytestmark = pytest.mark.long

# Long enough for a driver to start on a busy machine; the lease ends a moment after it.
TIMES = {"COMMIT_SECONDS": 40.0, "LEASE_SECONDS": 43.0}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, server: LocalSls) -> World:
    return World(tmp_path_factory.mktemp("two-drivers"), spark, server, "two-drivers")


@pytest.fixture
def line(world: World, request: pytest.FixtureRequest) -> Iterator[Line]:
    with world.line(re.sub(r"\W+", "-", request.node.name)) as made:
        yield made


@pytest.fixture
def held(line: Line) -> Iterator[Callable[..., HeldStep]]:
    """Starts steps in processes of their own; what is left of them ends with the test."""
    started = []

    def start(step: Step, transaction: Transaction, holds: Holds, **more: object) -> HeldStep:
        setup: dict[str, Any] = {"transaction": transaction.id, "token": transaction.token, **more}
        started.append(line.held(step, holds, **setup))
        return started[-1]

    yield start
    for step in started:
        step.kill()


def before(line: Line, step: Step) -> Transaction:
    transaction = line.before(step)
    assert transaction is not None
    return transaction


def assert_one_commit(line: Line, transaction: Transaction) -> None:
    assert completed_files(line.work.storage)[transaction.instant or ""] == 1
    assert line.work.ledger.get(transaction.id).state is State.COMMITTED


def test_of_two_appends_with_one_token_one_writes(line: Line, held: Callable[..., HeldStep]) -> None:
    opened, first, second = before(line, Step.APPEND), line.holds("first"), line.holds("second")
    for holds in (first, second):
        holds.arm(Point.APPEND_STARTED)
    pair = [held(Step.APPEND, opened, holds) for holds in (first, second)]
    for step, holds in zip(pair, (first, second), strict=True):
        holds.wait(Point.APPEND_STARTED, step.child)
        step.processes()
    for holds in (first, second):
        holds.release(Point.APPEND_STARTED)
    codes = sorted(step.wait() for step in pair)
    assert codes[1] != 0, "both believe that they wrote the batch"
    line.ends_well()


def test_an_append_of_an_old_token_beside_its_successors_batch_adds_nothing(
    line: Line, held: Callable[..., HeldStep]
) -> None:
    opened, holds = before(line, Step.APPEND), line.holds()
    holds.arm(Point.APPEND_WRITTEN)
    old = held(Step.APPEND, opened, holds)
    holds.wait(Point.APPEND_WRITTEN, old.child)
    old.processes()
    # The next run rolls the instant back and reads the same ranges, while the old driver still lives.
    assert line.next_run("run-2") == ["ROLL_BACK_AND_ABORT"]
    holds.release(Point.APPEND_WRITTEN)
    assert old.wait() != 0
    assert line.ends_well() == []


@pytest.mark.parametrize("stopped", ["both", "driver", "task"])
def test_a_committer_that_was_stopped_and_wakes_after_its_successor_commits_nothing(
    line: Line, held: Callable[..., HeldStep], stopped: str
) -> None:
    prepared, holds = before(line, Step.COMMIT), line.holds()
    holds.arm(Point.COMMIT_STARTED)
    old = held(Step.COMMIT, prepared, holds, times=TIMES)
    began = time.monotonic()
    pid = holds.wait(Point.COMMIT_STARTED, old.child)
    tree = old.processes()
    driver = [old.victim(Victim.JVM, pid), old.victim(Victim.PYTHON_DRIVER, pid)]
    paused = {"both": [tree[0], *driver], "driver": driver, "task": [tree[0]]}[stopped]
    for process in paused:
        process.suspend()
    holds.release(Point.COMMIT_STARTED)
    if stopped == "task":
        # Its driver goes on and commits within its time.
        until("its driver commits", lambda: completed_files(line.work.storage)[prepared.instant or ""] == 1)
    decided = settle_when_possible(line, began)
    for process in paused:
        resume(process)
    old.wait()
    assert decided == (["MARK_COMMITTED"] if stopped == "task" else ["RECOMMIT"])
    assert_one_commit(line, prepared)
    assert line.ends_well() == []


@pytest.mark.parametrize("point", [Point.COMMIT_LISTED, Point.COMMIT_LOOKED])
def test_a_committer_whom_no_clock_ends_finds_that_its_successor_has_claimed_the_table(
    line: Line, held: Callable[..., HeldStep], monkeypatch: pytest.MonkeyPatch, point: Point
) -> None:
    """The successor's clock is an hour ahead, so the lease of a committer that stands still is over to it."""
    prepared, holds = before(line, Step.COMMIT), line.holds()
    holds.arm(point)
    old = held(Step.COMMIT, prepared, holds)
    holds.wait(point, old.child)
    old.processes()
    with monkeypatch.context() as ahead:
        ahead.setattr(lease_module, "now", lambda connection: now(connection) + timedelta(hours=1))
        assert line.settle("run-2") == ["RECOMMIT"]
    first = str(line.work.ledger.get(prepared.id).completed)
    holds.release(point)
    old.wait()
    if point is Point.COMMIT_LISTED:
        assert "this driver may not commit instant" in old.log.read_text()
    else:
        # It had looked already: nothing but a write was left. What it did twice is put right.
        assert completed_files(line.work.storage)[prepared.instant or ""] == 2
        assert line.settle("run-3") == []
        assert "completed once" in [event.what for event in line.work.ledger.events(prepared.id)]
    assert_one_commit(line, prepared)
    found = Timeline.load(line.work.storage).get(prepared.instant or "")
    assert found is not None and found.completion == first == line.work.ledger.get(prepared.id).completed
    assert line.ends_well() == []


def test_commit_called_twice_at_the_same_moment_commits_once(line: Line, held: Callable[..., HeldStep]) -> None:
    prepared, holds = before(line, Step.COMMIT), [line.holds("first"), line.holds("second")]
    holds[0].arm(Point.COMMIT_DECIDED)
    pair = [held(Step.COMMIT, prepared, folder) for folder in holds]
    until(
        "one is held, or the other ends",
        lambda: holds[0].claimed(Point.COMMIT_DECIDED) is not None or pair[1].child.poll() is not None,
    )
    holds[0].release(Point.COMMIT_DECIDED)
    assert [step.wait(180) for step in pair] == [0, 0]
    assert_one_commit(line, prepared)
    assert line.ends_well() == []


def test_settle_and_commit_at_the_same_moment_commit_once(line: Line, held: Callable[..., HeldStep]) -> None:
    prepared, holds = before(line, Step.COMMIT), line.holds()
    holds.arm(Point.COMMIT_STARTED)
    committer = held(Step.COMMIT, prepared, holds)
    holds.wait(Point.COMMIT_STARTED, committer.child)
    committer.processes()
    settler = line.held(Step.SETTLE, line.holds("other"), "run-2")
    time.sleep(5)
    assert settler.child.poll() is None, "it decided beside a living committer"
    holds.release(Point.COMMIT_STARTED)
    assert committer.wait() == 0
    assert settler.wait() == 0
    assert_one_commit(line, prepared)
    assert line.ends_well() == []


@pytest.mark.parametrize("point", [Point.APPEND_TASK_MARKED, Point.APPEND_STARTED])
def test_an_append_that_wakes_after_its_rollback_leaves_nothing(
    line: Line, held: Callable[..., HeldStep], point: Point
) -> None:
    holds, old, _ = held_through_its_rollback(line, held, point)
    assert Timeline.load(line.work.storage).pending() == []
    holds.release(point)
    assert old.wait() != 0
    assert data_files(line.work.storage) == listed_files(line.work.storage)
    line.ends_well()


def test_a_file_that_is_written_after_the_rollback_gets_no_name_and_would_stay_if_it_had_one(line: Line) -> None:
    opened, storage = before(line, Step.APPEND), line.work.storage
    assert line.settle("run-2") == ["ROLL_BACK_AND_ABORT"]
    instant = opened.instant or ""
    # What a task that was held after its first look would write: this writer looks neither time.
    with pytest.raises(ManifestError, match=f"its instant {instant} was decided meanwhile"):
        write_files(storage, instant, 10)
    assert data_files(storage) == listed_files(storage)
    fencing.admit(storage, instant)
    write_files(storage, instant, 10)
    line.next_run("run-3")
    assert len(data_files(storage) - listed_files(storage)) == 1


def test_an_executor_that_spark_has_given_up_adds_nothing_to_a_batch_whose_append_has_ended(line: Line) -> None:
    appended, storage = before(line, Step.RECORD), line.work.storage
    with pytest.raises(ManifestError, match="or its append has ended"):
        write_files(storage, appended.instant or "", 10)
    steps.record(line.work, appended.id, appended.token)
    steps.commit(line.work, appended.id, appended.token)
    assert data_files(storage) == listed_files(storage)
    assert line.ends_well() == []


@pytest.mark.parametrize("point", [Point.APPEND_TASK_MARKED, Point.APPEND_TASK_ENDED, Point.APPEND_TASK_NAMED])
def test_a_task_that_wakes_after_its_rollback_and_is_killed_before_it_looks_leaves_nothing(
    line: Line, held: Callable[..., HeldStep], point: Point
) -> None:
    holds, old, pid = held_through_its_rollback(line, held, point)
    woken = psutil.Process(pid)
    # The next that it would reach once the file has its name, and where it dies if it does.
    holds.end(Point.APPEND_TASK_NAMED)
    holds.release(point)
    woken.wait()
    assert old.wait() != 0
    assert data_files(line.work.storage) == listed_files(line.work.storage)
    line.ends_well()


def held_through_its_rollback(line: Line, held: Callable[..., HeldStep], point: Point) -> tuple[Holds, HeldStep, int]:
    """An append that is held at the point, whose batch the next run gives up; and the process that is held."""
    opened, holds = before(line, Step.APPEND), line.holds()
    holds.arm(point)
    old = held(Step.APPEND, opened, holds)
    pid = holds.wait(point, old.child)
    old.processes()
    assert line.settle("run-2") == ["ROLL_BACK_AND_ABORT"]
    return holds, old, pid


def settle_when_possible(line: Line, began: float) -> list[str]:
    """What the next run decides as soon as it may: not before the old committer's time is over, where it has one."""
    while time.monotonic() < began + 120:
        try:
            return line.settle("run-2")
        except LeaseHeld:
            time.sleep(0.5)
    raise AssertionError("the lease does not end")


def resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.resume()
