"""Everything that may happen, in any order, as a state machine of Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import SERVICES
from tests.model.actors import Actor
from tests.model.interleavings import is_at, stops, until
from tests.model.invariants import Broken, Invariants
from tests.model.world import DagRun, World

T = TypeVar("T")

WHICH = st.integers(0, 7)
# Counted from the end of a step: what cannot be taken back is done late in it, and told last of all.
LATE = st.one_of(st.integers(2, 9), st.integers(0, 15))
AT_THE_END = st.one_of(st.integers(0, 3), st.integers(0, 15))
_OF_SERVICES = tuple(f"{step.value}-" for step in SERVICES)
"""What the points of steps begin with that the model has none of."""
_POINTS = (point.value for point in Point)
STOPS = [name for name in _POINTS if not name.endswith("-half") and not name.startswith(_OF_SERVICES)] + [
    "to inflight",
    "reconcile",
    "plan rollback",
    "execute rollback",
    "complete rollback",
    "delete instant",
    "exists batch",
    "delete_folder folder",
    "waits at append-inflight",
]
TURNS = st.lists(st.integers(1, 4), max_size=3)
MOST_RUNS = 4


def pick(found: Sequence[T], which: int) -> T | None:
    return found[which % len(found)] if found else None


def from_the_end(found: Sequence[str], count: int) -> str:
    return found[max(0, len(found) - 1 - count)]


class Protocol(RuleBasedStateMachine):
    """Runs, their processes, and what befalls them. `seen` and `steps` add up over all schedules."""

    stored = False
    seen: ClassVar[set[str]] = set()
    steps = schedules = 0

    def __init__(self) -> None:
        super().__init__()
        stops(self.stored)  # before a bug is planted
        self.world = World(self.stored)
        self.world.__enter__()
        self.promises = Invariants(self.world)
        self.broken = False
        self.prepare()

    def prepare(self) -> None:
        """For the test of the test: plants a bug."""

    @initialize(logs=st.integers(1, 4), ending=st.sampled_from(["wake", "die"]))
    def begin(self, logs: int, ending: str) -> None:
        self.world.ending = ending
        self.world.source.put(0, logs)
        self.world.source.put(1, 2)
        self.world.start_run()

    # The source.

    @rule(shard=st.integers(0, 3), count=st.integers(1, 3))
    def put(self, shard: int, count: int) -> None:
        self.world.source.put(shard, count)

    @rule(shard=st.integers(0, 1))
    def split(self, shard: int) -> None:
        self.world.source.split(shard)

    # Runs.

    @precondition(lambda self: self.may_start())
    @rule()
    def start_tail(self) -> None:
        self.world.start_run()

    @precondition(lambda self: self.may_start())
    @rule(shard=st.integers(0, 1), begin=st.integers(10, 14), count=st.integers(1, 4))
    def start_backfill(self, shard: int, begin: int, count: int) -> None:
        self.world.start_run((shard, begin, begin + count))

    @rule(which=WHICH, count=st.sampled_from([1, 1, 2, 3, 5, 8]))
    def step(self, which: int, count: int) -> None:
        """One process goes on, alone."""
        actor = pick(self.world.actors.runnable(), which)
        for _ in range(count):
            if actor in self.world.actors.runnable() and actor is not None:
                self.world.actors.step(actor)

    @rule(which=WHICH, count=st.sampled_from([5, 20, 40, 100]))
    def go(self, which: int, count: int) -> None:
        """A task goes on with all that it started."""
        task = pick(self.world.actors.alive("task"), which)
        for _ in range(count if task else 0):
            if task is None or not self.world.actors.advance(task):
                return

    @rule(which=WHICH, stop=st.sampled_from(STOPS))
    def go_until(self, which: int, stop: str) -> None:
        """A task goes on until it, or what it started, is at a point."""
        task = pick(self.world.actors.alive("task"), which)
        for _ in range(120 if task else 0):
            if task is None or not self.world.actors.advance(task):
                return
            if any(member.at == stop and not member.over for member in self.world.actors.family(task)):
                return

    # Two actors of one transaction; a rule for each step, so that they are drawn often.

    @precondition(lambda self: self.may_start())
    @rule(left=LATE, settled=AT_THE_END, asleep=st.booleans(), turns=TURNS)
    def switch_at_commit(self, left: int, settled: int, asleep: bool, turns: list[int]) -> None:
        self.switch("commit", left, settled, asleep, turns)

    @precondition(lambda self: self.may_start())
    @rule(left=LATE, settled=AT_THE_END, asleep=st.booleans(), turns=TURNS)
    def switch_at_append(self, left: int, settled: int, asleep: bool, turns: list[int]) -> None:
        self.switch("append", left, settled, asleep, turns)

    @precondition(lambda self: self.may_start())
    @rule(left=LATE, settled=AT_THE_END, asleep=st.booleans(), turns=TURNS)
    def switch_at_open(self, left: int, settled: int, asleep: bool, turns: list[int]) -> None:
        self.switch("open", left, settled, asleep, turns)

    def switch(self, step: str, left: int, settled: int, asleep: bool, turns: list[int]) -> None:
        """A run is given up at one of the last stops of a step, another settles, the first wakes.

        The first's process sleeps until its lease has ended where `asleep`. The other settles until one of the last
        stops of that, or runs to its end. Both take `turns`, then both finish.
        """
        world, known = self.world, stops(self.stored)[step]
        world.source.put(0, 1)
        first = world.start_run().tries[0]
        until(world, first, lambda: first.run.step == step)
        until(world, first, lambda: is_at(world, first, from_the_end(known.step, left)))
        self.check()
        if asleep:
            world.pass_time(200, lambda task: task is first)
        first.run.ended = True
        second = world.start_run().tries[0]
        until(
            world,
            second,
            lambda: is_at(world, second, from_the_end([*known.settle, "never"], settled)),
        )
        self.check()
        for number, count in enumerate(turns):
            for _ in range(count):
                world.actors.advance((first, second)[number % 2])
        for actor in (first, second):
            until(world, actor, lambda: False)
            self.check()

    # What befalls processes.

    @rule(which=WHICH, drivers_too=st.booleans(), noticed=st.booleans())
    def kill_task(self, which: int, drivers_too: bool, noticed: bool) -> None:
        task = pick(self.world.actors.alive("task"), which)
        if task is not None:
            self.world.kill_task(task, drivers_too)
            if noticed and task.run is not None:
                task.run.ended = True

    @rule(which=WHICH, workers_too=st.booleans())
    def kill_driver(self, which: int, workers_too: bool) -> None:
        driver = pick(self.world.actors.alive("driver"), which)
        if driver is not None:
            self.world.kill_driver(driver, workers_too)

    @precondition(lambda self: self.world.actors.alive("worker"))
    @rule(which=WHICH, alive=st.booleans())
    def lose_worker(self, which: int, alive: bool) -> None:
        """Spark tries its task again; it may be alive nevertheless."""
        worker = pick(self.world.actors.alive("worker"), which)
        if worker is not None:
            worker.lost = True
            if not alive:
                self.world.actors.kill(worker)

    @rule(which=WHICH)
    def kill_within_sql(self, which: int) -> None:
        task = pick(self.world.actors.alive("task"), which)
        if task is not None:
            task.dies_in_sql = True

    @rule(after=st.integers(0, 6), when=st.sampled_from(["before", "after"]))
    def fail_ledger(self, after: int, when: str) -> None:
        self.world.fault = (after, when)

    @rule(seconds=st.sampled_from([20, 100, 185, 200, 700]), asleep=st.sampled_from(["none", "all", "first", "last"]))
    def pass_time(self, seconds: int, asleep: str) -> None:
        tasks = self.world.actors.alive("task")
        sleeping: list[Actor] = {"none": [], "all": tasks, "first": tasks[:1], "last": tasks[-1:]}[asleep]
        self.world.pass_time(seconds, lambda task: task in sleeping)

    # What Airflow and people do.

    @rule(which=WHICH)
    def give_up(self, which: int) -> None:
        """Airflow takes a run for ended, whose process may be alive."""
        run = pick(self.going(), which)
        if run is not None:
            run.ended = True

    @rule(which=WHICH)
    def forget(self, which: int) -> None:
        run = pick(self.world.runs, which)
        if run is not None:
            run.ended = None

    @precondition(lambda self: self.may_start())
    @rule(which=WHICH, from_settle=st.booleans())
    def try_again(self, which: int, from_settle: bool) -> None:
        """Airflow retries a step that may be retried, or somebody clears the run; an old try may be alive."""
        run = pick(self.going(), which)
        if run is not None and (from_settle or run.step in ("settle", "plan", "record")):
            self.world.attempt(run, "settle" if from_settle else None)

    @rule(which=WHICH)
    def roll_back_by_hand(self, which: int) -> None:
        instant = pick(self.world.table.pending_commits(), which)
        if instant is not None:
            self.world.roll_back_by_hand(instant)

    @precondition(lambda self: not self.world.committing())
    @rule(which=WHICH, changes=st.integers(1, 4))
    def begin_rollback_by_hand(self, which: int, changes: int) -> None:
        """Whose process dies half-way. A commit under way cannot be fenced off by the files that it deletes."""
        instant = pick(self.world.table.pending_commits(), which)
        if instant is not None:
            self.world.roll_back_by_hand(instant, changes)

    @precondition(lambda self: not self.world.actors.alive("task"))
    @rule()
    def rebuild(self) -> None:
        self.world.start_rebuild()

    def may_start(self) -> bool:
        """The DAGs are paused while the ledger is rebuilt."""
        tasks = self.world.actors.alive("task")
        return len(tasks) < MOST_RUNS and all(task.run is not None for task in tasks)

    def going(self) -> list[DagRun]:
        return [run for run in self.world.runs if not run.ended]

    @invariant()
    def holds(self) -> None:
        self.check()

    def check(self) -> None:
        self.broken = True
        self.promises.check()
        self.broken = False

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.promises.check_end()
        finally:
            type(self).schedules += 1
            type(self).steps += self.world.actors.steps
            type(self).seen |= self.world.actors.seen
            self.world.__exit__()


class InStore(Protocol):
    """With tables in an object store."""

    stored = True


def thorough(examples: int, steps: int = 40, shrink: bool = True) -> settings:
    """Settings of a search without Hypothesis's clock and database."""
    from hypothesis import HealthCheck, Phase

    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


__all__ = ["Broken", "InStore", "Protocol", "thorough"]
