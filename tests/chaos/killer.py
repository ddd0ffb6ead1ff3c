"""Kills, or stops for a while, a random process at random moments, and starts anew what a supervisor would."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime

import psutil

from airflow_provider_slshudi.demo.airflow import AirflowRefused, AirflowUnreachable
from tests.chaos.place import Place
from tests.chaos.processes import by_kind, end_idle_orphans, kind_of

# What is always there is drawn seldom: the others come and go, and a draw of one that is not there is drawn again.
WEIGHTS = {
    "spark-submit JVM": 3,
    "driver": 3,
    "resident process": 2,
    "pyspark worker": 2,
    "task": 3,
    "worker": 2,
    "log service": 0.2,
    "scheduler": 0.2,
    "dag-processor": 0.05,
    "api-server": 0.1,
}
AGAIN_SECONDS = 1.0
STOPPED_SHARE, STOPPED_SECONDS = 0.2, (1.0, 25.0)
LEAST_PAUSE_SECONDS = 4.0
LOOK_SECONDS, QUEUED_SECONDS = 10.0, 60.0
FIRST_SECONDS = 20.0
"""What a transaction may be thought to take before one was decided."""


class Killer:
    """`kills` and `stops` count by kind of process; each is a line of `kills.log`.

    LocalExecutor never learns of a worker that died before its task said that it runs: the task is queued until there
    is a new scheduler, so a supervisor's look at the queue is part of this (`restarts`).

    The mean pause is what a transaction took so far until it was decided, so that about every one is disturbed, and
    yet some get through, however fast the machine is.
    """

    def __init__(self, place: Place, seed: str) -> None:
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.restarts = 0
        self._place, self._rng = place, random.Random(seed)
        self._started = self._next = self._looked = time.monotonic()
        self._stopped: dict[psutil.Process, threading.Timer] = {}
        self._log = place.home / "kills.log"

    def step(self, decided: int) -> None:
        """Does what is due; so many transactions were decided so far."""
        self.tend()
        now = time.monotonic()
        if now < self._next:
            return
        kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        found = by_kind(self._place)[kind]
        if not found:
            self._next = now + AGAIN_SECONDS
            return
        pause = max(LEAST_PAUSE_SECONDS, (now - self._started + FIRST_SECONDS) / (decided + 1))
        self._next = now + self._rng.expovariate(1 / pause)
        victim = self._rng.choice(found)
        with suppress(psutil.NoSuchProcess):
            if self._rng.random() < STOPPED_SHARE:
                self._stop(kind, victim, self._rng.uniform(*STOPPED_SECONDS))
            else:
                self.kill(kind, victim)

    def kill(self, kind: str, victim: psutil.Process) -> None:
        """SIGKILL, unless it has become idle since it was chosen."""
        victim.suspend()
        if kind == "worker" and kind_of(victim) != kind:
            victim.resume()
            return
        self._note("SIGKILL", kind, victim)
        victim.kill()
        self.kills[kind] += 1

    def tend(self) -> None:
        """Starts anew what has ended, and the scheduler where a task is queued for long."""
        self._revive()
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        with suppress(AirflowRefused, AirflowUnreachable, psutil.NoSuchProcess):
            if self._place.queued_seconds() > QUEUED_SECONDS:
                scheduler = psutil.Process(self._place.airflow.pids["scheduler"])
                self._note("SIGKILL for a queue that stands", "scheduler", scheduler)
                scheduler.kill()
                self.restarts += 1
                self._looked += QUEUED_SECONDS

    def end(self) -> None:
        """Lets everything run again."""
        for process, timer in self._stopped.items():
            timer.cancel()
            _resume(process)
        self._stopped.clear()
        self.tend()

    def _stop(self, kind: str, victim: psutil.Process, seconds: float) -> None:
        self._note(f"SIGSTOP for {seconds:.0f} s", kind, victim)
        victim.suspend()
        self.stops[kind] += 1
        self._stopped[victim] = timer = threading.Timer(seconds, _resume, [victim])
        timer.daemon = True
        timer.start()

    def _revive(self) -> None:
        server = self._place.server
        if not _runs(server.pid):
            server.stop()
            server.start()
        self._place.airflow.revive()
        end_idle_orphans(self._place)

    def _note(self, what: str, kind: str, victim: psutil.Process) -> None:
        said = " ".join(victim.cmdline())[-300:]
        with self._log.open("a") as log:
            log.write(f"{datetime.now():%H:%M:%S.%f} {what} {kind} {victim.pid}: {said}\n")


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.resume()
