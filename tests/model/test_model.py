"""Schedules that once broke a promise, kept by name, and a few of chance's.

`python -m tests.model` searches for others: chance's schedules, or with `--pairs` all pairs of stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.transaction.resolve import roll_back
from tests.model.interleavings import Case, until
from tests.model.invariants import Invariants
from tests.model.machine import InStore, Protocol, thorough
from tests.model.world import PIPELINE, World


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("first", "second"),
    [("open-started", "settle-decided"), ("open-owned", "delete_folder folder"), ("request", "settle-aborted")],
)
def test_an_instant_that_is_opened_while_its_transaction_is_aborted_is_rolled_back(first: str, second: str) -> None:
    """Its owner's name went with the folder, and it stayed pending for ever."""
    Case("open", first, second, False).run()


def test_a_giving_up_that_dies_between_fence_and_rollback_is_carried_on_by_the_next_settle() -> None:
    """The prepared batch had no order any more, so no settle could commit it, and none rolled it back."""
    with World() as world:
        promises = Invariants(world)
        world.source.put(0, 3)
        first = world.start_run().tries[0]
        until(world, first, lambda: first.at == "before commit")
        (prepared,) = world.ledger.live(PIPELINE)
        person = world.actors.spawn("person", "task", lambda: abandon(world.work("person"), prepared.id, "too large"))
        until(world, person, lambda: person.at == "settle-fenced")
        world.kill_task(person, drivers_too=True)
        world.actors.kill(first)
        world.settle_down()
        assert world.ledger.get(prepared.id).state is State.ABORTED
        promises.check()
        promises.check_end()


def test_what_is_committed_but_for_the_quarantine_is_not_rolled_back() -> None:
    """Hudi undoes a completed instant as well as a pending one."""
    with World() as world:
        world.source.put(0, 3)
        first = world.start_run().tries[0]
        until(world, first, lambda: any(actor.at == "commit-completed" for actor in world.actors.all))
        world.kill_task(first, drivers_too=True)
        (prepared,) = world.ledger.live(PIPELINE)
        instant = str(prepared.instant)

        def undo() -> None:
            work = world.work("person")
            with work.lease() as lease:
                roll_back(work, lease, instant, prepared.id)

        person = world.actors.spawn("person", "task", undo)
        until(world, person, lambda: False)
        assert isinstance(person.error, JobFailed) and "a completed instant is never rolled back" in str(person.error)
        assert [found for found, *_ in world.table.commits()] == [instant]


def test_a_rollback_by_hand_that_dies_after_the_decision_to_commit_is_seen_by_the_commits_driver() -> None:
    with World() as world:
        promises = Invariants(world)
        world.source.put(0, 3)
        first = world.start_run().tries[0]
        until(world, first, lambda: first.at == "commit-decided")
        (instant,) = world.table.pending_commits()
        world.roll_back_by_hand(instant, changes=2)
        assert world.table.pending_commits() == [instant] and world.table.base_files() == []
        until(world, first, lambda: False)
        promises.check()
        promises.check_end()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("create marker", "complete rollback"),
        ("create marker", "delete_folder folder"),
        ("append-task-marked", "execute rollback"),
        ("exists batch", "settle-fenced"),
    ],
)
def test_an_append_that_outlives_a_lost_ledger_leaves_no_file_after_the_rebuild(first: str, second: str) -> None:
    """Rebuild rolled its instant back and left its order: a task that wrote meanwhile was told to go on."""
    with World() as world:
        promises = Invariants(world)
        world.source.put(0, 3)
        append = world.start_run().tries[0]
        until(world, append, lambda: append.run.step == "append")
        until(world, append, lambda: any(member.at == first for member in world.actors.family(append)))
        world.lose_ledger()
        rebuild = world.start_rebuild()
        until(world, rebuild, lambda: any(member.at == second for member in world.actors.family(rebuild)))
        assert not append.over and not rebuild.over
        for actor in (append, rebuild):
            until(world, actor, lambda: False)
            promises.check()
        promises.check_end()


@pytest.mark.parametrize("machine", [Protocol, InStore])
def test_a_few_of_chances_schedules_keep_all_promises(machine: type[Protocol]) -> None:
    run_state_machine_as_test(seed(1)(machine), settings=thorough(15, 15, shrink=False))


def test_a_run_that_died_at_its_work_is_decided_before_airflow_says_that_it_ended() -> None:
    with World() as world:
        promises = Invariants(world)
        world.source.put(0, 3)
        first = world.start_run().tries[0]
        until(world, first, lambda: any(actor.at == "append-task-marked" for actor in world.actors.all))
        world.kill_task(first, drivers_too=True)
        (left,) = world.ledger.live(PIPELINE)
        for seconds, state in ((20, State.OPEN), (20, State.ABORTED)):
            world.pass_time(seconds, lambda task: False)
            second = world.start_run().tries[0]
            until(world, second, lambda: False)
            assert first.run.ended is False and world.ledger.get(left.id).state is state
            promises.check()
        promises.check_end()


@pytest.mark.parametrize("step", ["open", "append", "record", "commit"])
def test_a_run_that_waits_between_two_steps_is_left_alone_however_long(step: str) -> None:
    with World() as world:
        promises = Invariants(world)
        world.source.put(0, 3)
        first = world.start_run().tries[0]
        until(world, first, lambda: first.at == f"before {step}")
        (waiting,) = world.ledger.live(PIPELINE)
        world.pass_time(10_000, lambda task: False)
        world.source.put(0, 2)
        second = world.start_run().tries[0]
        until(world, second, lambda: False)
        assert second.run.outcome == State.COMMITTED.value, "it goes on beside the first"
        assert world.ledger.get(waiting.id).token == waiting.token
        until(world, first, lambda: False)
        assert first.run.outcome == State.COMMITTED.value
        promises.check()
        promises.check_end()
