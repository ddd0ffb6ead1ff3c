"""Processes as coroutines, one of which runs at a time: each stops where state is about to change.

So every schedule is a sequence of choices, the same choices are the same schedule, and a shorter one can be searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """What a killed process dies of; nothing in the package catches it."""


class Actor:
    """A process: a task's, a driver's or an executor's.

    Attributes:
        at: where it stopped.
        blocked: tells whether it waits for another; None where it does not.
        gone: others can see that it is dead.
        lost: others take it for dead.
        in_sql: it is within an SQL transaction that writes, which the database lets happen at once or not at all.
        dies_in_sql: it is to be killed within the next one of those that has a point in it.
    """

    def __init__(self, name: str, kind: str, body: Callable[[], Any], parent: Actor | None = None) -> None:
        self.name, self.kind, self.parent = name, kind, parent
        self.at = "start"
        self.blocked: Callable[[], bool] | None = None
        self.dead = self.done = self.gone = self.lost = self.in_sql = self.dies_in_sql = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.until = 0.0
        self.beats: list[Callable[[], None]] = []
        self.children: list[Actor] = []
        self.run: Any = None
        self.process = name
        self._body = body
        self._coroutine: greenlet | None = None
        if parent is not None:
            parent.children.append(self)

    def __repr__(self) -> str:
        return f"{self.name}@{self.at}"

    @property
    def over(self) -> bool:
        return self.done or self.dead


class Actors:
    """All processes and the one that runs."""

    def __init__(self) -> None:
        self.all: list[Actor] = []
        self.current: Actor | None = None
        self.steps = 0
        self.seen: set[str] = set()

    def spawn(self, name: str, kind: str, body: Callable[[], Any], parent: Actor | None = None) -> Actor:
        actor = Actor(name, kind, body, parent)
        self.all.append(actor)
        return actor

    def runnable(self, kinds: Iterable[str] = ("task", "driver", "worker")) -> list[Actor]:
        return [
            actor
            for actor in self.all
            if not actor.over and actor.kind in kinds and (actor.blocked is None or not actor.blocked())
        ]

    def family(self, actor: Actor) -> list[Actor]:
        """It and what it started, the youngest first."""
        return [found for child in reversed(actor.children) for found in self.family(child)] + [actor]

    def advance(self, actor: Actor) -> bool:
        """One step of it or of what it waits for; False where there is none."""
        able = self.runnable()
        found = next((member for member in self.family(actor) if member in able), None)
        if found is not None:
            self.step(found)
        return found is not None

    def alive(self, *kinds: str) -> list[Actor]:
        return [actor for actor in self.all if not actor.over and actor.kind in kinds]

    def step(self, actor: Actor) -> None:
        """Lets it run to its next stop."""
        self.steps += 1
        self._switch(actor)
        self.seen.add(actor.at)

    def kill(self, actor: Actor, gone: bool = True) -> None:
        """SIGKILL, where it stands."""
        if actor.over:
            return
        actor.dead, actor.gone = True, gone
        if actor._coroutine is not None:
            self._switch(actor)

    def stop(self, at: str) -> None:
        """Called by a process: it stops here until it is told to go on. Nothing outside of processes."""
        actor = self.current
        if actor is None:
            return
        if actor.dead:
            raise Killed
        if actor.in_sql:
            self.seen.add(at)
            if actor.dies_in_sql:
                actor.dead = actor.gone = True
                raise Killed
            return
        actor.at = at
        assert actor._coroutine is not None
        actor._coroutine.parent.switch()
        if actor.dead:
            raise Killed

    def wait(self, until: Callable[[], bool]) -> None:
        """Called by a process: it waits for something that others do."""
        actor = self.current
        assert actor is not None
        actor.blocked = lambda: not until()
        try:
            while not until():
                self.stop(f"waits at {actor.at}" if not actor.at.startswith("waits") else actor.at)
        finally:
            actor.blocked = None

    def _switch(self, actor: Actor) -> None:
        before, self.current = self.current, actor
        if actor._coroutine is None:
            actor._coroutine = greenlet(lambda: self._run(actor))
        # Where it stops or ends, who let it go goes on.
        actor._coroutine.parent = getcurrent()
        actor._coroutine.switch()
        self.current = before

    def _run(self, actor: Actor) -> None:
        try:
            actor.result = actor._body()
        except Killed:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.done, actor.at = True, "end"
