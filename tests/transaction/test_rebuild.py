"""A ledger that was lost, or is ahead of its table, is made anew from the table; the pipeline goes on exactly once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import IllegalTransition, LedgerLost, TimelineUnreadable
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.capability("rebuild")
def test_a_lost_ledger_is_rebuilt_and_the_pipeline_goes_on(
    spark: SparkSession, scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    before = scenario()
    before.put(100)
    first = before.batch("run-1")
    before.put(50, first=100)
    second = before.batch("run-2")
    before.put(50, first=150)
    undecided = before.prepare(before.by("run-3"))

    engine = open_engine(f"sqlite:///{tmp_path / 'new-ledger.db'}")
    migrate(engine)
    after = replace(before, work=replace(before.work, ledger=Ledger(engine)))
    with pytest.raises(LedgerLost):
        settle(after.by("run-4"), lambda run: True)
    done = rebuild(after.work)
    assert (done.committed, done.rolled_back) == (2, [undecided.instant])
    ledger, lost = after.work.ledger, before.work.ledger
    for batch in (first, second):
        found = ledger.get(batch.id)
        assert (found.state, found.instant, found.completed) == (State.COMMITTED, batch.instant, batch.completed)
        assert (found.kind, found.dag_id, found.run_id) == (batch.kind, batch.dag_id, batch.run_id)
        assert (found.rows, found.bytes) == (batch.rows, batch.bytes)
        assert ledger.ranges(batch.id) == lost.ranges(batch.id)
    assert ledger.coverage("ad_events") == lost.coverage("ad_events")
    assert [(item.id, item.first) for item in ledger.shards("ad_events")] == [
        (item.id, item.first) for item in lost.shards("ad_events")
    ]
    assert rebuild(after.work).committed == 2

    assert after.batch("run-5").rows == 50
    assert verify(after.work).ok
    table = spark.read.format("hudi").load(after.work.storage.full(""))
    assert sorted(row["event_id"] for row in table.select("event_id").collect()) == sorted(
        f"event-{number}" for number in range(200)
    )
    engine.dispose()


def test_of_a_dropped_table_all_is_read_again(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario()
    pipeline.put(60)
    pipeline.batch("run-1")
    shutil.rmtree(pipeline.work.storage.full(""))
    with pytest.raises(TimelineUnreadable):
        settle(pipeline.by("run-2"), lambda run: True)
    assert rebuild(pipeline.work, table_is_gone=True).committed == 0
    assert pipeline.batch("run-3").rows == 60
    assert verify(pipeline.work).ok


def test_a_live_transaction_is_not_forgotten(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario()
    pipeline.put(10)
    opened = pipeline.open(pipeline.by("run-1"))
    with pytest.raises(IllegalTransition, match="let recovery decide it first"):
        rebuild(pipeline.work)
    assert [item.time for item in Timeline.load(pipeline.work.storage).pending()] == [opened.instant]
