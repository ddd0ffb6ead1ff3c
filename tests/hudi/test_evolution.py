"""How columns may change: what becomes of a table's schema, what is refused, and what every reader then sees."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.datatypes import parse_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.hudi import evolution
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.evolution import Kind
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import avro_schema, table_columns, type_of_avro
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.readings import READINGS, SNAPSHOTS, by_spark, of, plain, vectorised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIG = 2**40


def schema_of(pipeline: Pipeline, instant: str = "") -> evolution.TableSchema:
    return evolution.TableSchema(json.loads(avro_schema(pipeline)), instant)


def changes(tmp_path: Path, before: Sequence[Any], after: Sequence[Any]) -> list[tuple[Kind, str, str, str]]:
    found = evolution.changes(schema_of(of(tmp_path, *before)), of(tmp_path, *after))
    return [(change.kind, change.column, change.there, change.wanted) for change in found]


@pytest.mark.parametrize(
    ("there", "wanted", "becomes"),
    [
        ("int", "bigint", "bigint"),
        ("int", "double", "double"),
        ("float", "double", "double"),
        ("decimal(7,2)", "decimal(9,2)", "decimal(9,2)"),
        ("decimal(9,2)", "decimal(13,3)", "decimal(13,3)"),
        ("struct<a:int,b:int>", "struct<c:date,a:int>", "struct<a:int,b:int,c:date>"),
        # What a reader would read wrong, or not at all, or not as it was.
        ("bigint", "int", None),
        ("bigint", "string", None),
        ("boolean", "string", None),
        ("int", "string", None),
        ("bigint", "double", None),
        ("int", "float", None),
        ("int", "decimal(12,2)", None),
        ("decimal(9,2)", "decimal(12,2)", None),
        ("decimal(9,2)", "decimal(9,4)", None),
        ("double", "string", None),
        ("date", "string", None),
        ("timestamp", "string", None),
        ("date", "timestamp", None),
        ("string", "int", None),
        ("string", "binary", None),
        ("array<int>", "map<string,int>", None),
        ("array<int>", "array<bigint>", None),
        ("array<struct<a:int>>", "array<struct<a:int,b:string>>", None),
        ("map<string,struct<a:int>>", "map<string,struct<a:int,b:int>>", None),
        ("struct<s:struct<a:int>>", "struct<s:struct<a:int,b:int>>", None),
        ("struct<a:int>", "struct<a:bigint>", None),
        ("map<string,float>", "map<string,double>", None),
        ("struct<a:int>", "struct<A:int>", None),
    ],
)
def test_types_become_wider_and_nothing_else(there: str, wanted: str, becomes: str | None) -> None:
    found = evolution.evolved(parse_type(there), parse_type(wanted))
    assert (found and str(found)) == becomes


def test_every_kind_of_change_is_told_apart(tmp_path: Path) -> None:
    before = [("same", "int"), ("grows", "int"), ("goes", "date"), ("old", "string"), ("wrong", "string")]
    new = {"name": "new", "renamed_from": ["old"]}
    after = [("added", "date"), ("same", "int"), ("grows", "bigint"), new, ("wrong", "boolean")]
    assert changes(tmp_path, before, after) == [
        (Kind.ADDED, "added", "", "date"),
        (Kind.WIDENED, "grows", "int", "bigint"),
        (Kind.RENAMED, "new", "", "string"),
        (Kind.REFUSED, "wrong", "string", "boolean"),
        (Kind.DROPPED, "goes", "date", ""),
    ]
    # A former name that the table never had is a slip.
    slip = {"name": "new", "renamed_from": ["odl"]}
    assert changes(tmp_path, before, [*before, slip])[1:] == [(Kind.REFUSED, "odl", "", "string")]


def test_a_partitions_column_keeps_its_type(tmp_path: Path) -> None:
    table = {"path": f"file://{tmp_path}", "name": "evolving", "partition": {"by": "field", "column": "day"}}
    there = schema_of(of(tmp_path, ("day", "int"), table=table))
    (change,) = evolution.changes(there, of(tmp_path, ("day", "bigint"), table=table))
    assert (change.kind, change.there, change.wanted) == (Kind.REFUSED, "int", "bigint")


def test_with_upserts_columns_come_and_otherwise_stay_as_they_are(tmp_path: Path) -> None:
    """A file's rows are written anew with the columns of the pipeline's file: what that lacks would be lost."""
    upsert = {"record_key": "id", "ordering_field": "at", "buckets": 2}
    table = {"path": f"file://{tmp_path}", "name": "evolving", "upsert": upsert}
    whole, part = "struct<a:int,b:int>", "struct<a:int>"
    before = of(tmp_path, ("id", "int"), ("at", "int"), ("v", "int"), ("s", whole), ("gone", "date"), table=table)
    after = of(tmp_path, ("id", "bigint"), ("at", "bigint"), ("v", "bigint"), ("s", part), ("new", "date"), table=table)
    found = [(change.kind, change.column) for change in evolution.changes(schema_of(before), after)]
    refused = [(Kind.REFUSED, name) for name in ("id", "at", "v", "s")]
    assert found == [*refused, (Kind.ADDED, "new"), (Kind.REFUSED, "gone")]


def test_a_schema_of_another_writer_keeps_what_no_column_can_have(tmp_path: Path) -> None:
    """Hudi's own writer may leave types that are none of ours, and columns that are never NULL."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    record = json.loads(avro_schema(of(tmp_path, ("v", "int"))))
    record["fields"] += [{"name": "at", "type": millis}, {"name": "id", "type": "long"}]
    there = evolution.TableSchema(record, "")
    found = evolution.changes(there, of(tmp_path, ("v", "int"), ("at", "bigint")))
    assert [(change.kind, change.column) for change in found] == [(Kind.REFUSED, "at"), (Kind.DROPPED, "id")]
    assert "timestamp-millis" in found[0].there
    joined, conflicts = evolution._joined(record, json.loads(avro_schema(of(tmp_path, ("v", "bigint")))))
    assert not conflicts
    assert [field["type"] for field in joined["fields"]] == [
        ["null", "string"],
        ["null", "long"],
        ["null", millis],
        ["null", "long"],
    ]


@pytest.mark.parametrize("type_", ["decimal(20,3)", "struct<a:array<map<string,date>>,b:timestamp>", "binary"])
def test_a_type_comes_back_from_avro(tmp_path: Path, type_: str) -> None:
    column = {"name": "v", "type": type_, "format": "millis" if "timestamp" in type_ else None}
    fields = json.loads(avro_schema(of(tmp_path, column)))["fields"]
    assert str(type_of_avro(fields[1]["type"])) == type_


class Evolving:
    """A table whose commits each have a pipeline of their own."""

    def __init__(self, gateway: Gateway, path: Path) -> None:
        self.path, self._gateway = path, gateway
        self.storage = Storage(f"file://{path}")
        self._rows = 0

    def open(self, pipeline: Pipeline) -> str:
        if self.storage.exists(".hoodie/hoodie.properties"):
            instants.check_table(self._gateway, pipeline)
        else:
            instants.create_table(self._gateway, pipeline)
        instant = instants.new_instant_time(self._gateway, self.storage.uri)
        instants.request(self._gateway, self.storage.uri, instant)
        instants.to_inflight(self._gateway, self.storage.uri, instant)
        return instant

    def write(self, pipeline: Pipeline, instant: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        numbers = range(self._rows, self._rows + len(rows))
        self._rows += len(rows)
        writer = BaseFileWriter(self.storage, instant, f"{numbers.start}-0-0", 1 << 20, still_wanted=lambda: None)
        data = {
            name: pa.array([row.get(name) for row in rows], arrow_type(type_))
            for name, type_ in table_columns(pipeline)
            if name != "n"
        }
        keys = pa.array([f"0-{number}-0" for number in numbers])
        writer.write(pa.table({"n": pa.array([f"{number:04}" for number in numbers]), **data}), keys, None, None)
        return writer.close()

    def commit(self, pipeline: Pipeline, instant: str, stats: Sequence[dict[str, Any]]) -> None:
        commit.commit(self._gateway, pipeline, instant, stats, {})

    def batch(self, pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> None:
        instant = self.open(pipeline)
        self.commit(pipeline, instant, self.write(pipeline, instant, rows))


def seen(spark: SparkSession, path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a table by `n`, which every way of reading it shows alike; raises where one differs."""
    from hudi import HudiTableBuilder

    def told(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(({name: row[name] for name in ("n", *names)} for row in rows), key=lambda row: str(row["n"]))

    rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(path)).build().read())
    expected = told([{**row} for row in rust.to_pylist(maps_as_pydicts="strict")])
    for how, reading in READINGS.items():
        found = told([plain(row) for row in by_spark(spark, path, reading, ["n", *names])])
        assert found == expected, f"{how}: {found}, by hudi-rs {expected}"
    return expected


def found_by(rows: DataFrame, filters: Sequence[str]) -> dict[str, list[str]]:
    """The rows that each filter finds, by one job."""
    parts = [rows.where(where).selectExpr(f"{number} as filter", "n") for number, where in enumerate(filters)]
    found: dict[str, list[str]] = {where: [] for where in filters}
    for row in sorted(reduce(DataFrame.union, parts).collect()):
        found[filters[row["filter"]]].append(row["n"])
    return found


def rows_of(spark: SparkSession, path: Path, filters: Sequence[str]) -> list[dict[str, list[str]]]:
    """The same by each way of reading a snapshot."""
    found = []
    for is_vectorised, options in SNAPSHOTS.values():
        with vectorised(spark, is_vectorised):
            found.append(found_by(spark.read.format("hudi").options(**options).load(str(path)), filters))
    return found


WIDENINGS: list[tuple[str, str, list[Any], list[Any], list[Any], list[str]]] = [
    # before, after, values before, values after, what is read, filters
    ("int", "bigint", [5, 22, None], [BIG], [5, 22, None, BIG], ["v < 6", f"v <> {BIG}"]),
    ("int", "double", [-1, 22], [1.5], [-1.0, 22.0, 1.5], ["v <= 1.5D", "v > -1.5D"]),
    ("float", "double", [0.1, -0.1], [1e300], [0.1, -0.1, 1e300], ["v = 0.1D", "v < 0.1D"]),
    (
        "decimal(7,2)",
        "decimal(9,2)",
        [Decimal("-99999.99"), Decimal("5.00")],
        [Decimal("1234567.89")],
        [Decimal("-99999.99"), Decimal("5.00"), Decimal("1234567.89")],
        ["v = 5", "v <> -1234567.89"],
    ),
    (
        "decimal(9,2)",
        "decimal(13,3)",
        [Decimal("1.25"), Decimal("9999999.99")],
        [Decimal("1234567890.123")],
        [Decimal("1.250"), Decimal("9999999.990"), Decimal("1234567890.123")],
        ["v < 1234567890.12", "v = 1.25"],
    ),
    (
        "struct<a:int,gone:int>",
        "struct<b:string,a:int>",
        [{"a": 1, "gone": 7}, None],
        [{"b": "x", "a": 2}],
        [{"a": 1, "gone": 7, "b": None}, None, {"a": 2, "gone": None, "b": "x"}],
        ["v.a < 2", "v.b is null"],
    ),
]


def test_every_widening_is_read_alike_and_survives_clustering(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """One table in which each column becomes wider: old files, a late batch of the old file, filters, clustering."""
    before = of(tmp_path, *((f"v{k}", given[0]) for k, given in enumerate(WIDENINGS)))
    after = of(tmp_path, *((f"v{k}", given[1]) for k, given in enumerate(WIDENINGS)))
    table = Evolving(gateway, tmp_path / "table")
    before, after = (p.model_copy(update={"table": of(table.path, ("v", "int")).table}) for p in (before, after))

    def rows(place: int) -> list[dict[str, Any]]:
        longest = max(len(given[place]) for given in WIDENINGS)
        return [
            {f"v{k}": given[place][row] if row < len(given[place]) else None for k, given in enumerate(WIDENINGS)}
            for row in range(longest)
        ]

    table.batch(before, rows(2))
    late = table.open(before)
    table.batch(after, rows(3))
    # Planned before the change, committed after it.
    table.commit(before, late, table.write(before, late, rows(2)[:1]))
    with pytest.raises(ColumnMismatch, match="v0: bigint there, int in the file"):
        table.open(before)

    names = [f"v{k}" for k in range(len(WIDENINGS))]
    many = len(rows(2))
    found = seen(spark, table.path, names)
    for k, (_, _, first, second, expected, _) in enumerate(WIDENINGS):
        column = [row[f"v{k}"] for row in found]
        assert column[: len(first)] + column[many : many + len(second)] == expected, WIDENINGS[k]
        assert column[-1] == expected[0]

    frame = spark.read.format("hudi").load(str(table.path)).select("n", *names)
    unfiltered = by_spark(spark, table.path, SNAPSHOTS["by listing, row by row"], ["n", *names])
    in_memory = spark.createDataFrame(unfiltered, frame.schema)
    filters = [re.sub(r"\bv\b", f"v{k}", where) for k, given in enumerate(WIDENINGS) for where in given[5]]
    wanted = found_by(in_memory, filters)
    assert all(wanted.values()) and rows_of(spark, table.path, filters) == [wanted] * 2

    spark.sql(f"call run_clustering(path => '{table.path}')").collect()
    assert seen(spark, table.path, names) == found


def test_added_dropped_renamed_and_returning_columns(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    table = Evolving(gateway, tmp_path / "table")
    table.batch(of(table.path, ("a", "int"), ("b", "string")), [{"a": 1, "b": "old"}])
    # In front of the others, and without b.
    table.batch(of(table.path, ("c", "date"), ("a", "int")), [{"a": 2, "c": date(2026, 1, 31)}])
    # b comes back as what it was, a gets another name.
    renamed = {"name": "amount", "type": "int", "renamed_from": ["a"]}
    table.batch(of(table.path, renamed, ("b", "string")), [{"amount": 3, "a": 3, "b": "new"}])
    with pytest.raises(ColumnMismatch, match="b: string there, bigint in the file") as refused:
        table.open(of(table.path, ("a", "int"), ("b", "bigint")))
    assert refused.value.columns == (("b", "string", "bigint"),)

    day = date(2026, 1, 31)
    expected = [
        {"n": "0000", "a": 1, "b": "old", "c": None, "amount": None},
        {"n": "0001", "a": 2, "b": None, "c": day, "amount": None},
        {"n": "0002", "a": 3, "b": "new", "c": None, "amount": 3},
    ]
    names = ["a", "b", "c", "amount"]
    assert seen(spark, table.path, names) == expected
    wanted = {"b is null": 1, "amount is null": 2, "c is not null": 1, "amount = 3": 1}
    for filtered in rows_of(spark, table.path, list(wanted)):
        assert {where: len(rows) for where, rows in filtered.items()} == wanted
    spark.sql(f"call run_clustering(path => '{table.path}')").collect()
    assert seen(spark, table.path, names) == expected


def test_a_later_instant_of_an_older_file_hides_no_columns(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """Readers take the schema of the newest commit by request, so it carries what was recorded before it completed."""
    table = Evolving(gateway, tmp_path / "table")
    old, new = of(table.path, ("v", "int")), of(table.path, ("v", "bigint"), ("w", "string"))
    table.batch(old, [{"v": 1}])
    first, second = table.open(new), table.open(old)
    stats = table.write(new, first, [{"v": BIG, "w": "x"}]), table.write(old, second, [{"v": 2}])
    schema = evolution.schema_to_commit(table.storage, Timeline.load(table.storage), new)
    assert schema is not None
    batch_files.write_schema(table.storage, first, schema)  # what `record` leaves
    table.commit(old, second, stats[1])
    assert [row["v"] for row in seen(spark, table.path, ["v", "w"])] == [1, 2]
    table.commit(new, first, stats[0])
    fencing.delete(table.storage, first)
    assert [(row["v"], row["w"]) for row in seen(spark, table.path, ["v", "w"])] == [(1, None), (BIG, "x"), (2, None)]


def test_the_schema_of_a_table_without_commits_is_the_one_it_was_made_with(gateway: Gateway, tmp_path: Path) -> None:
    table = Evolving(gateway, tmp_path / "tab:le=ü")
    table.open(of(table.path, ("v", "decimal(9,2)")))
    found = evolution.schema_of_now(table.storage, Timeline.load(table.storage))
    assert found is not None and found.instant == ""
    assert found.record == json.loads(avro_schema(of(table.path, ("v", "decimal(9,2)"))))
    with pytest.raises(ColumnMismatch, match=r"v: decimal\(9,2\) there, int in the file"):
        table.open(of(table.path, ("v", "int")))
