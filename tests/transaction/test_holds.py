"""Cleaning and archival wait for consumers of commits, say so beforehand, and go on when they have waited enough."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.downstream.changes import take
from airflow_provider_slshudi.exceptions import ConsumerBehind
from airflow_provider_slshudi.hudi.timeline import COMMITS, Timeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import compact
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.transaction.settle import register
from tests.scenarios import Scenario
from tests.transaction.quarantined import of_version
from tests.transaction.served import batches, cluster, served
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long
Make = Callable[..., Scenario]
DAY = 86_400
RUN = Run("consumer", "run-1")


def confirm(pipeline: Scenario, count: int) -> None:
    ledger, name = pipeline.work.ledger, pipeline.work.pipeline.name
    taken = take(ledger, name, "c", RUN, lambda run: True, count)
    assert taken is not None
    ledger.confirm(name, "c", taken.last, taken.nonce)


def instants(pipeline: Scenario) -> set[str | None]:
    """Those of the active timeline."""
    return {one.time for one in Timeline.load(pipeline.work.storage).completed(*COMMITS)}


@pytest.mark.parametrize("version", [6, 9])
def test_what_a_consumer_needs_stays_until_it_has_confirmed_it(
    spark: SparkSession, scenario: Make, version: int
) -> None:
    pipeline = of_version(served(scenario), version)
    logs = batches(pipeline, 2)
    pipeline.work.ledger.subscribe("ad_events", "c", Feed.COMMITS, 1, 7 * DAY)
    cluster(spark, pipeline)
    batches(pipeline, 4, first=logs)
    commits = [item.instant for item in pipeline.work.ledger.commits("ad_events", 0, 6)]
    assert maintenance.clean(pipeline.by("clean")).files == 0
    maintenance.archive(pipeline.by("archive"))
    assert instants(pipeline) >= {*commits[1:]}, "from the first on that is not confirmed"

    confirm(pipeline, 4)
    # Hudi plans no clean without a commit since the one before.
    batches(pipeline, 1, first=60)
    assert maintenance.clean(pipeline.by("clean")).files > 0
    maintenance.archive(pipeline.by("archive"))
    assert commits[1] not in instants(pipeline) and commits[5] in instants(pipeline)


def test_they_go_on_behind_a_consumer_that_is_too_late_and_tell_so(
    spark: SparkSession, scenario: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = served(scenario)
    logs = batches(pipeline, 2)
    pipeline.work.ledger.subscribe("ad_events", "c", Feed.COMMITS, 0, 0)
    cluster(spark, pipeline)
    batches(pipeline, 4, first=logs)
    with caplog.at_level(logging.WARNING):
        assert maintenance.clean(pipeline.by("clean")).files > 0
    assert "consumer c has not confirmed the commit of place 1" in caplog.text
    assert maintenance.archive(pipeline.by("archive")).instants > 0
    taken = take(pipeline.work.ledger, "ad_events", "c", RUN, lambda run: True)
    assert taken is not None and len(taken.commits) == 6, "no row was lost: the table only grows"


@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_of_rows_that_change_a_consumer_hears_what_is_lost_and_goes_on(
    upserts: Make, another_ledger: Ledger, type_: str
) -> None:
    pipeline = upserts(type_)
    described = pipeline.work.pipeline.model_dump(mode="json")
    described["maintenance"] = {"compact_after": 2, "keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    pipeline = replace(pipeline, work=replace(pipeline.work, pipeline=Pipeline.model_validate(described)))
    ledger = pipeline.work.ledger
    register(pipeline.work)
    ledger.subscribe("customers", "c", Feed.COMMITS, 0, 7 * DAY)
    for at in range(4):
        put(pipeline.client, pipeline.work.pipeline, [Change("k", at, "eu", at)])
        pipeline.batch(f"run-{at}")
        if type_ == "merge_on_read" and at % 2:
            assert compact(pipeline.by("compact")).files
    assert maintenance.clean(pipeline.by("clean")).files == 0
    ledger.subscribe("customers", "c", Feed.COMMITS, 0, 0)
    assert maintenance.clean(pipeline.by("clean")).files > 0
    with pytest.raises(ConsumerBehind) as behind:
        take(ledger, "customers", "c", RUN, lambda run: True)
    assert behind.value.place > 1
    put(pipeline.client, pipeline.work.pipeline, [Change("k", 4, "eu", 4)])
    pipeline.batch("run-4")

    rebuild(replace(pipeline.by("rebuild"), ledger=another_ledger))
    another_ledger.subscribe("customers", "c", Feed.COMMITS, 0, 0)
    with pytest.raises(ConsumerBehind):
        take(another_ledger, "customers", "c", RUN, lambda run: True)
    for each in (ledger, another_ledger):
        each.move("customers", "c", behind.value.place - 1)
        taken = take(each, "customers", "c", RUN, lambda run: True)
        assert taken is not None and taken.first == behind.value.place
