"""Logs go from shards into the table, exactly once, one batch after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ConfigError, DataExpired, JobFailed, TableError
from airflow_provider_slshudi.hudi.instant_metadata import RANGES_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import LedgerShard, State, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.settle import register
from airflow_provider_slshudi.views import history
from airflow_provider_slshudi.views.cost import TASKS, cost_of
from airflow_provider_slshudi.views.sides import Verdict
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assert_cost_is_kept(pipeline: Scenario, done: Transaction) -> None:
    """Of two shards: the list and two ends, two begins, ages and how long logs are kept; and a pull of each."""
    past = next(item for item in pipeline.work.ledger.history("ad_events", 5) if item.transaction.id == done.id)
    cost = cost_of(past.transaction.manifest or {}, past.events)
    assert cost.asked["append"] == 2 and 5 <= (cost.asked["plan"] or 0) <= 10
    taken = cost.cpu[TASKS], cost.cpu["append"]
    assert all(seconds is not None and seconds > 0 for seconds in taken)


@pytest.mark.capability("append")
def test_two_batches_bring_every_log_once(spark: SparkSession, scenario: Callable[..., Scenario]) -> None:
    from hudi import HudiTableBuilder

    pipeline = scenario()
    pipeline.put(500)
    first = pipeline.batch("run-1")
    assert (first.state, first.rows) == (State.COMMITTED, 500)
    assert_cost_is_kept(pipeline, first)
    sides = history.transaction(pipeline.work.ledger, first.id).sides
    assert (sides.state, sides.completion, sides.verdict) == ("COMPLETED", first.completed, Verdict.AGREE)
    assert (sides.same_transaction, sides.same_ranges) == (True, True)
    assert plan.preview(pipeline.work) == [] and plan.tail(pipeline.by("run-2")) is None
    pipeline.put(300, first=500)
    second = pipeline.batch("run-3")
    assert second.rows == 300

    table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    assert table.count() == table.select("_hoodie_record_key").distinct().count() == 800
    assert {row["event_id"] for row in table.select("event_id").collect()} == {f"event-{n}" for n in range(800)}
    # "none" is no bigint: NULL by the pipeline's rule; keys without a column are kept.
    assert table.where("clicks is null").count() == 80
    assert table.where("rest['city'] = 'Ulm'").count() == 800
    rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(pipeline.work.storage.uri).build().read())
    assert rust.num_rows == 800

    since = spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    since = since.option("hoodie.datasource.read.begin.instanttime", first.completed)
    assert since.load(pipeline.work.storage.full("")).count() == 300

    timeline = Timeline.load(pipeline.work.storage)
    extra = timeline.extra_metadata(timeline.completed("commit")[-1])
    assert extra[TRANSACTION_KEY] == second.id
    in_commit = {int(shard): rows for shard, rows in json.loads(extra[RANGES_KEY]).items()}
    assert in_commit == {
        item.range.shard: [[item.range.begin, item.range.end, item.rows, item.bytes]]
        for item in pipeline.work.ledger.totals(second.id)
    }
    assert pipeline.work.ledger.coverage("ad_events") == [
        Range(shard, begin, pipeline.work.connect().end(shard))
        for shard, begin in ((0, pipeline.work.connect().begin(0)), (1, pipeline.work.connect().begin(1)))
    ]
    proof = verify(pipeline.work)
    assert proof.ok and proof.rows == 800


def test_a_driver_validates_the_pipeline_of_an_append_once(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has validated the file that it loaded, and what it orders needs no second look on its side."""
    pipeline = scenario(shards=1)
    pipeline.put(5)
    work = pipeline.by("run-1")
    planned = plan.tail(work)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    validate, validated = Pipeline.model_validate, list[str]()

    def counted(described: Any) -> Pipeline:
        validated.append(described["name"])
        return validate(described)

    monkeypatch.setattr(Pipeline, "model_validate", counted)
    steps.append(work, planned.id, planned.token)
    assert validated == ["ad_events"]


def test_a_backfill_reads_only_what_nobody_read(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(100)
    committed = pipeline.batch("run-1")
    (covered,) = pipeline.work.ledger.ranges(committed.id)
    pipeline.put(50, first=100)
    end = pipeline.work.connect().end(0)
    request = plan.BackfillRequest(cursors={0: (covered.begin, end)})
    planned = plan.backfill(pipeline.by("backfill"), request)
    assert planned is not None
    assert pipeline.work.ledger.ranges(planned.id) == [Range(0, covered.end, end)]
    assert plan.preview(pipeline.work) == []


def test_logs_that_expired_unread_stop_the_pipeline_or_are_recorded_as_a_gap(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(50)
    begin = pipeline.work.connect().begin(0)
    # Our duty begins ten log groups before what the service still holds.
    register(pipeline.work)
    pipeline.work.ledger.save_shards("ad_events", [LedgerShard(0, "readwrite", "00", "ff", begin - 10)])
    with pytest.raises(DataExpired, match="on_expired: skip") as expired:
        plan.tail(pipeline.by("run-1"))
    assert (expired.value.shard, expired.value.begin, expired.value.end) == (0, begin - 10, begin)

    source = pipeline.work.pipeline.source.model_copy(update={"on_expired": "skip"})
    changed = pipeline.work.pipeline.model_copy(update={"source": source})
    skipping = replace(pipeline, work=pipeline.by("run-2", pipeline=changed))
    committed = skipping.batch("run-2")
    assert committed.rows == 50
    assert skipping.work.ledger.ranges(committed.id)[0] == Range(0, begin - 10, begin, gap=True)
    timeline = Timeline.load(pipeline.work.storage)
    (in_commit,) = timeline.completed("commit")
    ranges = json.loads(timeline.extra_metadata(in_commit)[RANGES_KEY])
    assert ranges["0"][0] == [begin - 10, begin, None, None]
    assert plan.preview(skipping.work) == []
    assert verify(skipping.work).ok


def test_a_backfill_by_receive_times_leaves_out_shards_that_received_nothing(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=2)
    now = int(time.time())
    pipeline.put(10)
    service = pipeline.work.connect()
    (given,) = (shard for shard in (0, 1) if service.begin(shard) < service.end(shard))
    all_times = plan.BackfillRequest(span=(now - 60, now + 60))
    assert plan.preview_backfill(pipeline.work, all_times) == [Range(given, service.begin(given), service.end(given))]
    long_ago = plan.BackfillRequest(span=(now - 600, now - 300))
    assert plan.backfill(pipeline.by("backfill"), long_ago) is None
    with pytest.raises(ConfigError, match="names no shard"):
        plan.backfill(pipeline.by("backfill"), plan.BackfillRequest(cursors={}))


def test_a_table_that_is_not_there_yet_cannot_be_verified(scenario: Callable[..., Scenario]) -> None:
    with pytest.raises(TableError, match="no table yet"):
        verify(scenario().work)


def test_a_misfit_that_fails_the_batch_is_named_by_the_job(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(misfits="fail", launcher=SubprocessLauncher())
    pipeline.put(10)
    with pytest.raises(JobFailed, match=r"ValueMisfit: column clicks: a value of 4 bytes of log .* is no bigint"):
        pipeline.batch("run-1")
