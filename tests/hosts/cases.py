"""What happens to one of two machines that work on one pipeline, and how it has to end."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url

from airflow_provider_slshudi import exceptions
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import SERVICES, Step, all_cases
from tests.crash.counts import faults
from tests.crash.held import NotAsPlanned
from tests.crash.world import Line, World
from tests.databases import postgres_server
from tests.hosts.machine import Machine, machine
from tests.local.sdk import by_ip
from tests.scenarios import PROJECT
from tests.waiting import until
from tests.worlds.draw import BATCH
from tests.worlds.host import Steps, Told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = {"COMMIT_SECONDS": 40.0, "LEASE_SECONDS": 43.0}
"""Long enough for a driver to start on a busy machine; the lease ends a moment after it."""
_AGAIN_SECONDS, _TRIES = 5.0, 40
_END_SECONDS = 400.0


class Trouble(str, Enum):
    """What happens to the machine whose step is held."""

    VANISHES = "vanishes with its disk"
    STANDS_STILL = "stands still"
    CUT_OFF = "is cut off"


@dataclass(frozen=True)
class Case:
    """A step on the first machine, the point where its trouble comes, and how far the second one's clock is ahead."""

    step: Step
    point: Point
    trouble: Trouble
    ahead: int = 0

    def __str__(self) -> str:
        clock = f", the other's clock {self.ahead} s ahead" if self.ahead else ""
        return f"{self.step.value} at {self.point.value}, its machine {self.trouble.value}{clock}"


def all_of_them() -> list[Case]:
    """Every step of a batch x every point that it reaches x every trouble; clocks take turns."""
    reached = dict.fromkeys((case.step, case.point) for case in all_cases() if case.step not in SERVICES)
    clocks = (0, 120, -120)
    return [
        Case(step, point, trouble, clocks[number % len(clocks)])
        for number, (step, point) in enumerate(reached)
        for trouble in Trouble
    ]


class Pair:
    """A pipeline of a case and the two machines that work on it; nothing tells one machine from the other but the
    kernel: both have one name and one boot."""

    def __init__(self, line: Line, first: Machine, second: Machine) -> None:
        self.line, self.first, self.second = line, first, second
        self.runs = 0

    def start(
        self,
        where: Machine,
        steps: list[str],
        transaction: Transaction | None = None,
        points: Path | None = None,
        **more: Any,
    ) -> Steps:
        """Starts steps of a new run, or of the transaction's; `more` is for `Machine.steps`.

        Whoever may be held at a point has drivers of its own.
        """
        self.runs += 1
        run = transaction.run_id if transaction else f"run-{self.runs + 10}"
        setup = {
            "pipeline": self.line.work.pipeline.model_dump(mode="json"),
            "ledger": self.line.ledger_url,
            "run": run,
            "steps": steps,
            "times": TIMES,
            **({"transaction": transaction.id, "token": transaction.token} if transaction else {}),
            "launcher": "submit" if points else "resident",
        }
        told = self.line.folder / f"told-{self.runs}.json"
        secrets = self.line.world.server.connection().to_env()
        return where.steps(setup, told, secrets, points, **more)

    def batch(self, where: Machine, **more: Any) -> list[Told]:
        """A whole run, tried again where errors say so, as Airflow does; gives how each try went.

        Raises:
            AssertionError: it did not end well.
        """
        tries: list[Told] = []
        for _ in range(_TRIES):
            started = self.start(where, [step.value for step in BATCH], **more)
            try:
                started.wait(_END_SECONDS)
            finally:
                started.kill()
            tries.append(started.told())
            if tries[-1].ok:
                return tries
            kind = getattr(exceptions, tries[-1].error, Exception)
            assert issubclass(kind, exceptions.TransientError), f"a person has to act: {tries[-1]}"
            time.sleep(_AGAIN_SECONDS)
        raise AssertionError(f"no batch in {_TRIES} tries: {tries[-1]}")

    def ends_well(self, ahead: int) -> None:
        """Reads what is left and a healthy batch more, on the second machine with its clock.

        Raises:
            AssertionError: counts are not exact.
        """
        self.line.put(10)
        self.batch(self.second, ahead=ahead)
        self.line.put(10)
        assert len(self.batch(self.second, ahead=ahead)) == 1, "the healthy run had to be tried again"
        found = [*faults(self.line.work, self.line.world.logs), *self.line.world.spark_faults(self.line.work)]
        assert found == [], "; ".join(found)


@contextmanager
def world(folder: Path, spark: SparkSession) -> Iterator[World]:
    """Pipelines whose tables are in a folder that all machines see, and whose ledgers are in a PostgreSQL server."""
    with LocalSls(folder / "sls") as server, postgres_server() as database:
        by_ip(server.connection()).create_project(PROJECT, "tests")
        yield World(folder, spark, server, "hosts", database=database.url)


@contextmanager
def pair(made: World, name: str) -> Iterator[Pair]:
    """A pipeline with a batch committed and logs waiting, and two machines."""
    with made.line(name) as line:
        service, ledger = made.server.endpoint.rpartition(":")[2], make_url(line.ledger_url).port
        ports = [int(service), ledger or 0]
        with machine(line.folder / "disk-1", ports) as first, machine(line.folder / "disk-2", ports) as second:
            yield Pair(line, first, second)


def run_case(made: World, case: Case) -> str:
    """Carries a case out; gives how it went on the second machine.

    Raises:
        AssertionError, NotAsPlanned: it did not end well.
    """
    with pair(made, re.sub(r"\W+", "-", str(case))) as two:
        line, holds = two.line, two.line.holds()
        if case.step is Step.SETTLE:
            # A prepared batch is committed, any other rolled back.
            line.before(Step.COMMIT if case.point.value.startswith("commit") else Step.RECORD, "run-0b")
            transaction = None
        else:
            transaction = line.before(case.step)
        holds.arm(case.point)
        step = two.start(two.first, [case.step.value], transaction, points=holds.folder)
        try:
            try:
                holds.wait(case.point, step.child)
            except NotAsPlanned as error:
                raise NotAsPlanned(f"{error}: {step.last_words()}") from error
            _befalls(case.trouble, two.first)
            holds.release(case.point)
            tries = two.batch(two.second, ahead=case.ahead)
            two.first.go_on()
            two.first.reconnect()
            until("the end of the step", partial(_has_ended, step.child), _END_SECONDS)
        finally:
            step.kill()
        two.ends_well(case.ahead)
        waited = [told.error for told in tries if not told.ok]
        return f"{len(waited)} waited for ({', '.join(sorted(set(waited)))})" if waited else "at once"


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Also wakes it: nsenter stands still where its child did, even if it hears of that when the child goes on."""
    child.send_signal(signal.SIGCONT)
    return child.poll() is not None


def _befalls(trouble: Trouble, first: Machine) -> None:
    if trouble is Trouble.VANISHES:
        first.vanish()
    elif trouble is Trouble.STANDS_STILL:
        first.stand_still()
        first.cut_off()
    else:
        first.cut_off()
