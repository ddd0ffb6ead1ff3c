"""What a pipeline's checks ask of a batch is asked before its commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.exceptions import CheckFailed, ConfigError
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.transaction import plan, steps
from tests.pipelines import ad_events
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ({"every": "price < 10"}, r"check c: 10 rows are against it, one of them 0-\d+-\d: price < 10"),
        ({"batch": "count(*) > 50 AND max(price) < 10"}, r"check c: not so: count\(\*\) > 50 AND max\(price\) < 10"),
        ({"freshness": "1h"}, r"check c: the newest log is \d+ s old, asked for is 1h"),
    ],
)
def test_a_batch_that_fails_a_check_is_not_committed(
    scenario: Callable[..., Scenario], check: dict[str, Any], found: str
) -> None:
    pipeline = scenario(shards=1, checks=[{"name": "c", **check}])
    pipeline.put(50)
    with pytest.raises(CheckFailed, match=found) as caught:
        pipeline.batch("run-1")
    assert (caught.value.pipeline, list(caught.value.checks)) == ("ad_events", ["c"])
    (transaction,) = pipeline.work.ledger.last("ad_events", 10)
    assert (transaction.id, transaction.state) == (caught.value.transaction, State.OPEN)
    assert Timeline.load(pipeline.work.storage).completed("commit") == []


def test_a_warning_goes_into_the_ledger_with_the_batch(scenario: Callable[..., Scenario]) -> None:
    """The expressions know every column, derived ones too, and rows of several files and partitions."""
    checks = [
        {"name": "cheap", "every": "price < 10", "on_failure": "warn"},
        {"name": "fresh", "freshness": "1h", "on_failure": "warn"},
        {"name": "whole", "batch": "count(*) = 500 AND count(DISTINCT event_id) = count(*)"},
        {"name": "dated", "every": "event_date = date_format(event_time, 'yyyy-MM-dd')"},
        {"name": "kept", "every": "rest['city'] = 'Ulm'"},
        {"name": "unknown", "every": "clicks >= 0"},
    ]
    pipeline = scenario(checks=checks)
    pipeline.put(500)
    committed = pipeline.batch("run-1")
    assert committed.state is State.COMMITTED
    assert list((committed.manifest or {})["warnings"]) == ["cheap", "fresh"]


def test_the_next_batch_goes_on_once_the_check_is_met(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1, checks=[{"name": "many", "batch": "count(*) >= 20"}])
    pipeline.put(10)
    with pytest.raises(CheckFailed):
        pipeline.batch("run-1")
    pipeline.put(10, first=10)
    assert pipeline.batch("run-2").rows == 20


def test_a_fresh_batch_passes_and_a_backfill_may_be_old(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1, checks=[{"name": "fresh", "freshness": "5m"}])
    pipeline.put(10)
    end = pipeline.work.connect().end(0)
    backfill = plan.backfill(
        pipeline.by("b"), plan.BackfillRequest(cursors={0: (pipeline.work.connect().begin(0), end)})
    )
    assert backfill is not None
    steps.open_instant(pipeline.by("b"), backfill.id, backfill.token)
    steps.append(pipeline.by("b"), backfill.id, backfill.token)
    assert steps.record(pipeline.by("b"), backfill.id, backfill.token).state is State.PREPARED
    source = pipeline.work.pipeline.source
    item = LogItem(int(time.time()), contents=[("event_id", "new"), ("ts", "1767225600000")])
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", [item]))
    assert pipeline.prepare(pipeline.by("t")).rows == 1


def test_nothing_is_against_a_batch_without_logs(spark: SparkSession) -> None:
    from airflow_provider_slshudi.spark.driver.checks import BatchChecks

    checks = [{"name": "a", "every": "price < 10"}, {"name": "b", "batch": "avg(price) < 10"}]
    results = BatchChecks(spark.sparkContext, ad_events("file:///lake/t", checks=checks)).results([])
    assert [result.passed for result in results] == [True, True]


def test_a_check_means_the_same_whatever_the_cluster_sets(spark: SparkSession, tmp_path: Path) -> None:
    """By ANSI mode a text that is no number fails the query; by case-sensitive names PRICE is none."""
    from airflow_provider_slshudi.spark.driver.checks import BatchChecks

    file = written(tmp_path, ["7", "x"])
    checks = [
        {"name": "number", "batch": "count(cast(event_id as int)) = 1"},
        {"name": "case", "batch": "count(PRICE) = 0"},
        {"name": "zone", "batch": "max(date_format(event_time, 'HH')) = '00'"},
    ]
    shared = spark._jsparkSession.sharedState().conf()
    changed = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "Asia/Shanghai",
        "spark.sql.files.ignoreMissingFiles": "true",
    }
    for name, value in changed.items():
        shared.set(name, value)
    try:
        made = BatchChecks(spark.sparkContext, ad_events("file:///lake/t", checks=checks))
        assert [(item.name, item.passed) for item in made.results([file])] == [
            ("number", True),
            ("case", True),
            ("zone", True),
        ]
        with pytest.raises(Exception, match=r"does not exist|FileNotFound|PATH_NOT_FOUND"):
            made.results([f"{file}.gone"])
        by_choice = {"conf": {"spark.sql.ansi.enabled": "true"}}
        chosen = BatchChecks(spark.sparkContext, ad_events("file:///lake/t", checks=checks, spark=by_choice))
        with pytest.raises(
            ConfigError,
            match=r"ad_events: checks\.number\.batch: 'count.* cannot be computed .*CAST_INVALID_INPUT.*'x'",
        ):
            chosen.results([file])
    finally:
        for name in changed:
            shared.remove(name)


def written(folder: Path, ids: list[str]) -> str:
    """A base file of ad events with these ids; its URI."""
    times = pa.array([0] * len(ids), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"_hoodie_record_key": ids, "event_id": ids, "event_time": times}), folder / "f.parquet")
    return f"file://{folder}/f.parquet"


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"every": "prices < 10"}, r"checks\.c\.every: 'prices < 10' .*prices.* cannot be resolved"),
        ({"every": "price <"}, r"checks\.c\.every: 'price <' .*PARSE_SYNTAX_ERROR"),
        ({"every": "true, false"}, r"checks\.c\.every: 'true, false' .*PARSE_SYNTAX_ERROR"),
        ({"batch": "price < 10"}, r"checks\.c\.batch: 'price < 10' .*MISSING_AGGREGATION|MISSING_GROUP_BY"),
        ({"batch": "max(price)"}, r"checks\.c\.batch: 'max\(price\)' is of type double, expected a condition"),
    ],
)
def test_an_expression_that_is_no_condition_is_refused(spark: SparkSession, check: dict[str, str], why: str) -> None:
    from airflow_provider_slshudi.spark.driver.checks import BatchChecks

    with pytest.raises(ConfigError, match=why):
        BatchChecks(spark.sparkContext, ad_events("file:///lake/t", checks=[{"name": "c", **check}]))
