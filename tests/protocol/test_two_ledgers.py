"""One table, two ledgers: a connection was pointed to another database, and a person went on by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.exceptions import (
    CommitStateUnknown,
    IllegalTransition,
    JobFailed,
    LedgerLost,
    RangesDoubled,
)
from airflow_provider_slshudi.hudi.client import quarantine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.notes.job import JobOrder, Verb
from airflow_provider_slshudi.points import Point
from airflow_provider_slshudi.protocol import plan, replay, steps
from airflow_provider_slshudi.protocol.rebuild import rebuild
from airflow_provider_slshudi.protocol.repair import Repaired, drop_doubled
from airflow_provider_slshudi.protocol.settle import settle
from airflow_provider_slshudi.protocol.verify import verify
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.spark.launch import Launcher
from tests.pipelines import upserted_often
from tests.protocol.quarantined import assert_each_once, rows_of
from tests.scenarios import DyingLauncher, Scenario, log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """A batch by a ledger that knows of no other, as versions went on that looked at the table in settle alone."""
    at = with_ledger(pipeline, ledger)
    with monkeypatch.context() as old:
        old.setattr(plan, "require_agreement", lambda work: None)
        old.setattr(steps, "require_known_commits", lambda work: None)
        old.setattr("airflow_provider_slshudi.protocol.resolve.committed_elsewhere", lambda *_: None)
        prepared = at.prepare(at.by(run_id))
        return steps.commit(at.by(run_id), prepared.id, prepared.token)


@pytest.mark.parametrize("aside", [False, True], ids=["append", "quarantine"])
def test_a_table_whose_commits_overlap_is_refused_and_comes_back_to_each_log_once(
    spark: SparkSession, scenario: Make, another_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, aside: bool
) -> None:
    pipeline = scenario(**({"misfits": "quarantine"} if aside else {}))
    pipeline.put(LOGS)
    first = pipeline.batch("run-1")
    pipeline.put(50, first=LOGS)
    again = without_looking(pipeline, another_ledger, "run-2", monkeypatch)
    assert again.rows == LOGS + 50
    ranges = pipeline.work.ledger.ranges(first.id)
    for ledger in (pipeline.work.ledger, another_ledger):
        before = ledger.last("ad_events", 10), ledger.coverage("ad_events")
        with pytest.raises(RangesDoubled, match=rf"instant {again.instant} \(transaction {again.id}\)") as refused:
            rebuild(with_ledger(pipeline, ledger).work)
        assert "slshudi table drop-doubled ad_events" in str(refused.value)
        assert refused.value.instant == again.instant
        assert refused.value.ranges == [(again.id, item) for item in ranges]
        assert (ledger.last("ad_events", 10), ledger.coverage("ad_events")) == before

    # A driver that dies right before the commit changes nothing; the next try takes away what it left.
    dying = replace(pipeline.work, launcher=DyingLauncher(Point.COMMIT_STARTED))
    if not aside:
        with pytest.raises(CommitStateUnknown, match="try again"):
            drop_doubled(replace(dying, launcher=AtCommit(pipeline.work.launcher, dying.launcher)))
        with pytest.raises(LedgerLost):
            plan.tail(pipeline.by("run-3"))
    done = drop_doubled(pipeline.work)
    assert [(item.transaction, item.instant, item.ranges, item.rows) for item in done.dropped] == [
        (again.id, again.instant, ranges, LOGS)
    ]
    assert drop_doubled(pipeline.work) == Repaired(None, [])
    assert rebuild(with_ledger(pipeline, another_ledger).work).committed == 3
    assert pipeline.work.ledger.get(again.id).rows == 50
    assert plan.tail(pipeline.by("run-4")) is None
    pipeline.put(10, first=LOGS + 50)
    assert pipeline.batch("run-5").rows == 10
    proof = verify(pipeline.work)
    assert (proof.ok, proof.rows) == (True, LOGS + 60)
    if aside:
        assert_each_once(pipeline, LOGS + 60, (LOGS + 60) // 10)
        return
    every = sorted(f"event-{number}" for number in range(LOGS + 60))
    by_spark = spark.read.format("hudi").load(pipeline.work.storage.full("")).select("event_id").collect()
    assert sorted(row["event_id"] for row in by_spark) == every
    assert sorted(row["event_id"] for row in rows_of(pipeline.work.storage.uri)) == every


def test_a_repair_commits_first_what_the_quarantine_lacks_of_a_commit(
    scenario: Make, another_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    prepared = pipeline.prepare(pipeline.by("run-1"))

    def died(*_: object) -> None:
        raise JobFailed("it died", verb="commit", returncode=-9)

    with monkeypatch.context() as dying:
        dying.setattr(quarantine, "complete", died)
        with pytest.raises(CommitStateUnknown, match="not yet in the quarantine"):
            steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    again = without_looking(pipeline, another_ledger, "run-2", monkeypatch)
    done = drop_doubled(pipeline.work)
    assert [(item.transaction, item.rows) for item in done.dropped] == [(again.id, 20)]
    assert pipeline.work.ledger.get(prepared.id).rows == 20
    assert plan.tail(pipeline.by("run-3")) is None
    assert_each_once(pipeline, 20, 2)


def test_rows_that_an_older_log_was_merged_into_again_are_read_again(
    spark: SparkSession, scenario: Make, another_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1, described=upserted_often)
    source = pipeline.work.pipeline.source
    for price in (1, 2, 3):
        contents = [*log(0), ("price", str(price))]
        item = LogItem(1_700_000_000, contents=[(key, value) for key, value in dict(contents).items()])
        pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", [item]))
        pipeline.batch(f"run-{price}")

    def prices() -> list[float]:
        table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
        return [row["price"] for row in table.select("price").collect()]

    # Another ledger merges the second log again, over the third.
    begin = pipeline.work.ledger.shards("ad_events")[0].first
    request = plan.BackfillRequest(cursors={0: (begin + 1, begin + 2)})
    monkeypatch.setattr(plan, "tail", lambda work: plan.backfill(work, request))
    again = without_looking(pipeline, another_ledger, "run-4", monkeypatch)
    monkeypatch.undo()
    assert prices() == [2.0]
    with pytest.raises(RangesDoubled):
        rebuild(pipeline.work)
    done = drop_doubled(pipeline.work)
    assert again.id in {item.transaction for item in done.dropped} and sum(item.rows for item in done.dropped) == 3
    assert prices() == [2.0]
    assert pipeline.batch("run-5").rows == 2
    assert prices() == [3.0]
    assert rebuild(pipeline.work).committed == 6 and plan.tail(pipeline.by("run-6")) is None
