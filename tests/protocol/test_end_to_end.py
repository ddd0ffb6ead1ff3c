"""Logs go from shards into the table, exactly once, one batch after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_slshudi.hudi import exchange
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol import plan
from airflow_provider_slshudi.protocol.verify import verify
from airflow_provider_slshudi.ranges import Range
from tests.protocol.conftest import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_two_batches_bring_every_log_once(spark: SparkSession, scenario: Callable[..., Scenario]) -> None:
    from hudi import HudiTableBuilder

    pipeline = scenario()
    pipeline.put(500)
    first = pipeline.batch("run-1")
    assert (first.state, first.rows) == (State.COMMITTED, 500)
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
    assert extra[exchange.TRANSACTION_KEY] == second.id
    assert pipeline.work.ledger.coverage("ad_events") == [
        Range(shard, begin, pipeline.work.connect().end(shard))
        for shard, begin in ((0, pipeline.work.connect().begin(0)), (1, pipeline.work.connect().begin(1)))
    ]
    proof = verify(pipeline.work)
    assert proof.ok and proof.rows == 800


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
