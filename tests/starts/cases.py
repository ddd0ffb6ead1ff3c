"""The moments at which the workers of a step's task are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

STEPS = ("plan", "open", "append", "record", "commit")
_WITH_AN_END = STEPS[:-1]
"""Steps that leave a batch to the next one."""


class Victim(Enum):
    """What is killed: LocalExecutor's worker supervises the task."""

    TASK = "task"
    WORKER = "worker"
    BOTH = "both"


class Since(Enum):
    """What the milliseconds are counted from: a worker takes the task; the ledger is told that the step is over."""

    TAKEN = "taken"
    OVER = "over"


class Moment(Enum):
    """What Airflow and the ledger show of the task when it is killed."""

    QUEUED = "queued"
    BEGINS = "begins"
    WORKS = "works"
    ENDS = "ends"
    NO_BATCH = "no batch"
    LATE = "too late"


@dataclass(frozen=True)
class Case:
    """One kill, so many milliseconds after `since`."""

    step: str
    victim: Victim
    since: Since
    after: int

    def __str__(self) -> str:
        return f"{self.step}, {self.victim.value} killed {self.after} ms after it was {self.since.value}"


@dataclass(frozen=True)
class Found:
    """What a case came to: seconds until the batch was decided, None where it never was or there is none."""

    case: Case
    moment: Moment
    seconds: float | None
    how: str

    @property
    def is_left_open(self) -> bool:
        """Whether there was a batch, and nobody decided it."""
        return self.seconds is None and self.moment not in (Moment.NO_BATCH, Moment.LATE)

    @property
    def told(self) -> str:
        """How it went, in a few words."""
        seconds = "not decided" if self.seconds is None else f"{self.seconds:.0f} s"
        return f"{self.moment.value}, {seconds}; {self.how}"


def drawn(
    steps: Sequence[str], victims: Sequence[Victim], every: int, until: int, ends: int, most: int, seed: int
) -> list[Case]:
    """All cases each `every` milliseconds: up to `until` after a task was taken, to `ends` after its step was over; at
    most so many of them, in an order of chance."""
    cases = [*_all(steps, victims, every, until, ends)]
    random.Random(seed).shuffle(cases)
    return cases[:most]


def _all(steps: Sequence[str], victims: Sequence[Victim], every: int, until: int, ends: int) -> Iterator[Case]:
    for step in steps:
        for victim in victims:
            for after in range(0, until + 1, every):
                yield Case(step, victim, Since.TAKEN, after)
            if step in _WITH_AN_END:
                for after in range(0, ends + 1, max(1, every // 4)):
                    yield Case(step, victim, Since.OVER, after)
