"""Files of an upsert, written without Spark, as Hudi's own client, Spark and hudi-rs take them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableMismatch
from airflow_provider_slshudi.hudi.actions import action as action_of
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.hudi.files.merge import PLACE
from airflow_provider_slshudi.hudi.files.upsertwriter import UpsertWriter
from airflow_provider_slshudi.hudi.schema import arrow_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.job.upsert import upsert_spec
from airflow_provider_slshudi.rows.keys import bucket_ids
from airflow_provider_slshudi.storage import Storage
from tests.pipelines import customers
from tests.upserts import Change, Model, rows_by_rust, rows_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = [Change(f"c{number}", 1, "a", number) for number in range(40)]
SECOND = [Change(f"c{number}", 2, "a", -number, is_deleted=number % 3 == 0) for number in range(20)]


class Table:
    """A table of customers, and batches written into it by one task."""

    def __init__(self, gateway: Gateway, pipeline: Pipeline) -> None:
        self.gateway, self.pipeline, self.storage = gateway, pipeline, Storage(pipeline.table.path)
        instants.create_table(gateway, pipeline)

    def open(self) -> str:
        action, uri = action_of(self.pipeline.table), self.storage.uri
        instant = instants.new_instant_time(self.gateway, uri)
        instants.request(self.gateway, uri, instant, action)
        instants.to_inflight(self.gateway, uri, instant, action)
        return instant

    def write(
        self, instant: str, changes: list[Change], wanted: Any = lambda: None, **more: Any
    ) -> list[dict[str, Any]]:
        spec = upsert_spec(self.pipeline, instant, Completed.of(Timeline.load(self.storage)))
        table = pa.Table.from_pylist([{**change.row, **more} for change in changes], arrow_schema(self.pipeline))
        for name in PLACE:
            table = table.append_column(name, pa.array(range(len(changes)), pa.int64()))
        keys = table["id"].combine_chunks()
        buckets = pa.array(bucket_ids(["id"], [keys], keys, spec.merge.buckets))
        with UpsertWriter(self.storage, spec, "0-1-2", wanted) as writer:
            for bucket in range(spec.merge.buckets):
                mine = pc.equal(buckets, pa.scalar(bucket, buckets.type))
                if pc.any(mine).as_py():
                    writer.write("region=a", bucket, table.filter(mine), keys.filter(mine))
        return writer.stats

    def commit(self, instant: str, stats: list[dict[str, Any]]) -> None:
        commit.commit(self.gateway, self.pipeline, instant, stats, {})

    def files(self) -> set[str]:
        folder = Path(self.storage.full("region=a"))
        return {file.name for file in folder.glob("*0*") if not file.name.endswith(".crc")}


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def table(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> Table:
    made = Table(gateway, customers(tmp_path / "table", request.param))
    instant = made.open()
    made.commit(instant, made.write(instant, FIRST))
    return made


def model(*batches: list[Change]) -> list[tuple[Any, ...]]:
    upsert = customers("file:///nowhere/table").table.upsert
    assert upsert is not None
    found = Model(upsert)
    for batch in batches:
        found.batch(batch)
    return found.table()


def test_a_rollback_takes_away_what_was_written(spark: SparkSession, table: Table) -> None:
    before, instant = table.files(), table.open()
    table.write(instant, SECOND)
    assert len(table.files()) > len(before)
    commit.roll_back(table.gateway, table.pipeline, instant)
    assert table.files() == before
    assert rows_by_spark(spark, table.storage.full("")) == rows_by_rust(table.storage.uri) == model(FIRST)


def test_what_an_attempt_left_that_was_killed_is_gone_with_the_commit(spark: SparkSession, table: Table) -> None:
    instant = table.open()
    stats = table.write(instant, SECOND)
    for number, stat in enumerate(stats):
        # Another attempt's file, cut off or whole.
        stray = stat["path"].replace("0-1-2", "0-1-1")
        table.storage.write(f".hoodie/.temp/{instant}/{stray}.marker.CREATE", b"")
        content = table.storage.read(stat["path"]) or b""
        table.storage.write(stray, content[: len(content) // 2] if number % 2 else content)
    table.commit(instant, stats)
    assert {name for name in table.files() if "0-1-1" in name} == set()
    assert rows_by_spark(spark, table.storage.full("")) == rows_by_rust(table.storage.uri) == model(FIRST, SECOND)


def test_an_attempt_that_is_no_longer_wanted_leaves_nothing(table: Table) -> None:
    before, instant, asked = table.files(), table.open(), 0

    def wanted() -> None:
        nonlocal asked
        asked += 1
        if asked == 6:
            raise ManifestError("withdrawn", table="", transaction="")

    with pytest.raises(ManifestError):
        table.write(instant, SECOND, wanted)
    assert table.files() == before and asked == 6


def test_two_file_groups_of_a_bucket_are_refused(table: Table) -> None:
    folder = Path(table.storage.full("region=a"))
    base = next(file for file in folder.glob("0000*.parquet"))
    shutil.copy(base, folder / (base.name[:9] + "ffff" + base.name[13:]))
    with pytest.raises(TableMismatch, match=r"bucket \d of partition region=a has two file groups"):
        table.write(table.open(), SECOND)
