"""A batch that a person gives up: fenced off, rolled back, on record, and read again exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from airflow_provider_slshudi.exceptions import CommitStateUnknown, ConfigError, Fenced, IllegalTransition, JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.abandon import ABANDONED, abandon, evidence
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.decisions import Decision, InstantState
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario

Make = Callable[..., Scenario]


@dataclass(frozen=True)
class NoCommit:
    """A launcher whose commits, or jobs of another verb, always fail."""

    launcher: Launcher
    fails: Verb = Verb.COMMIT

    def run(self, verb: Verb, order: JobOrder, secrets: object) -> None:
        if verb is self.fails:
            raise JobFailed(f"the {verb.value} failed", verb=verb.value, returncode=1)
        self.launcher.run(verb, order, {})


def test_a_prepared_batch_whose_commit_always_fails_is_given_up_and_read_again(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    failing = pipeline.by("run-2", launcher=NoCommit(pipeline.work.launcher))
    for _ in range(2):
        with pytest.raises(CommitStateUnknown):
            settle(failing, lambda run: True)
    with pytest.raises(IllegalTransition, match="let recovery decide it first"):
        rebuild(pipeline.work)

    assert evidence(pipeline.work, prepared.id)[1].state is InstantState.INFLIGHT
    abandon(pipeline.by("person"), prepared.id, "its commit needs more than the machine has")
    with pytest.raises(Fenced):
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    assert Timeline.load(pipeline.work.storage).pending() == []
    given_up = pipeline.work.ledger.get(prepared.id)
    assert given_up.state is State.ABORTED and "needs more than the machine has" in str(given_up.error)
    (event,) = [event for event in pipeline.work.ledger.events(prepared.id) if event.what == ABANDONED]
    told = json.loads(event.detail)
    assert (told["by"], told["ledger"], told["timeline"]) == ("tail/person", "PREPARED", "INFLIGHT")
    assert told["why"] == "its commit needs more than the machine has"
    assert pipeline.batch("run-3").rows == 10
    assert verify(pipeline.work).ok


def test_a_batch_whose_giving_up_was_cut_off_is_given_up_by_the_next_settle(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    with pytest.raises(JobFailed, match="rollback failed"):
        abandon(pipeline.by("person", launcher=NoCommit(pipeline.work.launcher, Verb.ROLLBACK)), prepared.id, "full")
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.ROLL_BACK_AND_ABORT]
    assert pipeline.batch("run-3").rows == 10
    assert verify(pipeline.work).ok


def test_what_the_table_has_committed_is_not_given_up(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    order = {}

    @dataclass(frozen=True)
    class Dies:
        def run(self, verb: Verb, job: JobOrder, secrets: object) -> None:
            order[verb] = job
            pipeline.work.launcher.run(verb, job, {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.commit(pipeline.by("run-1", launcher=Dies()), prepared.id, prepared.token)
    with pytest.raises(IllegalTransition, match=f"slshudi recover ad_events --transaction {prepared.id}"):
        abandon(pipeline.work, prepared.id, "why not")
    held = pipeline.work.ledger.get(prepared.id)
    assert (held.state, held.token) == (State.PREPARED, prepared.token)
    assert settle(pipeline.by("run-2"), lambda run: True)
    with pytest.raises(ConfigError, match=r"ad_events has no live transaction .* to give up; its live ones: none"):
        abandon(pipeline.work, prepared.id, "why not")


def test_a_planned_batch_is_given_up_without_a_driver(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    assert abandon(pipeline.by("person"), planned.id, "wrong file").state is InstantState.NOTHING
    assert plan.preview(pipeline.work) == pipeline.work.ledger.ranges(planned.id)
