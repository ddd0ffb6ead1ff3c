"""Every value of a partition is read back by everybody, or is said to have no folder; through commit and rollback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover.job_order import JobOrder
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.rows.partitions import has_folder, partition_path
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.storage.files import Storage
from tests.pipelines import ad_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NASTY = (
    *("..", ".", ".hoodie", "_hoodie_x", "a/b", "a b", " lead", "trail ", "trail.", "50%", "%2F", "%00", "a=b=c", "A"),
    *("x\ny", "x\x00y", "\x01", "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "e\u0301", "\u00e9", "上海"),
    *("inf", "nan", "true", "1e3", "007", "1.0", "2020-01-01", "null", "NULL", "default", "0x10", "-5", "1,5", "a"),
    *("a'b", 'a"b', "$x", "~", "`", "a*b", "a?b", "a#b", "a[b]", "{a}", "a^b", "a:b", "a\\b", "a+b", "a;b&c|d<e>"),
    *("file.parquet", ".log", "a.log.1_0", "_SUCCESS", "_temporary", "marker", "a.mark", "x" * 250, "\u00e9" * 125),
)
NAMELESS = (
    "",
    "😀",
    "a\U0010ffff",
    "__HIVE_DEFAULT_PARTITION__",
    ".marker",
    "a.marker.b",
    "x" * 251,
    "\u00e9" * 126,
    "%" * 84,
)


@pytest.fixture
def cities(tmp_path: Path) -> Pipeline:
    table = {"path": f"file://{tmp_path}/table", "name": "cities", "partition": {"by": "field", "column": "city"}}
    columns = [{"name": "city"}, {"name": "number", "type": "int"}]
    return ad_events(tmp_path / "table", table=table, rest_column=None, columns=columns)


def drawn() -> list[str]:
    """Values put together by chance of the nastiest ones' letters; those that have a folder."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    letters = [*"".join(NASTY[:-2]), *map(chr, (*range(33), 0x7F, 0x1F600, 0x10FFFF)), ".marker", "%25", ".log"]
    values = {"".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(15)}
    return [value for value in {*NASTY, *values} if has_folder("city", value)]


def write(storage: Storage, gateway: Gateway, values: list[str]) -> tuple[str, list[dict[str, object]]]:
    instant = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, instant)
    instants.to_inflight(gateway, storage.uri, instant)
    writer = BaseFileWriter(storage, instant, "0-0-0", 1 << 20, still_wanted=lambda: None)
    cities = pa.array(values)
    rows = pa.table({"city": cities, "number": pa.array(range(len(values)), pa.int32())})
    keys = pa.array([f"0-{number}-0" for number in range(len(values))])
    writer.write(rows, keys, "city", cities.dictionary_encode())
    return instant, writer.close()


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    verbs.roll_back(gateway, JobOrder(pipeline.model_dump(mode="json"), "t1", 1, instant))


def test_values_that_have_a_folder_are_rolled_back_and_committed_and_read_back_as_they_were(
    spark: SparkSession, gateway: Gateway, cities: Pipeline
) -> None:
    from hudi import HudiTableBuilder

    storage, values = Storage(cities.table.path), drawn()
    assert {*NASTY} <= {*values}
    instants.create_table(gateway, cities)
    doomed, _ = write(storage, gateway, values)
    assert len(markers.marked(storage, doomed)) == len(values)
    roll_back(gateway, cities, doomed)
    assert not [path for path, _ in storage.walk() if path.endswith(".parquet")]

    instant, stats = write(storage, gateway, values)
    commit.commit(gateway, cities, instant, stats, {})
    expected = dict(enumerate(values))
    for with_metadata in ("true", "false"):
        found = spark.read.format("hudi").option("hoodie.metadata.enable", with_metadata).load(storage.full(""))
        rows = {row["number"]: row["city"] for row in found.select("number", "city").collect()}
        assert rows == expected
    few = ["%2F", "..", "x\x00y", "inf", "1e3", "上海", "trail "]
    by_filter = found.where(found["city"].isin(few)).select("city").collect()
    assert sorted(row["city"] for row in by_filter) == sorted(few)
    by_rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(storage.uri).build().read())
    assert dict(zip(by_rust["number"].to_pylist(), by_rust["city"].to_pylist(), strict=True)) == expected
    folders = {path.partition("/")[0] for path, _ in storage.walk()}
    assert folders == {partition_path("city", value) for value in values}


def test_values_without_a_folder_are_told_apart() -> None:
    assert not [value for value in NAMELESS if has_folder("city", value)]


def test_what_an_earlier_version_wrote_under_such_a_name_is_rolled_back(gateway: Gateway, cities: Pipeline) -> None:
    storage = Storage(cities.table.path)
    instants.create_table(gateway, cities)
    kept, stats = write(storage, gateway, ["a"])
    commit.commit(gateway, cities, kept, stats, {})
    doomed, _ = write(storage, gateway, ["a.marker.b", "b"])
    roll_back(gateway, cities, doomed)
    left = [path for path, _ in storage.walk() if path.endswith(".parquet")]
    assert left == [stats[0]["path"]]
