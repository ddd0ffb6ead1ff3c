"""One table with its quarantine, one ledger, one logstore, and all processes that work on them."""

from __future__ import annotations

import shutil
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, delete, event
from sqlalchemy.exc import OperationalError

from airflow_provider_slshudi.exceptions import ConfigError, JobFailed, SlsHudiError, TransientError
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.ledger import engine as ledger_engine
from airflow_provider_slshudi.ledger import lease, models, transactions
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.repair import rebuild
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.driver import append, key_access, reading, verbs
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import context, dangling, plan, settle, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.decisions import Decision
from tests import points
from tests.ledgers import in_memory, quick_engine
from tests.model.actors import Actor, Actors, Killed
from tests.model.service import BYTES_PER_GROUP, ModelReader, ModelService, in_turn, whole
from tests.model.store import ModelStore
from tests.model.table import ModelTable
from tests.pipelines import ad_events

PIPELINE = "ad_events"
_HALF = {Point.RECORD_HALF.value, Point.COMMIT_HALF.value}
_EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Clock:
    """Stands for `time` and for `datetime`: seconds that pass when told to, and a millisecond with each look."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self, _: object = None) -> datetime:
        self.seconds += 0.001
        return _EPOCH + timedelta(seconds=self.seconds)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits for the lease here")


@dataclass
class DagRun:
    """A DAG run. `ended` is what Airflow says of it; `tries` are its processes, the last of which counts."""

    id: str
    backfill: tuple[int, int, int] | None = None
    ended: bool | None = False
    step: str = "settle"
    planned: tuple[str, int] | None = None
    tries: list[Actor] = field(default_factory=list)
    outcome: str = ""


class World:
    """Made anew for each schedule; patches the package while it is entered. Its tables may be in an object store."""

    def __init__(self, stored: bool = False) -> None:
        self._stored = stored
        self.actors, self.clock, self.source = Actors(), Clock(), ModelService()
        self.runs: list[DagRun] = []
        self.surprises: list[str] = []
        self.by_hand: set[str] = set()
        self.decisions: list[Decision] = []
        self.ended_processes: set[str] = set()
        self.fault: tuple[int, str] | None = None
        self.timers = True
        self.ending = "wake"
        self._stack = ExitStack()

    def __enter__(self) -> World:
        self._root = Path(tempfile.mkdtemp(prefix="slshudi-model-", dir=in_memory()))
        self._stack.callback(shutil.rmtree, self._root, ignore_errors=True)
        self.engine = self._stack.enter_context(quick_engine(self._root))
        # First in the row: who stops before a write must not hold SQLite's lock yet.
        event.remove(self.engine, "begin", ledger_engine._begin_sqlite)
        event.listen(self.engine, "begin", self._begins)
        event.listen(self.engine, "begin", ledger_engine._begin_sqlite)
        event.listen(self.engine, "commit", self._commits)
        event.listen(self.engine, "rollback", self._rolls_back)
        self.ledger = Ledger(self.engine)
        # Both count from the same number: an instant here and a rollback there may have the same time.
        self.table = ModelTable(self._root / "lake", self.actors.stop)
        self.aside = ModelTable(self._root / "lake_quarantine", lambda what: self.actors.stop(f"{what} aside"))
        description = {"path": f"file://{self._root / 'lake'}", "name": PIPELINE}
        self.pipeline = ad_events(
            self._root,
            table=description,
            columns=[{"name": "event_id", "required": True}],
            rest_column=None,
            misfits="quarantine",
            batch={"task_bytes": 2 * BYTES_PER_GROUP},
            source={"project": "ads", "logstore": "events", "start": "begin"},
        )
        self.patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        try:
            self._patch(self.patch)
        except BaseException:
            # Otherwise all tests after this one meet this world.
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors.all:
            self.actors.kill(actor)
        self._stack.close()

    def work(self, run_id: str) -> Work:
        return Work(self.pipeline, self.ledger, self, lambda: cast(LogService, self.source), Run("tail", run_id))

    # Runs of the DAG.

    def start_run(self, backfill: tuple[int, int, int] | None = None) -> DagRun:
        run = DagRun(f"run-{len(self.runs)}", backfill)
        self.runs.append(run)
        self.attempt(run)
        return run

    def attempt(self, run: DagRun, step: str | None = None) -> Actor:
        """A process for the run's step; what was there before counts no more, alive or not."""
        run.step, run.ended = step or run.step, False
        actor = self.actors.spawn(f"{run.id}.{len(run.tries)}", "task", lambda: self._tries(run, actor))
        actor.run = run
        run.tries.append(actor)
        return actor

    def _tries(self, run: DagRun, me: Actor) -> None:
        work = self.work(run.id)
        while True:
            try:
                going_on = getattr(self, f"_{run.step}")(work, run)
            except SlsHudiError as error:
                run.outcome = f"{run.step}: {type(error).__name__}: {error}"
                going_on = False
            except Exception as error:
                self.surprises.append(f"{run.id} {run.step}: {type(error).__name__}: {error}")
                raise
            if run.tries[-1] is not me:
                return
            if not going_on:
                run.ended = True
                return
            # Another task, so another process.
            self.ended_processes.add(me.process)
            me.process = f"{me.process}'"
            self.actors.stop(f"before {run.step}")

    def _settle(self, work: Work, run: DagRun) -> bool:
        for _ in range(4):
            try:
                found = settle.settle(work, self.ended)
            except TransientError:
                self.actors.stop("before another poke")
                continue
            self.decisions += [item.decision for item in found]
            return self._goes_on(run, "plan")
        return False

    def _plan(self, work: Work, run: DagRun) -> bool:
        if run.backfill is None:
            planned = plan.tail(work)
        else:
            shard, begin, end = run.backfill
            try:
                planned = plan.backfill(work, plan.BackfillRequest({shard: (begin, end)}))
            except ConfigError:
                planned = None
        if planned is None:
            run.outcome = "nothing new"
            return False
        if run.tries[-1] is self.actors.current:
            run.planned = planned.id, planned.token
        return self._goes_on(run, "open")

    def _open(self, work: Work, run: DagRun) -> bool:
        steps.open_instant(work, *self._planned(run))
        return self._goes_on(run, "append")

    def _append(self, work: Work, run: DagRun) -> bool:
        steps.append(work, *self._planned(run))
        return self._goes_on(run, "record")

    def _record(self, work: Work, run: DagRun) -> bool:
        steps.record(work, *self._planned(run))
        return self._goes_on(run, "commit")

    def _commit(self, work: Work, run: DagRun) -> bool:
        committed: Transaction = steps.commit(work, *self._planned(run))
        run.outcome = committed.state.value
        return False

    def _goes_on(self, run: DagRun, step: str) -> bool:
        if run.tries[-1] is self.actors.current:
            run.step = step
        return True

    def _planned(self, run: DagRun) -> tuple[str, int]:
        assert run.planned is not None
        return run.planned

    def ended(self, run: Run) -> bool | None:
        return next((found.ended for found in self.runs if found.id == run.run_id), None)

    def roll_back_by_hand(self, instant: str, changes: int = 100) -> None:
        """By somebody's Hudi client, which may die after a few changes."""
        self.by_hand.add(instant)
        for _ in islice(self.table.rolling_back(instant), changes + 1):
            pass

    def committing(self) -> bool:
        return any(".commit." in driver.name for driver in self.actors.alive("driver"))

    def lose_ledger(self) -> None:
        """A new one, which is empty."""
        with self.engine.begin() as connection:
            for table in reversed(models.metadata.sorted_tables):
                connection.execute(delete(table))

    def start_rebuild(self) -> Actor:
        def body() -> None:
            try:
                rebuild.rebuild(self.work("rebuild"))
            except SlsHudiError:
                return
            except Exception as error:
                self.surprises.append(f"rebuild: {type(error).__name__}: {error}")
                raise

        return self.actors.spawn(f"rebuild.{len(self.actors.all)}", "task", body)

    # spark-submit and Spark.

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        """A launcher: the job is a process of its own, ended when its time is over."""
        parent = self.actors.current
        assert parent is not None
        body = {
            Verb.OPEN: lambda: verbs.open_instant(None, order),  # type: ignore[arg-type]
            Verb.APPEND: lambda: verbs.append(_Spark(self), order, key_access.served(secrets)),  # type: ignore[arg-type]
            Verb.COMMIT: lambda: verbs.commit_instant(None, order),  # type: ignore[arg-type]
            Verb.ROLLBACK: lambda: verbs.roll_back(None, order),  # type: ignore[arg-type]
        }[verb]
        name = f"{parent.name}.{verb.value}.{len(parent.children)}"
        driver = self.actors.spawn(name, "driver", body, parent)
        driver.until = order.until
        self.actors.wait(lambda: driver.over)
        for worker in driver.children if driver.done and not driver.dead else []:
            self.actors.kill(worker)
        if driver.dead or driver.error is not None:
            raise JobFailed(f"{name}: {driver.error!r}", verb=verb.value)

    def kill_task(self, task: Actor, drivers_too: bool) -> None:
        """SIGKILL to a task's process; where its driver lives on, others cannot tell that the task is dead."""
        driving = [child for child in task.children if not child.over]
        self.actors.kill(task, gone=drivers_too or not driving)
        for driver in driving if drivers_too else []:
            self.kill_driver(driver, workers_too=True)

    def kill_driver(self, driver: Actor, workers_too: bool) -> None:
        self.actors.kill(driver)
        for worker in driver.children if workers_too else []:
            self.actors.kill(worker)

    def pass_time(self, seconds: float, asleep: Callable[[Actor], bool]) -> None:
        """Time goes on: who is awake says that it lives, drivers whose time is over end."""
        target = self.clock.seconds + seconds
        while self.clock.seconds < target:
            self.clock.seconds = min(target, self.clock.seconds + 30)
            for task in self.actors.alive("task"):
                for beat in [] if asleep(task) else list(task.beats):
                    beat()
            for driver in self.actors.alive("driver"):
                if self.timers and 0 < driver.until <= self.clock.seconds:
                    self.kill_driver(driver, workers_too=True)

    def finish(self) -> None:
        """All processes take turns until none can go on."""
        for _ in range(5000):
            able = self.actors.runnable()
            if not able:
                return
            for actor in able:
                if not actor.over:
                    self.actors.step(actor)
        raise AssertionError(f"no end: {self.actors.runnable()}")

    def settle_down(self) -> None:
        """Who sleeps wakes, or dies; Airflow says of each run that it ended; time passes; a run settles."""
        self.fault = None
        if self.ending == "die":
            for actor in self.actors.alive("task", "driver", "worker"):
                self.actors.kill(actor)
        self.finish()
        for run in self.runs:
            run.ended = True
        self.pass_time(1000, lambda task: False)
        for _ in range(6):
            run = self.start_run()
            self.finish()
            if "LedgerLost" in run.outcome or "LedgerAhead" in run.outcome:
                self.start_rebuild()
                self.finish()
            elif run.outcome in ("nothing new", "COMMITTED"):
                return
        raise AssertionError(f"it does not come to rest: {run.outcome}")

    # How the package meets all this.

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        patch.setenv(points.FOLDER, "model")
        patch.setattr(points, "meet", lambda armed: self.actors.stop(armed.name))
        for module in (ledger_engine, context):
            patch.setattr(module, "datetime", self.clock)
        patch.setattr(lease, "time", self.clock)
        patch.setattr(context, "time", types.SimpleNamespace(sleep=self._try_later))
        for module in (context, verbs):
            patch.setattr(module, "clock", self.clock.monotonic)
        patch.setattr(context, "LEASE_WAIT_SECONDS", 0)
        patch.setattr(context, "_pulse", self._pulse)
        for module in (lease, transactions):
            patch.setattr(
                module, "this_process", lambda: self.actors.current.process if self.actors.current else "nobody"
            )
        for module in (lease, dangling):
            patch.setattr(module, "is_gone", self._is_gone)
        patch.setattr(settle, "abandoned", self._abandoned)
        patch.setattr(instants, "check_table", self.table.check_table)
        patch.setattr(instants, "meta_client", lambda *_: None)
        patch.setattr(instants, "new_instant_time", self.table.new_instant_time)
        for name in ("request", "to_inflight"):
            patch.setattr(instants, name, self._of_table(name, lambda path: str(path)))
        patch.setattr(instants, "create_table", self._of_table("create_table", lambda pipeline: pipeline.table.path))
        for module, name in ((commit, "commit"), (commit, "roll_back")):
            patch.setattr(module, name, self._of_table(name, lambda pipeline: pipeline.table.path))
        patch.setattr(reading, "decode_piece", whole)
        patch.setattr(verbs, "Gateway", types.SimpleNamespace(of=lambda spark: _Gateway()))
        patch.setattr(key_access, "granted", lambda spark, source, environment: nullcontext(lambda: self.source))
        patch.setattr(reading, "Reader", ModelReader)
        patch.setattr(reading, "together", in_turn)
        patch.setattr(append, "_runner", lambda task: lambda part, token: (task(part, token), 0.0))
        for module in (verbs, append):
            patch.setattr(module, "print", lambda *arguments: None, raising=False)
        if self._stored:
            ModelStore(self._root / "uploads", self.actors.stop).patch(patch)
        for name in ("write", "delete", "delete_folder", "create", "create_within", "rename", "exists"):
            patch.setattr(Storage, name, self._stopping(name, getattr(Storage, name)))
        patch.setattr(Storage, "delete_files", _delete_in_turn)

    def _of_table(self, name: str, path_of: Callable[[Any], str]) -> Callable[..., None]:
        """A function of Hudi's, of the table that its second argument names."""

        def call(gateway: object, which: Any, *arguments: Any) -> None:
            table = self.aside if path_of(which) == self.pipeline.quarantine_path else self.table
            getattr(table, name)(gateway, which, *arguments)

        return call

    def _stopping(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(storage: Storage, *arguments: Any, **options: Any) -> Any:
            kind = _kind(arguments[0])
            if name != "exists" or kind in ("batch", "files"):
                self.actors.stop(f"{name} {kind}")
            return original(storage, *arguments, **options)

        return method

    def _is_gone(self, process: str) -> bool:
        dead = any(actor.process == process and actor.dead and actor.gone for actor in self.actors.all)
        return dead or process in self.ended_processes

    def _abandoned(self, ledger: Ledger, found: Transaction, ended: Callable[[Run], bool | None]) -> str:
        """As the package does, but for a run that is between two steps: it may live, and nobody may judge it dead."""
        why = dangling.abandoned(ledger, found, ended)
        its_own = any(run.planned == (found.id, found.token) for run in self.runs)
        if "is gone" in why and its_own and found.process in self.ended_processes:
            self.surprises.append(f"{found.process} is taken for dead, but its step was over")
        return why

    def _try_later(self, seconds: float) -> None:
        self.clock.seconds += seconds

    @contextmanager
    def _pulse(self, beat: Callable[[], None]) -> Iterator[None]:
        actor = self.actors.current
        assert actor is not None

        def beats() -> None:
            with suppress(SlsHudiError):
                beat()

        actor.beats.append(beats)
        try:
            yield
        finally:
            actor.beats.remove(beats)

    def _begins(self, connection: Connection) -> None:
        if not connection.get_execution_options().get("slshudi_write", False):
            return
        self.actors.stop("ledger write")
        if self.fault is not None and self.actors.current is not None:
            left, when = self.fault
            self.fault = (left - 1, when) if left > 0 else None
            if left == 0 and when == "before":
                raise OperationalError("BEGIN", None, Exception("the database does not answer"))
            if left == 0:
                connection.info["lost"] = True
        if self.actors.current is not None:
            self.actors.current.in_sql = True

    def _commits(self, connection: Connection) -> None:
        self._over(connection)
        if connection.info.pop("lost", False):
            connection.connection.dbapi_connection.execute("COMMIT")  # type: ignore[union-attr]
            raise OperationalError("COMMIT", None, Exception("the answer is lost"))

    def _rolls_back(self, connection: Connection) -> None:
        connection.info.pop("lost", None)
        self._over(connection)

    def _over(self, connection: Connection) -> None:
        if self.actors.current is not None:
            self.actors.current.in_sql = False


class _Gateway:
    """A driver's JVM that does not tell what it took."""

    def cpu_seconds(self) -> None:
        return None


class _Spark:
    """SparkContext of an append: each task is a process; one that died or is thought so is tried once more."""

    defaultParallelism = 2

    def __init__(self, world: World) -> None:
        self._world = world

    def parallelize(self, parts: list[Any], count: int) -> _Spark:
        self._parts = parts
        return self

    def mapPartitions(self, task: Callable[[Any, str], Any]) -> _Spark:
        self._task = task
        return self

    def collect(self) -> list[Any]:
        first = [self._attempt(number) for number in range(len(self._parts))]
        return [self._result(number, worker) for number, worker in enumerate(first)]

    def _attempt(self, number: int) -> Actor:
        actors = self._world.actors
        driver = actors.current
        assert driver is not None
        part, token = self._parts[number], f"{number}-0-{len(driver.children)}"
        return actors.spawn(f"{driver.name}.{token}", "worker", lambda: self._task(part, token), driver)

    def _result(self, number: int, worker: Actor) -> Any:
        for _ in range(3):
            self._world.actors.wait(partial(_is_over, worker))
            if worker.done and not worker.dead and worker.error is None:
                return worker.result
            failed, worker = worker, self._attempt(number)
        raise RuntimeError(f"task {number} failed for good: {failed.error!r}")


def _is_over(worker: Actor) -> bool:
    return worker.over or worker.lost


def _delete_in_turn(storage: Storage, paths: Iterable[str]) -> None:
    for path in paths:
        storage.delete(path)


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    for known in ("owner", "batch", "manifest", "marker", "parquet", "partition_metadata", "misfits", "files"):
        if known in name:
            return known
    return "folder"


__all__ = ["PIPELINE", "DagRun", "Killed", "World"]
