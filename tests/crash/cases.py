"""The cases of the crash matrix, made from the points that the package names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_provider_slshudi.system.points import Point, Where


class Victim(str, Enum):
    """Who gets SIGKILL while a process is held at a point; but who is woken gets it later (`woken_cases`)."""

    WORKER = "worker"
    WOKEN = "woken"
    JVM = "jvm"
    PYTHON_DRIVER = "python-driver"
    TASK = "task"
    SCHEDULER = "scheduler"


_OF_TASK = (Victim.TASK, Victim.SCHEDULER)
_OF_DRIVER = (Victim.JVM, Victim.PYTHON_DRIVER, *_OF_TASK)
# Who is alive while a process waits at a point of this kind.
ALIVE = {Where.TASK: _OF_TASK, Where.DRIVER: _OF_DRIVER, Where.WORKER: (Victim.WORKER, *_OF_DRIVER)}


class Step(str, Enum):
    """The steps; a point's first word says which one reaches it, but for rollbacks."""

    SETTLE = "settle"
    PLAN = "plan"
    OPEN = "open"
    APPEND = "append"
    RECORD = "record"
    COMMIT = "commit"
    CLEAN = "clean"
    ARCHIVE = "archive"
    CLUSTER = "cluster"
    COMPACT = "compact"
    METADATA = "metadata"


BATCH = (Step.SETTLE, Step.PLAN, Step.OPEN, Step.APPEND, Step.RECORD, Step.COMMIT)
"""The steps of a run, in their order."""
SERVICES = (Step.CLEAN, Step.ARCHIVE, Step.CLUSTER, Step.COMPACT, Step.METADATA)
"""Steps of no batch, in a DAG of their own. They have no token: one that is started twice waits for the lease."""


@dataclass(frozen=True)
class Case:
    """One step, held at a point that it reaches, and the process that is killed there."""

    step: Step
    point: Point
    victim: Victim

    def __str__(self) -> str:
        victim = "worker woken and" if self.victim is Victim.WOKEN else self.victim.value
        return f"{self.step.value} at {self.point.value}, {victim} killed"


def woken_cases() -> list[Case]:
    """A worker stands still until its batch is given up, goes on, and dies if its file gets its name."""
    return [Case(Step.APPEND, point, Victim.WOKEN) for point in Point if point.where is Where.WORKER]


def steps_of(point: Point) -> list[Step]:
    """The steps that reach a point. Settle too commits what was prepared and left; a rewriting undoes a dead one.

    A change of the table's version is no step, and nothing is under way beside it: tests/transaction/test_version.py.
    """
    first = point.value.partition("-")[0]
    if first == "version":
        return []
    if first == "rollback":
        return [Step.SETTLE, Step.CLUSTER, Step.COMPACT]
    by_settle = first == "commit" and point is not Point.COMMIT_LEASED
    return [Step(first), *([Step.SETTLE] if by_settle else [])]


def all_cases() -> list[Case]:
    """Every step x every point that it reaches x everybody who is alive there, the scheduler for batches alone."""
    return [
        Case(step, point, victim)
        for point in Point
        for step in steps_of(point)
        for victim in ALIVE[point.where]
        if step not in SERVICES or victim is not Victim.SCHEDULER
    ]
