"""A table of every type by both engines: our base files and Hudi's row writer hold the same rows and types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import avro_schema, table_columns
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.rows.maker import RowMaker, Rows, RowSpec
from airflow_provider_slshudi.storage.files import Storage
from tests.pipelines import ad_events
from tests.rows.cases import CASES, spec_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# One column per type and way of writing it in the test of conversions, and what structs may hold besides.
WIDE = (
    "struct<d:decimal(20,3),small:decimal(4,1),days:array<date>,"
    "by:map<string,struct<at:timestamp,raw:binary,ok:boolean>>>"
)
KINDS = [*dict.fromkeys((type_, json.dumps(how)) for type_, how, *_ in CASES), (WIDE, '"millis"')]
WIDE_TEXT = (
    b'{"d": 1.0005, "small": -999.9, "days": ["2026-01-31", null],'
    b' "by": {"x": {"at": 1700000000123, "raw": "AQI=", "ok": true}, "y": null}}'
)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return of_every_type(tmp_path / "native")


def of_every_type(path: Path) -> Pipeline:
    columns: list[dict[str, Any]] = [{"name": "n", "type": "int"}]
    for number, (type_, how) in enumerate(KINDS):
        spec = spec_of(type_, json.loads(how))
        zone = spec.timezone if spec.timezone != "UTC" else None
        columns.append({"name": f"c{number}", "type": type_, "format": spec.format, "timezone": zone})
    table = {"path": f"file://{path}", "name": "every_type"}
    return ad_events(path, table=table, columns=columns, rest_column="rest")


def made(pipeline: Pipeline) -> Rows:
    """Rows in which each case of the conversions' test stands once, beside NULL in the columns with fewer cases."""
    texts: list[list[bytes]] = [
        [value for type_, how, value, _ in CASES if (type_, json.dumps(how)) == kind] for kind in KINDS[:-1]
    ]
    texts.append([WIDE_TEXT, b"{}"])
    count = max(map(len, texts))
    logs: dict[str, Any] = {
        "__cursor__": pa.array(range(count), pa.int64()),
        "__index__": pa.array([0] * count, pa.int32()),
        "__rest__": pa.array([[(b"k", b"v")], []] + [[]] * (count - 2), pa.map_(pa.binary(), pa.binary())),
        "n": pa.array([str(number).encode() for number in range(count)]),
    }
    for number, column in enumerate(texts):
        logs[f"c{number}"] = pa.array([*column, *[None] * (count - len(column))], pa.binary())
    return RowMaker(RowSpec.of(pipeline)).rows(pa.table(logs), 0)


def write_natively(gateway: Gateway, pipeline: Pipeline, storage: Storage, instant: str, rows: Rows) -> None:
    writer = BaseFileWriter(storage, instant, "0-0-0", 1 << 20, still_wanted=lambda: None)
    writer.write(rows.data, rows.keys, None, None)
    commit.commit(gateway, pipeline, instant, writer.close(), {})


def write_by_hudi(spark: SparkSession, pipeline: Pipeline, rows: Rows) -> None:
    """Spark rows through Hudi's bulk insert with its row writer."""
    ddl = ", ".join(f"{name} {type_}" for name, type_ in table_columns(pipeline))
    options = {
        "hoodie.table.name": pipeline.table.name,
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.datasource.write.recordkey.field": "n",
        "hoodie.datasource.write.row.writer.enable": "true",
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    data = rows.data

    def given(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from data.to_batches()

    frame = spark.range(0, 1, 1, 1).mapInArrow(given, ddl)
    frame.write.format("hudi").options(**options).mode("append").save(pipeline.table.path)


def read(spark: SparkSession, path: str, names: list[str]) -> DataFrame:
    return spark.read.format("hudi").load(path).select(*names).orderBy("n")


def by_rust(path: str, names: list[str]) -> pa.Table:
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(path).build().read()
    return pa.Table.from_batches(batches).select(names).sort_by("n")


def test_both_engines_write_the_same_table(
    spark: SparkSession,
    gateway: Gateway,
    pipeline: Pipeline,
    storage: Storage,
    opened: Callable[[], str],
    tmp_path: Path,
) -> None:
    rows = made(pipeline)
    names = rows.data.column_names
    write_natively(gateway, pipeline, storage, opened(), rows)
    instants.check_table(gateway, pipeline)
    other = of_every_type(tmp_path / "hudi")
    write_by_hudi(spark, other, rows)

    native, hudi = (
        read(spark, storage.full("") if it is pipeline else it.table.path, names) for it in (pipeline, other)
    )
    assert native.dtypes == hudi.dtypes == table_columns(pipeline)
    assert [repr(row) for row in native.collect()] == [repr(row) for row in hudi.collect()]
    assert native.count() == rows.data.num_rows

    # A reader that is neither's: values as they were made.
    found, expected = by_rust(pipeline.table.path, names), by_rust(other.table.path, names)
    for name in names:
        assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name
        assert repr(found[name].to_pylist()) == repr(rows.data[name].to_pylist()), name

    timeline = Timeline.load(Storage(other.table.path))
    (completed,) = timeline.completed("commit")
    by_hudi = json.loads(timeline.extra_metadata(completed)["schema"])
    assert {field["name"]: field["type"] for field in by_hudi["fields"]} == {
        field["name"]: field["type"] for field in json.loads(avro_schema(pipeline))["fields"]
    }


def test_the_metadata_table_has_the_bounds_of_columns(
    spark: SparkSession,
    gateway: Gateway,
    storage: Storage,
    tmp_path: Path,
    opened: Callable[[], str],
    pipeline: Pipeline,
) -> None:
    options = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
    pipeline = pipeline.model_copy(update={"table": pipeline.table.model_copy(update={"options": options})})
    for _ in range(2):
        write_natively(gateway, pipeline, storage, opened(), made(pipeline))
    decimal_ = next(f"c{number}" for number, (type_, _) in enumerate(KINDS) if type_ == "decimal(7,2)")
    table = (
        spark.read.format("hudi").option("hoodie.metadata.enable", "true").option("hoodie.enable.data.skipping", "true")
    )
    frame = table.load(storage.full(""))
    assert frame.where(f"{decimal_} = 1500").count() == 2
    assert frame.where(f"{decimal_} > 99999.99").count() == 0
    number_ = next(f"c{number}" for number, (type_, _) in enumerate(KINDS) if type_ == "bigint")
    stats = spark.read.format("hudi").load(storage.full(".hoodie/metadata"))
    bounds = {
        name: stats.where(f"type = 3 and ColumnStatsMetadata.columnName = '{name}'").count()
        for name in (decimal_, number_)
    }
    assert bounds == {decimal_: 0, number_: 2}
