"""Kills, or stops for a while, a random process at random moments, and starts anew what a supervisor would."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime

import psutil

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused, AirflowUnreachable
from tests.chaos.place import Place
from tests.chaos.processes import bury_adopted, by_kind, kind_of

AGAIN_SECONDS = 1.0
CRASHES = {"database": signal.SIGQUIT}
"""Ends of processes that leave children behind, if SIGKILL ends them, and cannot start again beside these."""
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
        weights = self._place.habits.weights
        kind = self._rng.choices(list(weights), list(weights.values()))[0]
        found = by_kind(self._place)[kind]
        if not found:
            self._next = now + AGAIN_SECONDS
            return
        pause = max(LEAST_PAUSE_SECONDS, (now - self._started + FIRST_SECONDS) / (decided + 1))
        self._next = now + self._rng.expovariate(1 / pause)
        victim = self._rng.choice(found)
        with suppress(psutil.NoSuchProcess):
            seconds = self._stopped_for()
            if seconds:
                self._stop(kind, victim, seconds)
            else:
                self.kill(kind, victim)

    def kill(self, kind: str, victim: psutil.Process) -> None:
        """SIGKILL, unless it has become idle since it was chosen."""
        victim.suspend()
        if kind == "worker" and kind_of(victim) != kind:
            victim.resume()
            return
        crash = CRASHES.get(kind, signal.SIGKILL)
        self._note(crash.name, kind, victim)
        victim.send_signal(crash)
        victim.resume()
        self.kills[kind] += 1

    def tend(self) -> None:
        """Starts anew what has ended, and the scheduler where a task is queued for long."""
        self._revive()
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS or not self._place.habits.looks_after_queue:
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

    def _stopped_for(self) -> float:
        """Seconds that the victim stands still; 0 where it is killed."""
        drawn = self._rng.random()
        for share, least, most in self._place.habits.stopped:
            if drawn < share:
                return self._rng.uniform(least, most)
            drawn -= share
        return 0.0

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
        for service in self._place.services.values():
            if not service.runs():
                service.start()
        self._place.airflow.revive()
        self._place.airflow.end_idle_orphans()
        bury_adopted(self._place)

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
