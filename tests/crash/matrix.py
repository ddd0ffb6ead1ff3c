"""One case of the matrix without Airflow: worker, driver or task process killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import SERVICES, Case, Step, Victim
from tests.crash.held import HeldStep, kill
from tests.crash.world import Line, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_case(worlds: Callable[[Step], World], case: Case) -> str:
    """Carries a case out in the world of its step; gives what the next run decided.

    Raises:
        NotAsPlanned: the point was not reached, the victim not found, or somebody does not end.
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
        return f"step ended {code}, then {', '.join(decided) or 'nothing to decide'}"


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
    if case.step is Step.SETTLE:
        # A commit is settle's where the batch was prepared; everything else that it does, where it was not.
        line.before(Step.COMMIT if case.point.value.startswith("commit") else Step.RECORD, "run-0b")
        holds.arm(case.point)
        return line.held(case.step, holds)
    begun = line.before(case.step)
    holds.arm(case.point)
    more: dict[str, Any] = {"transaction": begun.id, "token": begun.token} if begun else {}
    return line.held(case.step, holds, **more)


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
    """The next run gives the batch up, then whoever is held goes on; gives the step's exit code."""
    decided, holds = line.settle("run-2"), line.holds()
    assert decided == ["ROLL_BACK_AND_ABORT"], f"the batch of who stands still was decided otherwise: {decided}"
    holds.end(Point.APPEND_TASK_NAMED)
    holds.release(case.point)
    code = step.wait()
    assert code != 0, "an append whose batch was given up ended well"
    return code
