"""One table, two ledgers: a connection was pointed to another database, and a person went on by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.exceptions import IllegalTransition, LedgerLost, RangesDoubled
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.repair import replay
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.pipelines import upserted_often
from tests.scenarios import Scenario

if TYPE_CHECKING:
    pass

Make = Callable[..., Scenario]
LOGS = 100


@dataclass(frozen=True)
class AtCommit:
    """Runs a commit by one launcher and all else by another_ledger."""

    launcher: Launcher
    of_commit: Launcher

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        (self.of_commit if verb is Verb.COMMIT else self.launcher).run(verb, order, secrets)


def with_ledger(pipeline: Scenario, ledger: Ledger) -> Scenario:
    return replace(pipeline, work=replace(pipeline.work, ledger=ledger))


@pytest.mark.parametrize("described", ["append", "upsert", "quarantine"])
def test_what_settle_refuses_a_plan_refuses_too(scenario: Make, another_ledger: Ledger, described: str) -> None:
    fields: dict[str, dict[str, Any]] = {
        "upsert": {"described": upserted_often},
        "quarantine": {"misfits": "quarantine"},
    }
    pipeline = scenario(shards=1, **fields.get(described, {}))
    pipeline.put(10)
    first = pipeline.batch("run-1")
    mistaken = with_ledger(pipeline, another_ledger)
    with pytest.raises(LedgerLost) as stopped:
        settle(mistaken.by("run-2"), lambda run: True)
    begin = pipeline.work.ledger.ranges(first.id)[0]
    cursors = {begin.shard: (begin.begin, begin.end)}
    # Settle is marked a success, and the rest is cleared.
    ways: list[Callable[[Work], object]] = [
        lambda work: plan.tail(work),
        lambda work: plan.backfill(work, plan.BackfillRequest(cursors=cursors)),
        lambda work: replay.plan(work),
    ]
    for go_on in ways:
        with pytest.raises(LedgerLost, match="slshudi ledger rebuild ad_events") as refused:
            go_on(mistaken.by("run-2"))
        assert (refused.value.instant, refused.value.transaction) == (first.instant, first.id)
    assert str(stopped.value) == str(refused.value)
    assert another_ledger.live("ad_events") == []


def test_nothing_is_planned_beside_a_batch_that_another_ledger_has_open(scenario: Make, another_ledger: Ledger) -> None:
    pipeline = scenario()
    pipeline.put(LOGS)
    opened = pipeline.open(pipeline.by("run-1"))
    with pytest.raises(LedgerLost) as refused:
        plan.tail(with_ledger(pipeline, another_ledger).by("run-2"))
    assert (refused.value.instant, refused.value.transaction) == (opened.instant, opened.id)


def planned_by_both(pipeline: Scenario, another_ledger: Ledger) -> tuple[Transaction, Scenario, Transaction]:
    """Two batches of the same ranges, both planned while the table had nothing: one committed, the other PREPARED."""
    mistaken = with_ledger(pipeline, another_ledger)
    of_one = plan.tail(pipeline.by("run-1"))
    of_other = plan.tail(mistaken.by("run-1"))
    assert of_one is not None and of_other is not None
    for at, planned in ((pipeline, of_one), (mistaken, of_other)):
        for step in (steps.open_instant, steps.append, steps.record):
            step(at.work, planned.id, planned.token)
    return steps.commit(pipeline.work, of_one.id, of_one.token), mistaken, another_ledger.get(of_other.id)


def test_a_batch_that_another_ledger_has_committed_meanwhile_is_not_committed_again(
    scenario: Make, another_ledger: Ledger
) -> None:
    pipeline = scenario()
    pipeline.put(LOGS)
    first, mistaken, prepared = planned_by_both(pipeline, another_ledger)
    with pytest.raises(LedgerLost) as refused:
        steps.commit(mistaken.work, prepared.id, prepared.token)
    assert (refused.value.instant, refused.value.transaction) == (first.instant, first.id)

    # The next settle throws it away, since its rows are in the table, and what it reads again is nothing.
    with pytest.raises(LedgerLost):
        settle(mistaken.by("run-2"), lambda run: True)
    found = another_ledger.get(prepared.id)
    assert found.state is State.ABORTED and f"the same ranges as instant {first.instant}" in str(found.error)
    with pytest.raises(IllegalTransition):
        steps.commit(mistaken.work, prepared.id, prepared.token + 1)
    assert rebuild(mistaken.work).committed == 1
    assert plan.tail(mistaken.by("run-3")) is None
    assert verify(mistaken.work).ok


def without_looking(pipeline: Scenario, ledger: Ledger, run_id: str, monkeypatch: pytest.MonkeyPatch) -> Transaction:
    """A batch by a ledger that knows of no other, committed without a look at the table."""
    at = with_ledger(pipeline, ledger)
    with monkeypatch.context() as old:
        old.setattr(plan, "require_agreement", lambda work: None)
        old.setattr(steps, "require_known_commits", lambda work: None)
        old.setattr("airflow_provider_slshudi.transaction.resolve.committed_elsewhere", lambda *_: None)
        prepared = at.prepare(at.by(run_id))
        return steps.commit(at.by(run_id), prepared.id, prepared.token)


def test_a_table_whose_commits_overlap_is_refused_until_it_is_restored(
    scenario: Make, another_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = scenario()
    pipeline.put(LOGS)
    first = pipeline.batch("run-1")
    table = Path(pipeline.work.storage.full(""))
    shutil.copytree(table, tmp_path / "backup")
    pipeline.put(50, first=LOGS)
    again = without_looking(pipeline, another_ledger, "run-2", monkeypatch)
    assert again.rows == LOGS + 50
    ranges = pipeline.work.ledger.ranges(first.id)
    for ledger in (pipeline.work.ledger, another_ledger):
        before = ledger.last("ad_events", 10), ledger.coverage("ad_events")
        with pytest.raises(RangesDoubled, match=rf"instant {again.instant} \(transaction {again.id}\)") as refused:
            rebuild(with_ledger(pipeline, ledger).work)
        assert refused.value.instant == again.instant
        assert refused.value.ranges == [(again.id, item) for item in ranges]
        assert (ledger.last("ad_events", 10), ledger.coverage("ad_events")) == before
    shutil.rmtree(table)
    (tmp_path / "backup").rename(table)
    assert rebuild(pipeline.work).committed == 1
    assert pipeline.batch("run-3").rows == 50
    proof = verify(pipeline.work)
    assert (proof.ok, proof.rows) == (True, LOGS + 50)
