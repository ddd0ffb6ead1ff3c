"""The table is an ordinary Hudi table: other readers, former Hudis and Hudi's own services work on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.services.version import change
from tests.former import HUDI_1_0, ask
from tests.scenarios import Scenario
from tests.transaction.quarantined import of_version
from tests.transaction.served import batches, served
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_snapshot_incremental_time_travel_and_clustering(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    from hudi import HudiTableBuilder

    pipeline = scenario()
    path = pipeline.work.storage.full("")
    pipeline.put(200)
    first = pipeline.batch("run-1")
    pipeline.put(100, first=200)
    second = pipeline.batch("run-2")

    def read(**options: str) -> DataFrame:
        return spark.read.format("hudi").options(**options).load(path)

    def incremental(start: str | None) -> int:
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": start or "",
        }
        return read(**options).count()

    assert read().count() == 300
    assert incremental("000") == 300
    assert incremental(first.completed) == 100
    assert read(**{"as.of.instant": first.completed or ""}).count() == 200

    before = {row["_hoodie_record_key"]: row["event_id"] for row in read().collect()}
    spark.sql(f"call run_clustering(path => '{path}')").collect()
    assert {row["_hoodie_record_key"]: row["event_id"] for row in read().collect()} == before
    rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(f"file://{path}").build().read())
    assert sorted(rust["_hoodie_record_key"].to_pylist()) == sorted(before)
    assert verify(pipeline.work).ok

    pipeline.put(100, first=300)
    assert pipeline.batch("run-3").state is State.COMMITTED
    assert read().count() == 400
    assert incremental(second.completed) >= 100


def test_hudi_1_0_reads_appends_value_by_value_beside_rows_that_are_not_committed(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = of_version(served(scenario), 8)
    batches(pipeline, 2)
    assert cluster(pipeline.by("cluster")).files
    batches(pipeline, 1, first=20)
    pipeline.prepare_next(30)
    path = pipeline.work.storage.full("")
    queries = "SELECT * FROM t ORDER BY event_id", "SELECT count(*) FROM t WHERE event_date = '2026-01-02'"
    answers = ask(HUDI_1_0, *((path, query) for query in queries))
    assert len(answers[0]) == 30
    assert answers == [by_this_hudi(spark, path, query) for query in queries]


@pytest.mark.parametrize(("ordering", "stays"), [("updated_at", 5), (None, 3)])
def test_hudi_1_0_merges_log_files_as_this_hudi_does_and_refuses_version_9(
    spark: SparkSession, upserts: Callable[..., Scenario], ordering: str | None, stays: int
) -> None:
    pipeline = of_version(upserts(ordering_field=ordering), 8)
    path = require_merged(spark, pipeline, HUDI_1_0, stays)
    change(of_version(pipeline, 9).work, 9)
    [refused] = ask(HUDI_1_0, (path, "SELECT * FROM t"))
    assert "versionCode:9" in refused


def require_merged(spark: SparkSession, pipeline: Scenario, former: str, stays: int) -> str:
    """After a late update and a delete a former Hudi reads the rows that this one does; returns the table's path."""
    for at in (5, 3):
        put(pipeline.client, pipeline.work.pipeline, [Change("same", at, "eu", at), Change(str(at), at, "a/b", None)])
        pipeline.batch(f"run-{at}")
    put(pipeline.client, pipeline.work.pipeline, [Change("5", 6, "a/b", is_deleted=True)])
    pipeline.batch("run-6")
    path = pipeline.work.storage.full("")
    queries = "SELECT * FROM t ORDER BY id", "SELECT count(*) FROM t WHERE region = 'a/b'"
    answers = ask(former, *((path, query) for query in queries))
    assert [(row["id"], row["number"]) for row in answers[0]] == [("3", None), ("same", stays)]
    assert answers == [by_this_hudi(spark, path, query) for query in queries]
    return path


def by_this_hudi(spark: SparkSession, path: str, query: str) -> Any:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.read.format("hudi").load(path).createOrReplaceTempView("t")
    rows = [row.asDict(recursive=True) for row in spark.sql(query).collect()]
    return json.loads(json.dumps(rows, default=str, sort_keys=True))
