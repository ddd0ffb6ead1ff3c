"""Mirrors of tables that Hudi wrote: after each event pyiceberg and deltalake see the rows that Spark sees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import writer
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.maintenance import archive, clean
from airflow_provider_slshudi.services.mirrors import mirror
from airflow_provider_slshudi.services.rewrite import cluster, compact
from airflow_provider_slshudi.transaction.settle import settle
from tests.needs import needs_deltalake
from tests.scenarios import Scenario
from tests.transaction.served import batches, served
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_mirrors(made: Scenario, tmp_path: Path, **maintenance: Any) -> Scenario:
    """The same pipeline with both mirrors, and a catalog in SQLite."""
    described = made.work.pipeline.model_dump(mode="json")
    described["mirror"] = {"iceberg": {"catalog": "lake", "table": "lake.mirrored"}, "delta": {}}
    described["maintenance"] |= maintenance
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "name": "lake"}
    pipeline = Pipeline.model_validate(described)
    return replace(made, work=replace(made.work, pipeline=pipeline, iceberg_catalog=lambda _: dict(catalog)))


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone(timezone.utc)
        return sorted(value) if isinstance(value, list) else value

    shown = ({name: value for name, value in row.items() if not name.startswith("_hoodie")} for row in rows)
    return Counter(str(sorted((name, repr(plain(value))) for name, value in row.items())) for row in shown)


def require_alike(spark: SparkSession, pipeline: Scenario) -> int:
    """Mirrors, and compares all rows with those of Spark, which looks at base files alone; gives their number."""
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    mirror(pipeline.work)
    path = pipeline.work.storage.full("")
    read = spark.read.format("hudi").option("hoodie.datasource.query.type", "read_optimized").load(path)
    expected = bag(
        {
            name: sorted(value.items())
            if isinstance(value, dict)
            # Spark gives times of the session's zone without naming it.
            else value.astimezone(timezone.utc)
            if isinstance(value, datetime)
            else value
            for name, value in row.asDict().items()
        }
        for row in read.collect()
    )
    table = load_catalog(**pipeline.work.iceberg_catalog("lake")).load_table("lake.mirrored")
    assert bag(table.scan().to_arrow().to_pylist()) == expected
    assert bag(DeltaTable(path).to_pyarrow_table().to_pylist()) == expected
    newest_of = table.current_snapshot()
    assert newest_of is not None and newest_of.summary is not None
    if (transaction := newest_of.summary.get(TRANSACTION_KEY)) is not None:
        assert pipeline.work.ledger.get(transaction).id == transaction
    return sum(expected.values())


def newest(pipeline: Scenario) -> str:
    return Timeline.load(pipeline.work.storage).completed(*CHANGES)[-1].time


@needs_deltalake
@pytest.mark.capability("mirrors")
def test_readers_of_iceberg_and_delta_see_a_table_that_is_appended_to_clustered_cleaned_and_restored(
    spark: SparkSession, scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    pipeline = with_mirrors(served(scenario), tmp_path)
    logs = batches(pipeline, 1)
    assert require_alike(spark, pipeline) == logs
    logs = batches(pipeline, 2, logs)
    assert require_alike(spark, pipeline) == logs
    waiting = pipeline.prepare_next(logs)
    assert cluster(pipeline.by("maintenance")).instant is not None
    assert require_alike(spark, pipeline) == logs
    settle(pipeline.by("late"), lambda run: run.run_id == waiting.run_id)
    logs = batches(pipeline, 2, logs + 10)
    committed = require_alike(spark, pipeline)
    assert clean(pipeline.by("maintenance")).files > 0
    assert require_alike(spark, pipeline) == committed
    with writer.client(Gateway.of(spark.sparkContext), pipeline.work.pipeline) as client:
        client.savepoint(kept := newest(pipeline), "somebody", "before the next batch")
    batches(pipeline, 1, logs)
    assert require_alike(spark, pipeline) == committed + 10
    with writer.client(Gateway.of(spark.sparkContext), pipeline.work.pipeline) as client:
        client.restoreToSavepoint(kept)
    assert require_alike(spark, pipeline) == committed
    rebuild(pipeline.work)
    pipeline.batch("again")
    batches(pipeline, 3, logs + 10)
    archive(pipeline.by("maintenance"))
    assert require_alike(spark, pipeline) == committed + 40


@needs_deltalake
@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_they_see_upserts_as_far_as_these_are_in_base_files(
    spark: SparkSession, upserts: Callable[..., Scenario], tmp_path: Path, type_: str
) -> None:
    pipeline = with_mirrors(
        upserts(type_), tmp_path, keep={"commits": 1}, min_commits=2, max_commits=3, compact_after=2
    )
    random_ = random.Random(5)
    for number in range(4):
        changes = [
            Change(
                str(random_.randrange(30)), number, random_.choice(["eu/x", "us"]), is_deleted=random_.random() < 0.2
            )
            for _ in range(40)
        ]
        put(pipeline.client, pipeline.work.pipeline, changes)
        pipeline.batch(f"run-{number}")
        if type_ == "merge_on_read":
            compact(pipeline.by("maintenance"))
        assert require_alike(spark, pipeline) > 0 or type_ == "merge_on_read"
    assert clean(pipeline.by("maintenance")).files > 0
    assert require_alike(spark, pipeline) > 0
