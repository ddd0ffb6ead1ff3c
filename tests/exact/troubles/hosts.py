"""A machine is lost, cut off or stands still while another one works on the same pipeline."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url

from airflow_provider_slshudi import exceptions
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import BATCH, SERVICES, Step, all_cases
from tests.crash.held import NotAsPlanned
from tests.crash.world import Line, World
from tests.databases import postgres_server
from tests.exact.outcome import Outcome, each
from tests.exact.step import Told
from tests.exact.trouble import Trouble, chosen
from tests.exact.world import log_service
from tests.hosts.machine import Machine, machine
from tests.sessions import start_spark
from tests.waiting import until
from tests.worlds.host import Steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TIMES = {"COMMIT_SECONDS": 40.0, "LEASE_SECONDS": 43.0}
"""Long enough for a driver to start on a busy machine; the lease ends a moment after it."""
_AGAIN_SECONDS, _TRIES = 5.0, 40
_END_SECONDS = 400.0


class Loss(str, Enum):
    """What happens to the machine whose step is held."""

    VANISHES = "vanishes with its disk"
    STANDS_STILL = "stands still"
    CUT_OFF = "is cut off"


@dataclass(frozen=True)
class Case:
    """A step on the first machine, the point where its machine is lost, and how far the second one's clock is ahead."""

    step: Step
    point: Point
    loss: Loss
    ahead: int = 0

    def __str__(self) -> str:
        clock = f", the other's clock {self.ahead} s ahead" if self.ahead else ""
        return f"{self.step.value} at {self.point.value}, its machine {self.loss.value}{clock}"


def all_of_them() -> list[Case]:
    """Every step of a batch x every point that it reaches x every loss; clocks take turns."""
    reached = dict.fromkeys((case.step, case.point) for case in all_cases() if case.step not in SERVICES)
    clocks = (0, 120, -120)
    return [
        Case(step, point, loss, clocks[number % len(clocks)])
        for number, (step, point) in enumerate(reached)
        for loss in Loss
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
        begun: Mapping[str, Any] | None = None,
        points: Path | None = None,
        **more: Any,
    ) -> Steps:
        """Starts steps of a new run, or of the batch that was `begun`; `more` is for `Machine.steps`.

        Whoever may be held at a point has drivers of its own.
        """
        self.runs += 1
        run = "run-1" if begun else f"run-{self.runs + 10}"
        setup = {
            "pipeline": self.line.work.pipeline.model_dump(mode="json"),
            "ledger": self.line.ledger_url,
            "run": run,
            "steps": steps,
            "times": TIMES,
            **(begun or {}),
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
        self.line.count().require()


@contextmanager
def world(folder: Path, spark: SparkSession) -> Iterator[World]:
    """Pipelines whose tables are in a folder that all machines see, and whose ledgers are in a PostgreSQL server."""
    with log_service(folder) as server, postgres_server() as database:
        yield World(folder, spark, server, "hosts", database=database.url)


@contextmanager
def pair(made: World, name: str) -> Iterator[Pair]:
    """A pipeline with a batch committed and logs waiting, and two machines."""
    with made.line(name) as line:
        service, ledger = made.server.endpoint.rpartition(":")[2], make_url(line.ledger_url).port
        ports = [int(service), ledger or 0]
        with machine(line.folder / "disk-1", ports) as first, machine(line.folder / "disk-2", ports) as second:
            yield Pair(line, first, second)


def run_case(made: World, case: Case, outcome: Outcome) -> None:
    """Carries a case out; notes how it went on the second machine.

    Raises:
        AssertionError, NotAsPlanned: it did not end well.
    """
    with pair(made, re.sub(r"\W+", "-", str(case))) as two:
        line, holds = two.line, two.line.holds()
        begun = line.begin(case.step, case.point, "run-1")
        holds.arm(case.point)
        step = two.start(two.first, [case.step.value], begun, points=holds.folder)
        try:
            try:
                holds.wait(case.point, step.child)
            except NotAsPlanned as error:
                raise NotAsPlanned(f"{error}: {step.last_words()}") from error
            _befalls(case.loss, two.first)
            holds.release(case.point)
            tries = two.batch(two.second, ahead=case.ahead)
            two.first.go_on()
            two.first.reconnect()
            until("the end of the step", partial(_has_ended, step.child), _END_SECONDS)
        finally:
            step.kill()
        two.ends_well(case.ahead)
        waited = [told.error for told in tries if not told.ok]
        outcome.logs = line.world.logs
        outcome.notes.append(f"{len(waited)} waited for ({', '.join(sorted(set(waited)))})" if waited else "at once")


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Also wakes it: nsenter stands still where its child did, even if it hears of that when the child goes on."""
    child.send_signal(signal.SIGCONT)
    return child.poll() is not None


def _befalls(loss: Loss, first: Machine) -> None:
    if loss is Loss.VANISHES:
        first.vanish()
    elif loss is Loss.STANDS_STILL:
        first.stand_still()
        first.cut_off()
    else:
        first.cut_off()


class Hosts(Trouble[Case]):
    """Two machines of namespaces (root): one is lost, cut off or stands still at every point of a batch."""

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--point", choices=[point.value for point in Point], action="append")
        parser.add_argument("--step", choices=sorted({case.step.value for case in all_of_them()}), action="append")
        parser.add_argument("--machine", choices=[loss.name for loss in Loss], action="append")

    def cases(self, options: Namespace) -> Sequence[Case]:
        return [
            case
            for case in all_of_them()
            if chosen(options, point=case.point.value, step=case.step.value, machine=case.loss.name)
        ]

    def run(self, cases: Sequence[Case], options: Namespace, folder: Path) -> Iterator[Outcome]:
        spark = start_spark()
        with world(folder, spark) as made:
            yield from each(cases, lambda case, outcome: run_case(made, case, outcome))
        spark.stop()
