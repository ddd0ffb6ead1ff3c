"""A process is killed at a point where state changes."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import SERVICES, Case, Step, Victim, all_cases, woken_cases
from tests.crash.held import HeldStep, kill
from tests.crash.scheduler import Place
from tests.crash.world import Line, World
from tests.exact.outcome import Outcome, each
from tests.exact.trouble import Trouble, chosen
from tests.exact.world import log_service
from tests.hadoop import hadoop
from tests.services import s3_store
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "crash"


def run_case(worlds: Callable[[Step], World], case: Case, outcome: Outcome) -> None:
    """Carries a case out in the world of its step; notes what the next run decided.

    Raises:
        NotAsPlanned: the point was not reached, the victim not found, or a process does not end.
        AssertionError: the case did not end with exact counts and a healthy batch.
    """
    with worlds(case.step).line(f"{case.step.value}-{case.point.value}-{case.victim.value}") as line:
        step = start(line, case)
        try:
            code = crash(line, case, step)
        finally:
            step.kill()
        line.require_mirrors()
        if case.step in SERVICES:
            line.maintained()
        decided = line.ends_well()
        outcome.logs = line.world.logs
        outcome.notes.append(f"step ended {code}, then {', '.join(decided) or 'nothing to decide'}")


def each_its_own(
    folder: Path, spark: SparkSession, server: LocalSls, lake: str = "", resident: bool = False
) -> Callable[[Step], World]:
    """The worlds of the steps, each made when it is first asked for; what compacts upserts, everything else appends.

    Tables lie in `folder`, or below `lake`, the URI of a place in an object store. `resident` as for `World`.
    """

    @cache
    def made(upserts: bool) -> World:
        name = "upserts" if upserts else "lines"
        return World(folder / name, spark, server, name, upserts, lake, resident=resident, mirrors=not lake)

    return lambda step: made(step is Step.COMPACT)


def start(line: Line, case: Case) -> HeldStep:
    """The case's step, started and about to be held at its point."""
    holds = line.holds()
    if case.step in SERVICES:
        line.before_service()
        if case.point.value.startswith("rollback"):
            line.dead(case.step)
        holds.arm(case.point)
        return line.held(case.step, holds, "run-0c")
    begun = line.begin(case.step, case.point, "run-1")
    holds.arm(case.point)
    return line.held(case.step, holds, **begun)


def crash(line: Line, case: Case, step: HeldStep) -> int:
    """Waits for the point, kills, lets the others go on and waits for their end; gives the step's exit code."""
    holds = line.holds()
    held = holds.wait(case.point, step.child)
    step.processes()
    if case.victim is Victim.WOKEN:
        return wake(line, case, step)
    victim = step.victim(case.victim, held)
    kill(victim)
    holds.release(case.point)
    code = step.wait()
    if case.victim is Victim.TASK:
        assert code == -signal.SIGKILL, f"the task process ended by itself ({code})"
    return code


def wake(line: Line, case: Case, step: HeldStep) -> int:
    """The next run gives the batch up, then the held process goes on; gives the step's exit code."""
    decided, holds = line.settle("run-2"), line.holds()
    assert decided == ["ROLL_BACK_AND_ABORT"], f"the batch of who stands still was decided otherwise: {decided}"
    holds.end(Point.APPEND_TASK_NAMED)
    holds.release(case.point)
    code = step.wait()
    assert code != 0, "an append whose batch was given up ended well"
    return code


class Crash(Trouble[Case]):
    """The crash matrix: every process killed at every point where state changes while it is alive."""

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--point", choices=[point.value for point in Point], action="append")
        parser.add_argument("--victim", choices=[victim.value for victim in Victim], action="append")
        parser.add_argument("--step", choices=[step.value for step in Step], action="append")
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--s3", action="store_true", help="tables in an S3 store instead of on this disk")
        where.add_argument("--hdfs", action="store_true", help="tables in HDFS")
        parser.add_argument("--resident", action="store_true", help="a process that stays does the jobs; no schedulers")

    def cases(self, options: Namespace) -> Sequence[Case]:
        asked = [
            case
            for case in (*all_cases(), *woken_cases())
            if chosen(options, point=case.point.value, victim=case.victim.value, step=case.step.value)
            and not (options.resident and case.victim is Victim.SCHEDULER)
        ]
        return sorted(asked, key=lambda case: case.victim is Victim.SCHEDULER)

    def run(self, cases: Sequence[Case], options: Namespace, folder: Path) -> Iterator[Outcome]:
        with ExitStack() as stack:
            server = stack.enter_context(log_service(folder))
            lake = ""
            if options.s3:
                os.environ.update(stack.enter_context(s3_store(BUCKET)))
                lake = f"s3a://{BUCKET}"
            elif options.hdfs:
                cluster = stack.enter_context(hadoop(nodes=0))
                os.environ["HADOOP_CONF_DIR"], lake = str(cluster.settings), f"{cluster.files}/{BUCKET}"
            spark = start_spark(lake if options.s3 else "")
            stack.callback(spark.stop)
            worlds = each_its_own(folder, spark, server, lake, options.resident)
            at_scheduler = [case for case in cases if case.victim is Victim.SCHEDULER]
            others = [case for case in cases if case.victim is not Victim.SCHEDULER]
            yield from each(others, lambda case, outcome: run_case(worlds, case, outcome))
            if at_scheduler:
                with Place(folder / "place", worlds(Step.PLAN)) as place:
                    yield from each(at_scheduler, place.run_case)
