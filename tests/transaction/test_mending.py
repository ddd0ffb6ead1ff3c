"""A table is looked at for what other clients left in it, and mended, beside batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import JobFailed, TableError, TableMismatch
from airflow_provider_slshudi.handover.findings import Findings
from airflow_provider_slshudi.hudi import properties, statistics
from airflow_provider_slshudi.hudi.client.metadata_table import ESCAPED
from airflow_provider_slshudi.services.metadata import check_indexes, mend_indexes
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCKS = "hoodie.write.lock.provider"


def put(pipeline: Scenario, *logs: dict[str, str]) -> None:
    source = pipeline.work.pipeline.source
    for log in logs:
        item = LogItem(1_700_000_000, contents=list(log.items()))
        pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", [item]))


def found(spark: SparkSession, pipeline: Scenario, where: str) -> list[str]:
    table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    return sorted(row.event_id for row in table.where(where).select("event_id").collect())


def test_a_property_that_calls_folders_escaped_is_corrected(scenario: Callable[..., Scenario]) -> None:
    """Spark's own writer sets it of any partition; with it Spark stops at rows of a table by time that have none."""
    pipeline = scenario(shards=1)
    put(pipeline, {"event_id": "a", "ts": "0"}, {"event_id": "none"})
    pipeline.batch("run-1")
    properties.put(pipeline.work.storage, ESCAPED, "true")
    before = check_indexes(pipeline.by("check"))
    assert before.escaped and before.looked == 2 and not before.ok
    assert mend_indexes(pipeline.by("mend")) == Findings(looked=2)
    assert (properties.read(pipeline.work.storage) or {})[ESCAPED] == "false"


def test_a_column_that_is_sorted_by_later_gets_its_bounds(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    assert check_indexes(pipeline.by("check")).ok
    changed = pipeline.by("mend", pipeline=sorted_by(pipeline, "clicks"))
    assert check_indexes(changed).lacking == ("clicks",)
    assert mend_indexes(changed).ok
    assert statistics.Indexes.of(pipeline.work.storage).bounded == ["clicks"]


def test_a_column_that_some_files_lack_gets_no_bounds(spark: SparkSession, scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1)
    put(pipeline, {"event_id": "before", "ts": "0"})
    pipeline.batch("run-1")
    later = sorted_by(pipeline, "clicks", "later", columns=[{"name": "later", "type": "int"}])
    put(pipeline, {"event_id": "after", "ts": "86400000"})
    work = pipeline.by("run-2", pipeline=later)
    prepared = pipeline.prepare(work)
    steps.commit(work, prepared.id, prepared.token)
    assert check_indexes(pipeline.by("check", pipeline=later)).lacking == ("clicks",)
    assert mend_indexes(pipeline.by("mend", pipeline=later)).ok
    assert statistics.Indexes.of(pipeline.work.storage).bounded == ["clicks"]
    assert found(spark, pipeline, "coalesce(later, 0) = 0") == ["after", "before"]


def sorted_by(pipeline: Scenario, *names: str, columns: Sequence[dict[str, str]] = ()) -> Pipeline:
    described = pipeline.work.pipeline.model_dump(mode="json")
    more = {
        "columns": [*described["columns"], *columns],
        "maintenance": {**described["maintenance"], "clustering": {"sort": list(names)}},
    }
    return Pipeline.model_validate({**described, **more})


def test_there_is_nothing_to_look_at_before_the_first_batch(scenario: Callable[..., Scenario]) -> None:
    with pytest.raises(TableError, match="run a batch first"):
        check_indexes(scenario().work)


@pytest.mark.capability("mending")
def test_an_index_of_somebody_elses_is_found_and_taken_off(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    spark.sql(f"create table clicks_of_sql using hudi location '{pipeline.work.storage.full('')}'")
    try:
        # It fails, since nobody told it of a lock, and leaves what it wanted.
        with pytest.raises(Exception, match="Failed to create write client"):
            spark.sql("create index by_hour on clicks_of_sql using column_stats(event_time) options(expr='hour')")
    finally:
        spark.sql("drop table clicks_of_sql")
    pipeline.put(20)
    with pytest.raises(TableMismatch, match="expr_index_by_hour"):
        pipeline.batch("run-2")
    assert check_indexes(pipeline.by("check")).foreign == ("expr_index_by_hour",)
    assert mend_indexes(pipeline.by("mend")).ok
    assert pipeline.batch("run-3").rows == 20
    assert verify(pipeline.work).ok


@contextmanager
def named(spark: SparkSession, path: str) -> Iterator[str]:
    """A table as Spark's SQL knows it, with a lock, without which it makes no index."""
    spark.sql(f"create table of_sql using hudi location '{path}'")
    spark.conf.set(LOCKS, "org.apache.hudi.client.transaction.lock.InProcessLockProvider")
    try:
        yield "of_sql"
    finally:
        spark.conf.unset(LOCKS)
        spark.sql("drop table of_sql")


def test_an_index_is_found_again_where_its_removal_was_cut_off(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    with named(spark, pipeline.work.storage.full("")) as table:
        spark.sql(f"create index by_hour on {table} using column_stats(event_time) options(expr='hour')")
    with pytest.raises(JobFailed):
        mend_indexes(pipeline.by("mend", launcher=DyingLauncher(Point.METADATA_DELETED)))
    assert check_indexes(pipeline.by("check")).foreign == ("expr_index_by_hour",)
    assert mend_indexes(pipeline.by("mend again")).ok
    told = properties.read(pipeline.work.storage) or {}
    assert "expr_index" not in told["hoodie.table.metadata.partitions"]
    pipeline.put(20)
    assert pipeline.batch("run-2").rows == 20


def test_an_index_without_a_definition_is_one_of_somebody_elses(tmp_path: Path) -> None:
    """As a client left it that was cut off between the definition and what it defines."""
    storage = Storage(f"file://{tmp_path}")
    storage.write(".hoodie/hoodie.properties", b"hoodie.table.metadata.partitions=expr_index_by_hour,files\n")
    assert statistics.Indexes.of(storage).foreign == ["expr_index_by_hour"]


def test_an_index_of_the_quarantine_holds_a_batch_back_until_it_is_taken_off(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    misfit = {"event_id": "odd", "ts": "0", "clicks": "none"}
    put(pipeline, misfit, {"event_id": "a", "ts": "0", "clicks": "3"})
    pipeline.batch("run-1")
    put(pipeline, misfit, {"event_id": "b", "ts": "0", "clicks": "3"})
    waiting = pipeline.prepare(pipeline.by("run-2"))
    with named(spark, Storage(pipeline.work.pipeline.quarantine_path).full("")) as table:
        spark.sql(f"create index by_hour on {table} using column_stats(planned) options(expr='hour')")
    with pytest.raises(TableMismatch, match="expr_index_by_hour"):
        steps.commit(pipeline.by("run-2"), waiting.id, waiting.token)
    assert found(spark, pipeline, "true") == ["a"], "neither table has the batch"
    assert check_indexes(pipeline.by("check")).foreign == ("quarantine: expr_index_by_hour",)
    assert mend_indexes(pipeline.by("mend")).ok
    settle(pipeline.by("run-3"), lambda run: True)
    assert found(spark, pipeline, "true") == ["a", "b"]
    assert verify(pipeline.work).ok
