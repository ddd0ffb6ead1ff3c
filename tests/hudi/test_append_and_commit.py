"""Base files of ours, committed and rolled back by Hudi, read by readers that are not ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch, TableMismatch
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.rows.partitions import partition_path
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.conftest import event_rows, write_files
from tests.pipelines import ad_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Opened = Callable[[], str]


def test_what_was_written_is_read_by_spark_and_by_hudi_rs(
    spark: SparkSession, gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened
) -> None:
    from hudi import HudiTableBuilder

    instant = opened()
    stats = write_files(storage, instant, 1000, days=3)
    assert len(stats) == 3 and sum(stat["numWrites"] for stat in stats) == 1000
    commit.commit(gateway, pipeline, instant, stats, {"slshudi.transaction": "t1"})

    by_spark = spark.read.format("hudi").load(storage.full(""))
    found = by_spark.orderBy("price").limit(12).collect()
    expected, keys, _ = event_rows(12, 3)
    for index, (row, wanted) in enumerate(zip(found, expected.to_pylist(), strict=True)):
        assert row["event_id"] == wanted["event_id"]
        assert row["event_time"].timestamp() == wanted["event_time"].timestamp()
        assert row["clicks"] == wanted["clicks"]
        assert row["rest"] == dict(wanted["rest"])
        assert row["event_date"] == wanted["event_date"]
        assert row["_hoodie_record_key"] == keys[index].as_py()
        assert row["_hoodie_partition_path"] == f"event_date={wanted['event_date']}"
        assert row["_hoodie_commit_time"] == instant
    assert by_spark.select("_hoodie_commit_seqno").distinct().count() == 1000
    assert by_spark.where("event_date = '2026-01-02'").count() == 333

    batches = HudiTableBuilder.from_base_uri(storage.uri).build().read()
    by_rust = pa.Table.from_batches(batches)
    assert by_rust.num_rows == 1000
    assert sorted(by_rust["event_id"].to_pylist()) == sorted(f"event-{n}" for n in range(1000))

    completed = Timeline.load(storage).get(instant)
    assert completed is not None and completed.phase is Phase.COMPLETED
    assert Timeline.load(storage).extra_metadata(completed)["slshudi.transaction"] == "t1"


def test_a_rollback_deletes_exactly_the_files_of_its_instant(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened
) -> None:
    kept, doomed = opened(), opened()
    kept_stats = write_files(storage, kept, 100)
    write_files(storage, doomed, 100, first=100)
    commit.commit(gateway, pipeline, kept, kept_stats, {})
    commit.roll_back(gateway, pipeline, doomed)
    left = [path.name for path in Path(storage.full("")).glob("event_date=*/*.parquet")]
    assert left == [Path(stat["path"]).name for stat in kept_stats]
    timeline = Timeline.load(storage)
    assert timeline.get(doomed) is None and timeline.was_rolled_back(doomed) and not timeline.was_rolled_back(kept)


def test_a_failed_attempts_file_does_not_survive_the_commit(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened
) -> None:
    instant = opened()
    write_files(storage, instant, 50)
    stats = write_files(storage, instant, 50)
    assert len(list(Path(storage.full("")).glob("event_date=*/*.parquet"))) == 2
    commit.commit(gateway, pipeline, instant, stats, {})
    assert [p.name for p in Path(storage.full("")).glob("event_date=*/*.parquet")] == [Path(stats[0]["path"]).name]


@pytest.mark.parametrize("value", ["plain", "a/b", "50%", "a=b", "ü ñ", "", None, "back\\slash", "x:y?z"])
def test_a_partition_value_comes_back_as_it_was_written(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, value: str | None
) -> None:
    pipeline = ad_events(
        tmp_path / "table",
        table={
            "path": f"file://{tmp_path / 'table'}",
            "name": "by_field",
            "partition": {"by": "field", "column": "event_id"},
        },
        rest_column=None,
        columns=[{"name": "event_id"}, {"name": "price", "type": "double"}],
    )
    storage = Storage(pipeline.table.path)
    instants.create_table(gateway, pipeline)
    instant = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, instant)
    instants.to_inflight(gateway, storage.uri, instant)
    writer = BaseFileWriter(storage, instant, "0-0-0", 1 << 20, still_wanted=lambda: None)
    events = pa.array([value, "other"], pa.string())
    rows = pa.table({"event_id": events, "price": pa.array([1.0, 2.0])})
    writer.write(rows, pa.array(["0-1-0", "0-2-0"]), "event_id", events.dictionary_encode())
    commit.commit(gateway, pipeline, instant, writer.close(), {})
    found = spark.read.format("hudi").load(storage.full(""))
    assert found.count() == 2
    assert found.where("price = 1.0").collect()[0]["_hoodie_partition_path"] == partition_path("event_id", value)
    # An empty string and NULL share Hive's default partition.
    assert found.where("price = 1.0").collect()[0]["event_id"] == (value or None)


def test_a_table_that_is_another_is_refused(gateway: Gateway, pipeline: Pipeline, tmp_path: Path) -> None:
    instants.create_table(gateway, pipeline)
    instants.check_table(gateway, pipeline)
    other = ad_events(tmp_path / "table", table={"path": pipeline.table.path, "name": "other"})
    with pytest.raises(
        TableMismatch,
        match=r"name: ad_events there, other in the file; partition field: event_date there, none in the file",
    ):
        instants.check_table(gateway, other)


def test_columns_that_the_table_cannot_have_are_refused_with_both_types(
    gateway: Gateway, pipeline: Pipeline, tmp_path: Path
) -> None:
    instants.create_table(gateway, pipeline)
    columns = [{"name": "event_time", "type": "timestamp", "format": "millis"}, {"name": "price", "type": "bigint"}]
    other = ad_events(tmp_path / "table", columns=columns)
    with pytest.raises(ColumnMismatch, match=r"columns cannot change to.*: price: double there, bigint in the"):
        instants.check_table(gateway, other)
