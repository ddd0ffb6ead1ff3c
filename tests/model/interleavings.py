"""A run that was given up and the one that settles it, both alive, switched at each pair of their stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from tests.model.actors import Actor
from tests.model.invariants import Invariants
from tests.model.world import World

STOPS = {
    "open": (
        ("open-started", "open-table-ready", "open-owned", "request", "open-seen", "open-ordered"),
        ("settle-taken-over", "settle-decided", "settle-aborted", "delete_folder folder", "end"),
    ),
    "append": (
        (
            *("append-started", "to inflight", "append-task-marked", "create_within parquet", "rename parquet"),
            *("append-task-named", "exists batch"),
            *("request aside", "append-quarantine-open", "write manifest"),
        ),
        ("settle-fenced", "execute rollback", "complete rollback", "settle-rolled-back", "settle-aborted", "end"),
    ),
    "commit": (
        (
            "commit-leased",
            "commit-decided",
            "commit-started",
            "reconcile",
            "commit-listed",
            "commit-looked",
            "commit-completed",
            "commit-looked aside",
        ),
        ("settle-taken-over", "commit-decided", "commit-started", "commit-looked", "commit-seen", "end"),
    ),
}

STORED = {
    "append": (
        (
            *("append-task-marked", "create_within parquet", "exists files", "append-task-ended", "complete parquet"),
            *("append-task-named", "append-quarantine-open", "end uploads", "write manifest"),
        ),
        ("settle-fenced", "end uploads", "execute rollback", "complete rollback", "settle-aborted", "end"),
    ),
}
"""Those of tables in an object store."""


@dataclass(frozen=True)
class Case:
    """`first` stops, and sleeps so long that its lease ends where `asleep`; `second` stops; first, second go on."""

    step: str
    first: str
    second: str
    asleep: bool
    stored: bool = False

    def __str__(self) -> str:
        asleep, stored = ", asleep" if self.asleep else "", ", in a store" if self.stored else ""
        return f"{self.step}: {self.first}, then {self.second}{asleep}{stored}"

    def run(self, plant: Callable[[World], None] | None = None) -> World:
        """Raises Broken where a promise is not kept."""
        with World(self.stored) as world:
            if plant is not None:
                plant(world)
            promises = Invariants(world)
            world.source.put(0, 3)
            world.source.put(1, 2)
            first = world.start_run().tries[0]
            until(world, first, lambda: first.run.step == self.step)
            until(world, first, lambda: any(found.at == self.first for found in world.actors.family(first)))
            promises.check()
            if self.asleep:
                world.pass_time(200, lambda task: task is first)
            first.run.ended = True
            second = world.start_run().tries[0]
            until(world, second, lambda: any(found.at == self.second for found in world.actors.family(second)))
            promises.check()
            for actor in (first, second):
                until(world, actor, lambda: False)
                promises.check()
            promises.check_end()
        return world


def cases() -> Iterator[Case]:
    """All of them."""
    for stored, places in ((False, STOPS), (True, STORED)):
        for step, (first, second) in places.items():
            pairs = product(first, second, (False, True))
            yield from (Case(step, one, other, asleep, stored) for one, other, asleep in pairs)


def until(world: World, actor: Actor, reached: Callable[[], bool]) -> None:
    """A task goes on with all that it started, until that is reached or nothing of it can go on."""
    for _ in range(300):
        if reached() or not world.actors.advance(actor):
            return


def is_at(world: World, actor: Actor, stop: str) -> bool:
    """The actor, or what it started."""
    return any(member.at == stop and not member.over for member in world.actors.family(actor))


_LEFT_AT = {"open": "open-ordered", "append": "exists batch", "commit": "commit-started"}


@dataclass(frozen=True)
class Stops:
    """Where a healthy run stops within a step, and a settle that decides what was left there; each once, in order."""

    step: list[str]
    settle: list[str]


@cache
def stops(stored: bool = False) -> dict[str, Stops]:
    """Of each step; found out by running them."""
    return {step: Stops(_stops_of_step(step, stored), _stops_of_settle(step, stored)) for step in STOPS}


def _stops_of_step(step: str, stored: bool) -> list[str]:
    with World(stored) as world:
        task = _until_step(world, step)
        return _trace(world, task, lambda: task.run.step != step)


def _stops_of_settle(step: str, stored: bool) -> list[str]:
    with World(stored) as world:
        first = _until_step(world, step)
        until(world, first, lambda: is_at(world, first, _LEFT_AT[step]))
        world.pass_time(200, lambda task: True)
        first.run.ended = True
        second = world.start_run().tries[0]
        return _trace(world, second, lambda: second.run.step != "settle")


def _until_step(world: World, step: str) -> Actor:
    world.source.put(0, 3)
    task = world.start_run().tries[0]
    until(world, task, lambda: task.run.step == step)
    return task


def _trace(world: World, task: Actor, over: Callable[[], bool]) -> list[str]:
    found: dict[str, None] = {}
    while not over() and world.actors.advance(task):
        found |= {member.at: None for member in world.actors.family(task) if not member.over}
    return [at for at in found if at != "start" and not at.startswith(("waits", "before"))]


__all__ = ["STOPS", "Case", "Stops", "cases", "is_at", "stops", "until"]
