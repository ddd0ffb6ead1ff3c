"""One world from its first log to its last count."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from py4j.protocol import Py4JError

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import BatchUnderWay, LeaseHeld
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark.driver.channel import failure
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.settle import settle
from tests.crash.cases import BATCH, SERVICES, Step
from tests.crash.held import Holds, NotAsPlanned, kill
from tests.exact.outcome import Jammed, Outcome, attempt
from tests.exact.step import Told, carry_out
from tests.worlds.draw import AT_POINT, DISKS, HOME, STANDING, Drawn, Host, Shards, Trouble
from tests.worlds.ends import count
from tests.worlds.exits import AGAIN, MOST_COMMANDS, command_for
from tests.worlds.host import END_SECONDS, Away
from tests.worlds.place import OTHER, Line, Places
from tests.worlds.shards import change_shards, expire_oldest

_SHORT = {"COMMIT_SECONDS": 10.0, "LEASE_SECONDS": 12.0}
"""Of who stands still, or is in a container whose processes nobody can ask after: others wait for the lease's end."""
_IN_VAIN = {"REST_SECONDS": 20.0}
"""Of a step whose ledger takes no writes until the step has ended: for so long it tells the ledger that it is over."""
_MOST_BATCHES = 40
PAGE = 4096
"""What a tmpfs gives at a time."""


def run_world(places: Places, drawn: Drawn) -> Outcome:
    """Carries a world out; nothing that goes wrong within it is raised."""

    def carry_out(outcome: Outcome) -> None:
        with places.line(drawn) as line:
            World(line, outcome).run()

    return attempt(drawn, carry_out)


class World:
    """A drawn pipeline, and what becomes of it on the way to its `ended`."""

    def __init__(self, line: Line, ended: Outcome) -> None:
        self.line, self.drawn, self.ended = line, line.drawn, ended
        self.holds = Holds(line.folder / "points")
        self.wrong: list[str] = []

    def run(self) -> None:
        line, drawn = self.line, self.drawn
        if drawn.owner is not None:
            line.own(drawn.owner.uid)
        cut_off = drawn.act in SERVICES and drawn.trouble in AT_POINT
        if drawn.act in SERVICES:
            cut_off |= "its time was over" in self._service().text
        else:
            self._batch()
        if drawn.keyless:
            line.put_keyless()
        self.settled("run-2")
        if cut_off:
            self.served("run-2s")
        if drawn.service is not None:
            self.note("service", self.at(HOME, [drawn.service.value], "run-3"))
        line.put(10)
        # Its times have to come; settle waits for them only where it writes something.
        time.sleep(max(drawn.host.clock, 0))
        self.healthy("run-4")
        if not drawn.ordered:
            self.read_all("run-5")
        if drawn.owner is not None:
            line.own(0)  # who looks at it is root, and keeps out of others' tables
        self.count()

    def count(self) -> None:
        """Compares rows with logs, and looks for what is left behind."""
        self.ended.add(count(self.line))
        self.ended.wrong += self.wrong

    def note(self, what: str, told: Told) -> Told:
        """Remembers how a part of the world went."""
        self.ended.notes.append(f"{what}: {told}")
        return told

    # Parts of a run.

    def _batch(self) -> None:
        drawn, line = self.drawn, self.line
        before, after = BATCH[: BATCH.index(drawn.act)], BATCH[BATCH.index(drawn.act) + 1 :]
        change_shards(line, lambda: (self.healthy if drawn.ordered else self.read_all)("run-0s"))
        line.put()
        if drawn.act is Step.SETTLE:
            self._leave()
        told = self.steps([step.value for step in before], "run-1")
        if before and not self.note("before", told).ok:
            return
        if drawn.shards is Shards.EDGE:
            expire_oldest(line)
        if drawn.trouble is Trouble.EARLY and after:
            self.note("early", self.steps([after[0].value], "run-1", told))
        if drawn.trouble is not Trouble.SKIPPED:
            told = self._acted("run-1", told)
            if drawn.act is Step.PLAN and Step.PLAN.value in told.done and not told.transaction:
                return
        if drawn.trouble is Trouble.FORGOTTEN or (not told.ok and drawn.trouble is not Trouble.LEDGER_BETWEEN):
            return
        self._others("run-1")
        if after:
            told = self.note("after", self.steps([step.value for step in after], "run-1", told))
            if drawn.trouble is Trouble.TWIN and told.error == "Fenced":
                raise Jammed(f"another Airflow's run took a batch that is at work: {told}")

    def _leave(self) -> None:
        """Leaves a batch to be settled: a prepared one is committed, any other rolled back."""
        line, point = self.line, self.drawn.point
        commits = line.rng.random() < 0.5 if point is None else point.value.startswith("commit")
        steps = [Step.PLAN, Step.OPEN, Step.APPEND, *([Step.RECORD] if commits else [])]
        self.note("left", self.steps([step.value for step in steps], "run-0b"))
        line.put(10)

    def _others(self, run: str) -> None:
        """Another run looks at the pipeline while the batch is at work: one that decides it, or that of another
        Airflow with the same names."""
        if self.drawn.trouble is Trouble.RIVAL:
            self.note("rival", self.steps([Step.SETTLE.value, Step.PLAN.value], f"{run}b"))
        if self.drawn.trouble is not Trouble.TWIN:
            return
        working = self.line.work(run)
        twin = replace(working, run=replace(working.run, airflow="another"))
        settled = settle(twin, lambda of: None)
        try:
            planned = plan.tail(twin)
        except BatchUnderWay:
            planned = None
        self.ended.notes.append(f"twin: decided {settled}, planned {planned}")

    def _service(self) -> Told:
        drawn, line = self.drawn, self.line
        waiting = Told()
        if drawn.prepared:
            line.put(10)
            begun = [step.value for step in BATCH[:-1]]
            waiting = self.note("beside", self.steps(begun, "run-0b"))
        told = self._acted("run-1", Told())
        if drawn.prepared and waiting.ok and line.rng.random() < 0.5:
            self.note("beside", self.steps([Step.COMMIT.value], "run-0b", waiting))
        return told

    def _acted(self, run: str, told: Told) -> Told:
        """Carries the drawn step out with its trouble.

        Raises:
            Jammed: it had none, and failed on a host whose clock is right, so that it would do so each time.
        """
        drawn = self.drawn
        told = self.note(drawn.act.value, self._troubled([drawn.act.value], run, told))
        untroubled = drawn.trouble is Trouble.NONE or bool(self.ended.missed)
        # A busy machine may need more than the driver's time, cut short or not.
        slow = drawn.trouble in STANDING or "its time was over" in told.text
        timed = drawn.host.clock or drawn.host.ledger_clock or drawn.host.container or slow
        if untroubled and not told.ok and not timed and drawn.owner is None and not self._lacking():
            raise Jammed(f"{drawn.act.value} cannot be done on this host: {told}")
        return told

    def _lacking(self) -> bool:
        """Whether what there is to read is gone, which is an error on every host."""
        return self.drawn.shards in (Shards.SPLIT_UNREAD_GONE, Shards.EXPIRED, Shards.EDGE)

    # Where steps are carried out.

    def at(self, host: Host, steps: list[str], run: str, told: Told | None = None, **more: Any) -> Told:
        """Carries steps out on a host, here where it is home, and goes on with a transaction that `told` names."""
        told = told or Told()
        if host is HOME and not more:
            return self.here(steps, run, told)
        away = self._away(host, steps, run, told, **more)
        try:
            away.wait(END_SECONDS)
        finally:
            away.kill()
        return away.told()

    def steps(self, steps: list[str], run: str, told: Told | None = None) -> Told:
        """Steps without trouble, each where it was drawn to be; an error ends them."""
        told, drawn = told or Told(), self.drawn
        done: list[str] = []
        usual = drawn.owner or HOME
        groups: list[tuple[Host, list[str]]] = []
        for step in steps:
            host = drawn.host if drawn.early is not None and step == drawn.early.value and run == "run-1" else usual
            if groups and groups[-1][0] == host:
                groups[-1][1].append(step)
            else:
                groups.append((host, [step]))
        for host, group in groups:
            told = self.at(host, group, run, told)
            done += told.done
            if not told.ok or (Step.PLAN.value in group and not told.transaction):
                break
        return replace(told, done=tuple(done))

    def here(self, steps: list[str], run: str, told: Told, url: str = "") -> Told:
        """Carries steps out here, with this process's session."""
        told = carry_out(self.line.work(run, url), steps, told.transaction, told.token)
        if isinstance(told.cause, Py4JError):
            # By a launcher of its own the driver's error would be that of a job.
            return replace(told, error="JobFailed", text=_cause(told.cause))
        return told

    def _away(self, host: Host, steps: list[str], run: str, told: Told, url: str = "", **more: Any) -> Away:
        line = self.line
        times = _SHORT if host.container or self.drawn.trouble in STANDING else {}
        if self.drawn.ledger_disk:
            times = {**times, **_IN_VAIN}
        setup = {
            "pipeline": line.pipeline.model_dump(mode="json"),
            "ledger": url or line.url,
            "run": run,
            "steps": steps,
            "transaction": told.transaction,
            "token": told.token,
            "times": times,
            **more,
        }
        return Away(host, setup, line.folder, line.server.connection().to_env())

    # Troubles.

    def _troubled(self, steps: list[str], run: str, told: Told) -> Told:
        drawn = self.drawn
        if drawn.trouble in AT_POINT:
            assert drawn.point is not None
            self.holds.arm(drawn.point)
            away = self._away(drawn.host, steps, run, told)
            try:
                return self._at_point(away, drawn.point)
            finally:
                self.holds.release(drawn.point)
                away.kill()
        with self._edited() as changed:
            if drawn.trouble is Trouble.LEDGER_BETWEEN:
                # A person marks the settle that stopped a success, and the rest goes on with the other ledger.
                self.note("marked", self.here([Step.SETTLE.value], "run-1c", Told(), changed))
                return self.here([step.value for step in BATCH[1:]], "run-1c", Told(), changed)
            told = self.at(drawn.host, steps, run, told, **({"url": changed} if changed else {}))
            if drawn.trouble is Trouble.NO_TABLE and not told.ok and isinstance(command := command_for(told), str):
                # A person does at once what the error says; while nothing is mounted that may only be to wait.
                if command != AGAIN:
                    self.wrong.append(f"`{command}` is asked for where the table is only away")
                self._obey(command, told, "run-1o")
            if drawn.trouble is Trouble.TWICE:
                self.note("first", told)
                told = self.at(HOME, steps, run, told)
        return told

    def _at_point(self, away: Away, point: Point) -> Told:
        drawn = self.drawn
        try:
            held = self.holds.wait(point, away.child)
        except NotAsPlanned as error:
            if away.child.poll() is None:
                raise
            # An odd host's step may well end before: then the world is one without its trouble.
            self.ended.missed = str(error)
            return away.told()
        away.processes()
        if drawn.trouble is Trouble.KILL:
            assert drawn.victim is not None
            kill(away.victim(drawn.victim, held))
        elif drawn.trouble in DISKS:
            with self.full_disk(drawn.trouble):
                self.holds.release(point)
                away.wait(END_SECONDS)
            return away.told()
        else:
            self._stand_still(away)
        self.holds.release(point)
        away.wait(END_SECONDS)
        return away.told()

    def _stand_still(self, away: Away) -> None:
        """Stops all processes of a step, lets others decide, and lets them go on."""
        stopped = away.processes()
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        since = time.monotonic()
        self.line.put(10)
        try:
            self.settled("run-1b")
        except Jammed as error:
            if "database is locked" not in str(error) or not _hold_locks(stopped, self.line.folder / "ledger"):
                raise
            # SQLite's lock is the machine's own: it ends with the process, or once that goes on.
            self.ended.notes.append("the ledger is locked meanwhile")
        finally:
            if self.drawn.trouble is Trouble.SLEEP:
                (self.line.folder / "slept").write_text(str(time.monotonic() - since))
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    @contextmanager
    def full_disk(self, trouble: Trouble) -> Iterator[None]:
        """A disk that takes no more while the block runs."""
        disk = self.line.disk
        filler = disk / "filler"
        filler.mkdir()
        remount = ["mount", "-o", "remount,ro", str(disk)]
        # The disk stays as it is while a task has a file open for writing: then it is filled.
        is_read_only = trouble is Trouble.READ_ONLY and not subprocess.run(remount, check=False).returncode
        if is_read_only:
            pass
        elif trouble is not Trouble.INODES:
            with (filler / "one").open("wb", buffering=0) as file:
                with suppress(OSError):
                    while True:
                        file.write(b"\0" * PAGE)
                file.truncate(max(0, file.tell() // PAGE - self.drawn.pages) * PAGE)
        else:
            with suppress(OSError):
                for number in range(1 << 20):
                    (filler / str(number)).touch()
        try:
            yield
        finally:
            if is_read_only:
                subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            shutil.rmtree(filler)

    @contextmanager
    def _edited(self) -> Iterator[str]:
        """What somebody changed while the block runs; gives the URL of the ledger where it is another one."""
        line, trouble = self.line, self.drawn.trouble
        before, made = line.pipeline, line.pipeline.model_dump(mode="json")
        away, url = line.table.with_name("not mounted"), ""
        if trouble is Trouble.NO_TABLE:
            line.table.rename(away)
        elif trouble is Trouble.OTHER_PATH:
            made["table"]["path"] += "_2"
        elif trouble is Trouble.OTHER_LOGSTORE:
            made["source"]["logstore"] = OTHER
        elif trouble is Trouble.MORE_COLUMNS:
            made["columns"].append({"name": "added", "type": "bigint"})
        elif trouble is Trouble.LESS_COLUMNS:
            made["columns"] = [column for column in made["columns"] if column["name"] not in ("clicks", "score")]
        elif trouble in (Trouble.OTHER_LEDGER, Trouble.LEDGER_BETWEEN):
            url = f"sqlite:///{line.folder / 'ledger' / 'other.db'}"
            migrate(open_engine(url))
        line.pipeline = Pipeline.model_validate(made)
        try:
            yield url
        finally:
            if trouble is not Trouble.MORE_COLUMNS:
                line.pipeline = before
            if trouble is Trouble.NO_TABLE:
                # What was written meanwhile lies below the mount point.
                shutil.rmtree(line.table, ignore_errors=True)
                away.rename(line.table)

    # How it goes on.

    def settled(self, run: str) -> None:
        """A run that decides what is left and reads what there is, with no more than the commands that errors name.

        Raises:
            Jammed: they do not help.
        """
        wanted = [step.value for step in BATCH]
        for number in range(MOST_COMMANDS + 1):
            told = self.steps(wanted, f"{run}-{number}")
            if told.ok:
                self.note("then", told)
                return
            command = command_for(told)
            self.note("error", told)
            if callable(command):
                command = command(self.line) or AGAIN
            done = self._obey(command, told, f"{run}-{number}c")
            if not done.ok and isinstance(more := command_for(done), str):
                self._obey(more, done, f"{run}-{number}d")
        raise Jammed(f"{MOST_COMMANDS} commands did not help: {told}")

    def _obey(self, command: str, told: Told, run: str) -> Told:
        """Carries out what an error names, if that is a command."""
        if command == AGAIN:
            return Told()
        return self.note(command, self.steps([command], run, Told(transaction=str(told.ids.get("transaction") or ""))))

    def served(self, run: str, service: Step | None = None) -> None:
        """The next run of a service, the drawn one unless named, which ends what is left of the one before, once its
        times have come.

        Raises:
            Jammed: it does not.
        """
        service = service or self.drawn.act
        told = self.note("next", self.at(HOME, [service.value], run))
        deadline = time.monotonic() + END_SECONDS
        while told.error == LeaseHeld.__name__ and time.monotonic() < deadline:
            # A full ledger could not be told that a decision is over: it ends by its time.
            time.sleep(1)
            told = self.note("next", self.at(HOME, [service.value], run))
        if not told.ok:
            command = command_for(told)
            if callable(command):
                command = command(self.line) or AGAIN
            self._obey(command, told, f"{run}-c")
            told = self.note("next", self.at(HOME, [service.value], f"{run}-later"))
        if not told.ok:
            raise Jammed(f"the next {service.value}: {told}")

    def read_all(self, run: str) -> None:
        """Runs until nothing is unread.

        Raises:
            Jammed: that never comes.
        """
        for number in range(_MOST_BATCHES):
            told = self.steps([step.value for step in BATCH], f"{run}-{number}")
            if not told.ok:
                raise Jammed(f"a run of several: {told}")
            if not told.transaction:
                return
        raise Jammed(f"{_MOST_BATCHES} batches did not read all that was put")

    def healthy(self, run: str) -> None:
        """A run that has nothing to decide, and commits what was put.

        Raises:
            Jammed: it does not.
        """
        told = self.steps([step.value for step in BATCH], run)
        if not told.ok:
            raise Jammed(f"a healthy run: {told}")
        newest = self.line.work(run).ledger.latest_committed(self.line.pipeline.name)
        if newest is None or newest.run_id != run or newest.state is not State.COMMITTED:
            raise Jammed(f"a healthy run committed nothing: {told}")


def _cause(error: Exception) -> str:
    """What is at the bottom of a Java error, behind what is at its top."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by")]
    return " ".join([str(failure(error)), *causes[-1:]])


def _hold_locks(processes: Iterable[psutil.Process], folder: Path) -> bool:
    """Whether one of the processes has a lock of a file in the folder."""
    files = {str(path.stat().st_ino) for path in folder.iterdir()}
    numbers = {str(process.pid) for process in processes}
    # 1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
    locks = [line.split() for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()]
    return any(lock[-4] in numbers and lock[-3].rpartition(":")[2] in files for lock in locks)
