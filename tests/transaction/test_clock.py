"""Batches and services on machines in other zones: every row that is committed is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import ClockAhead
from airflow_provider_slshudi.hudi.client import clock
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.transaction import context, plan, steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario, SessionLauncher
from tests.transaction.checks import assert_exact
from tests.transaction.served import batches, served
from tests.upserts import Change, Model, put, rows_by_rust, rows_by_spark
from tests.zones import PROPERTIES, InZone, without_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shanghai(spark: SparkSession) -> InZone:
    return InZone(SessionLauncher(spark), Gateway.of(spark.sparkContext), "Asia/Shanghai")


def test_a_batch_after_an_archival_in_another_zone_is_seen(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = served(scenario)
    batches(pipeline, 2)
    tables = clock.tables_of(pipeline.work.pipeline)[:2]
    for table in tables:
        without_zone(table)
    # Compacts the metadata table.
    maintenance.archive(pipeline.by("maintenance", launcher=shanghai(spark)))
    batches(pipeline, 1, first=20)
    reader = spark.read.format("hudi").option("hoodie.metadata.enable", "true")
    assert reader.load(tables[0].full("")).count() == 30
    assert_exact(pipeline, 30)
    newest = clock._newest(tables)
    assert newest is not None and newest.at < datetime.now(timezone.utc)
    assert all(b"\nhoodie.table.timeline.timezone=UTC\n" in (table.read(PROPERTIES) or b"") for table in tables)


def test_an_update_after_a_batch_in_another_zone_is_the_one_that_counts(
    spark: SparkSession, upserts: Callable[..., Scenario]
) -> None:
    pipeline = upserts("copy_on_write")
    assert pipeline.work.pipeline.table.upsert is not None
    model = Model(pipeline.work.pipeline.table.upsert)
    for at, launcher in ((1, shanghai(spark)), (2, pipeline.work.launcher)):
        changes = [Change(f"c{number}", at, "a", at) for number in range(10)]
        put(pipeline.client, pipeline.work.pipeline, changes)
        replace(pipeline, work=replace(pipeline.work, launcher=launcher)).batch(f"run-{at}")
        model.batch(changes)
    storage = pipeline.work.storage
    assert rows_by_rust(storage.uri) == rows_by_spark(spark, storage.full("")) == model.table()


def test_a_machine_whose_clock_is_days_ahead_of_the_ledgers_writes_nothing(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times on the timeline would stop everybody else for days."""
    pipeline = scenario(shards=1)
    pipeline.put(10)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    right = type(pipeline.work.ledger).now
    for behind in (timedelta(days=3), context.MOST_AHEAD + timedelta(minutes=1)):
        monkeypatch.setattr(type(pipeline.work.ledger), "now", lambda self, by=behind: right(self) - by)
        for act in (
            lambda: steps.open_instant(pipeline.by("run-1"), planned.id, planned.token),
            lambda: settle(pipeline.by("run-2"), lambda run: True),
            lambda: maintenance.archive(pipeline.by("archive")),
        ):
            with pytest.raises(ClockAhead, match="Correct the wrong clock"):
                act()
    assert not pipeline.work.storage.exists(PROPERTIES)
    monkeypatch.setattr(type(pipeline.work.ledger), "now", lambda self: right(self) - timedelta(hours=1))
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.batch("run-3").rows == 10
