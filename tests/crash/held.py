"""A step in a child process that is held at a point, and the processes around it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_slshudi.spark.driver import resident_driver
from airflow_provider_slshudi.spark.launch import APPLICATION
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Victim
from tests.machine import arguments_of
from tests.points import RESIDENT, armed_in
from tests.residents import drivers
from tests.waiting import LONGEST_SECONDS


class NotAsPlanned(Exception):
    """A point that was not reached, a victim that was not there, a process that does not end."""


class Holds:
    """A folder of points at which whoever comes first is held."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def arm(self, point: Point) -> None:
        """The next one to reach the point waits there."""
        (self.folder / point.value).write_text("hold")

    def end(self, point: Point) -> None:
        """The next one to reach the point dies there."""
        (self.folder / point.value).write_text("die")

    def claimed(self, point: Point) -> int | None:
        """The process that waits at the point."""
        return next((int(file.name.rpartition(".")[2]) for file in self.folder.glob(f"{point.value}.*")), None)

    def wait(self, point: Point, child: subprocess.Popen[bytes] | None = None, seconds: float = LONGEST_SECONDS) -> int:
        """Waits until somebody is held at the point; gives the process id."""
        deadline = time.monotonic() + seconds
        while (pid := self.claimed(point)) is None:
            if child is not None and child.poll() is not None:
                raise NotAsPlanned(f"the step ended ({child.returncode}) and did not reach {point.value}")
            if time.monotonic() > deadline:
                raise NotAsPlanned(f"{point.value} was not reached in {seconds:.0f} s")
            time.sleep(0.02)
        return pid

    def release(self, point: Point) -> None:
        """Lets whoever is held go on, and nobody else be held."""
        (self.folder / point.value).unlink(missing_ok=True)
        for file in self.folder.glob(f"{point.value}.*"):
            file.unlink(missing_ok=True)


class Child:
    """A module of the tests in a process of its own, and all that it starts; `log` gets what they print."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        place: Path | None = None,
        umask: int = -1,
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self.child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=place,
                umask=umask,
            )
        self._seen: set[psutil.Process] = set()

    def processes(self) -> list[psutil.Process]:
        """The step's process and all that it started, as far as the tree holds together."""
        try:
            root = psutil.Process(self.child.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        self._seen.update(tree)
        return tree

    def residents(self) -> list[psutil.Process]:
        """The processes that stay when their job is done, as far as they are known."""
        return []

    def victim(self, victim: Victim, held: int) -> psutil.Process:
        """The process of the step's tree that a case kills."""
        tree = self.processes()
        if victim is Victim.TASK:
            return tree[0]
        return victim_of(victim, held, [*tree, *self.residents()])

    def wait(self, seconds: float = LONGEST_SECONDS) -> int:
        """Waits until the step and everything that it started have ended; gives its exit code.

        Raises:
            NotAsPlanned: something goes on.
        """
        try:
            code = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise NotAsPlanned(f"the step does not end: {self.last_words()}") from None
        _, alive = psutil.wait_procs(self._seen, timeout=LONGEST_SECONDS)
        if alive:
            raise NotAsPlanned(f"outlives its task process: {[arguments_of(process)[:6] for process in alive]}")
        return code

    def kill(self) -> None:
        """Ends whatever of it is left."""
        self.processes()
        for process in (*self._seen, *self.residents()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.child.wait()

    def last_words(self) -> str:
        """The end of what it printed."""
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])[-600:]


class HeldStep(Child):
    """A step in a process of its own: `tests.exact.step`; a `resident` one lets a process that stays do its job."""

    def __init__(
        self, setup: Mapping[str, Any], holds: Holds, secrets: Mapping[str, str], log: Path, resident: bool = False
    ) -> None:
        variables = {**os.environ, **secrets, **armed_in(holds.folder)}
        # Resident processes of its own, in a folder short enough for a socket's name.
        self._residents = Path(tempfile.mkdtemp(prefix="sls-", dir="/tmp")) if resident else None
        if self._residents is not None:
            # Elsewhere a driver that is to be held is one of its own; here it is the first job of one that stays.
            variables |= {"TMPDIR": str(self._residents), RESIDENT: "1"}
        told = {"launcher": "resident" if resident else "submit", **setup}
        super().__init__([sys.executable, "-m", "tests.exact.step", json.dumps(told)], variables, log)

    def residents(self) -> list[psutil.Process]:
        return [] if self._residents is None else drivers(self._residents)

    def kill(self) -> None:
        super().kill()
        if self._residents is not None:
            shutil.rmtree(self._residents, ignore_errors=True)


def victim_of(victim: Victim, held: int, tree: list[psutil.Process]) -> psutil.Process:
    """The worker, JVM or Python driver among `tree`; a worker's victim is the one that is held."""
    if victim is Victim.WORKER:
        return psutil.Process(held)
    for process in tree:
        arguments = arguments_of(process)
        # spark-submit's shell becomes the JVM; the driver's interpreter is started with the application first.
        if victim is Victim.JVM and arguments and arguments[0].endswith("java"):
            return process
        if victim is Victim.PYTHON_DRIVER and any(map(_is_application, arguments[1:2])):
            return process
    raise NotAsPlanned(f"no {victim.value} to kill among {[arguments_of(process)[:3] for process in tree]}")


def _is_application(path: str) -> bool:
    """Whether it is the application, be it a copy of it at another place."""
    return any(Path(path).parts[-3:] == Path(driver).parts[-3:] for driver in (APPLICATION, resident_driver.__file__))


def kill(process: psutil.Process) -> None:
    """SIGKILL, and waits until nothing of it runs; a child of ours is left to be reaped by its Popen."""
    process.kill()
    deadline = time.monotonic() + 20
    while not is_over(process):
        if time.monotonic() > deadline:
            raise NotAsPlanned(f"process {process.pid} does not die")
        time.sleep(0.01)


def is_over(process: psutil.Process) -> bool:
    """Whether it ended with all its threads, be it reaped or not."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE and process.num_threads() < 2)
    except psutil.NoSuchProcess:
        return True
