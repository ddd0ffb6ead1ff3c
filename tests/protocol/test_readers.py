"""The table is an ordinary Hudi table: other readers and Hudi's own services work on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol.verify import verify
from tests.scenarios import Scenario

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
