"""A query finds every row that its filter is true of, with every option at its default and with data skipping off.

What is random is in `tests.differential`; here is what was found wrong once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.options import BOUNDS, BOUNDS_OF
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi import statistics
from airflow_provider_slshudi.hudi.client import commit, instants, metadata_table, rewriting
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import arrow_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.files.upserted import Table as Customers
from tests.hudi.readings import vectorised
from tests.pipelines import ad_events, customers
from tests.upserts import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"n": "int", "s": "string", "d": "double", "b": "binary", "t": "timestamp", "day": "date", "big": "bigint"}
LOCKS = "hoodie.write.lock.provider"
READERS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "without data skipping": {"hoodie.enable.data.skipping": "false"},
    "without the metadata table": {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"},
}


def at(year: int, month: int = 1, day: int = 1, hour: int = 0) -> datetime:
    return datetime(year, month, day, hour, tzinfo=timezone.utc)


class Written:
    """A table, and commits of rows that are given; each row of `n`, in one file a commit."""

    def __init__(self, gateway: Gateway, folder: Path, **changes: Any) -> None:
        without, types = changes.pop("without", []), TYPES | changes.pop("types", {})
        columns = [
            {"name": name, "type": type_, **({"format": "millis"} if type_ == "timestamp" else {})}
            for name, type_ in types.items()
            if name not in without
        ]
        table = {"path": f"file://{folder}", "name": "values", **changes.pop("table", {})}
        self.gateway, self.folder = gateway, folder
        self.pipeline: Pipeline = ad_events(folder, table=table, columns=columns, rest_column=None, **changes)
        self.storage, self._number = Storage(self.pipeline.table.path), 0
        if not folder.exists():
            instants.create_table(gateway, self.pipeline)

    def commit(self, *rows: Mapping[str, Any], partitions: Sequence[str | None] = ()) -> None:
        instant = instants.new_instant_time(self.gateway, self.storage.uri)
        instants.request(self.gateway, self.storage.uri, instant)
        instants.to_inflight(self.gateway, self.storage.uri, instant)
        numbered = [{"n": self._number + place, **row} for place, row in enumerate(rows)]
        self._number += len(rows)
        schema = arrow_schema(self.pipeline)
        table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in numbered], schema)
        name = self.pipeline.table.partition.name if self.pipeline.table.partition else None
        with BaseFileWriter(self.storage, instant, f"0-0-{self._number}", 1 << 20, lambda: None) as writer:
            keys = pa.array([f"0-{row['n']}-0" for row in numbered])
            writer.write(table, keys, name, pa.array(partitions).dictionary_encode() if name else None)
            stats = writer.close()
        commit.commit(self.gateway, self.pipeline, instant, stats, {})

    def find(self, spark: SparkSession, where: str) -> dict[str, list[int]]:
        """The `n` that each way of reading finds; each looks at the table anew."""
        with vectorised(spark, True):
            return {
                name: sorted(
                    row.n
                    for row in spark.read.format("hudi")
                    .options(**options)
                    .load(str(self.folder))
                    .where(where)
                    .select("n")
                    .collect()
                )
                for name, options in READERS.items()
            }


def everywhere(numbers: list[int]) -> dict[str, list[int]]:
    return dict.fromkeys(READERS, numbers)


@pytest.fixture
def written(gateway: Gateway, tmp_path: Path) -> Written:
    return Written(gateway, tmp_path / "table")


def test_a_text_beside_one_that_is_long(spark: SparkSession, written: Written) -> None:
    written.commit({"s": "a"}, {"s": "x" * 5000})
    written.commit({"s": "b"})
    assert written.find(spark, "s = 'a'") == everywhere([0])
    assert written.find(spark, "s > 'a'") == everywhere([1, 2])


def test_nan_is_greater_than_all_numbers(spark: SparkSession, gateway: Gateway, written: Written) -> None:
    written.commit({"d": 1.0}, {"d": float("nan")})
    for where in ("d > 100", "d = double('NaN')", "isnan(d)", "not d <= 1"):
        assert written.find(spark, where) == everywhere([1]), where
    file = written.storage.full(committed_files(gateway, written.pipeline)[0].name)
    found = duckdb.sql(f"select n from '{file}' where isnan(d)")  # noqa: S608 - a file of this test's
    assert found is not None
    assert found.fetchall() == [(1,)]


# Hudi compares these where there are partitions, of which it keeps bounds, too.
PARTED = {"partition": {"by": "field", "column": "big"}}


def test_a_binary(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    written = Written(gateway, tmp_path / "table", table=PARTED)
    written.commit({"b": b"a", "big": 1}, {"b": b"\xff", "big": 1}, partitions=["1", "1"])
    assert written.find(spark, "b = X'61'") == everywhere([0])
    assert written.find(spark, "b > X'61'") == everywhere([1])


def test_letters_beyond_the_basic_plane(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    written = Written(gateway, tmp_path / "table", table=PARTED)
    written.commit({"s": "😀", "big": 1}, partitions=["1"])
    written.commit({"s": "\uffee", "big": 1}, partitions=["1"])
    assert written.find(spark, "s = '😀'") == everywhere([0])
    assert written.find(spark, "s < '😀'") == everywhere([1])


def test_negative_zero_where_values_repeat(spark: SparkSession, written: Written) -> None:
    written.commit(*({"d": -0.0} for _ in range(50)))
    assert written.find(spark, "d = 0") == everywhere(list(range(50)))


@pytest.mark.parametrize(
    "where",
    [
        *(
            "event_date >= '2026-01-02'",
            "event_date > '2026-01-01'",
            "event_date between '2026-01-02' and '2026-01-03'",
        ),
        *(
            "event_date != '2026-01-01'",
            "event_date like '%2'",
            "event_date <=> '2026-01-02'",
            "event_date = '2026-01-02'",
        ),
    ],
)
def test_a_partition_beside_a_row_without_event_time(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, where: str
) -> None:
    table = {"partition": {"by": "event_time", "column": "t"}}
    written = Written(gateway, tmp_path / "table", table=table)
    days = ["2026-01-01", "2026-01-02", None]
    written.commit(*({"event_date": day} for day in days), partitions=days)
    assert written.find(spark, where) == everywhere([1])


OLD: list[dict[str, Any]] = [
    {"t": at(1800), "day": date(1500, 1, 1)},
    {"t": at(1), "day": date(1, 1, 1)},
    {"t": at(2026)},
]


def test_dates_of_long_ago_are_read_and_clustered(spark: SparkSession, written: Written) -> None:
    for row in OLD:
        written.commit(row)
    assert written.find(spark, "t < timestamp'1801-01-01'") == everywhere([0, 1])
    rewriting.plan_clustering(written.gateway, written.pipeline)
    instant = next(item.time for item in Timeline.load(written.storage).pending())
    made = rewriting.cluster(written.gateway, written.pipeline, instant, lambda: None)
    rewriting.complete_clustering(written.gateway, written.pipeline, instant, made.metadata, lambda: None)
    assert made.read_files == 3
    assert written.find(spark, "day < date'1501-01-01'") == everywhere([0, 1])
    rows = spark.read.format("hudi").load(str(written.folder)).selectExpr("cast(t as string) as t").collect()
    assert {row.t for row in rows} == {"1800-01-01 00:00:00", "0001-01-01 00:00:00", "2026-01-01 00:00:00"}


def test_dates_of_long_ago_are_compacted(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    described = customers(tmp_path / "table").model_dump(mode="json")
    columns = [*described["columns"], {"name": "born", "type": "date"}]
    pipeline = Pipeline.model_validate({**described, "columns": columns, "maintenance": {"compact_after": 1}})
    table = Customers(gateway, pipeline)
    for at_ in range(2):
        changes = [Change(f"c{number}", at_, "a", number) for number in range(9)]
        instant = table.open()
        table.commit(instant, table.write(instant, changes, born=date(1500, 1, 1 + at_)))
    rewriting.plan_compaction(gateway, pipeline)
    instant = next(item.time for item in Timeline.load(table.storage).pending())
    made = rewriting.compact(gateway, pipeline, instant, lambda: None)
    rewriting.complete_compaction(gateway, pipeline, instant, made.metadata, lambda: None)
    there = spark.read.format("hudi").load(table.storage.full(""))
    assert there.where("born = date'1500-01-02'").count() == 9


def test_bounds_are_kept_of_what_files_are_sorted_by(gateway: Gateway, tmp_path: Path) -> None:
    sorted_by = Written(gateway, tmp_path / "table", maintenance={"clustering": {"sort": ["big", "s"]}})
    sorted_by.commit({"big": 1})
    assert statistics.Indexes.of(sorted_by.storage).bounded == ["big"]
    asked = Written(gateway, tmp_path / "asked", table={"options": {BOUNDS: "true"}})
    asked.commit({"big": 1})
    assert statistics.Indexes.of(asked.storage).bounded == ["n", "day", "big"]


def test_a_column_that_is_named_later_has_no_bounds_and_where_one_goes_all_go(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    Written(gateway, folder, table={"options": {BOUNDS_OF: "n,big"}}).commit({"n": 7, "big": 1, "t": at(2026)})
    later = Written(gateway, folder, table={"options": {BOUNDS_OF: "n,big,t"}})
    later.commit({"n": 8, "big": 2, "t": at(2027)})
    assert statistics.Indexes.of(later.storage).bounded == ["n", "big"]
    assert later.find(spark, "n = 8") == later.find(spark, "t > timestamp'2026-06-01'") == everywhere([8])
    assert later.find(spark, "t < timestamp'2026-06-01' and big = 1") == everywhere([7])
    without = Written(gateway, folder, table={"options": {BOUNDS_OF: "big"}})
    without.commit({"n": 9, "big": 3})
    assert statistics.Indexes.of(without.storage).bounded == []
    assert without.find(spark, "big = 3") == everywhere([9])
    assert without.find(spark, "big < 3") == everywhere([7, 8])


@pytest.mark.parametrize("partition", [None, "big"])
def test_a_table_whose_texts_had_bounds_is_right_after_the_next_commit(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str | None
) -> None:
    table = {"partition": {"by": "field", "column": partition}} if partition else {}
    written = Written(gateway, tmp_path / "table", table=table)
    with monkeypatch.context() as before:
        before.setattr(statistics, "options", lambda *_: {})
        written.commit({"s": "a", "big": 1}, {"s": "x" * 5000, "big": 1}, partitions=["1", "1"])
    assert "s" in statistics.Indexes.of(written.storage).bounded
    assert written.find(spark, "s = 'a'")["as it comes"] == [], "as Hudi has it"
    written.commit({"s": "b", "big": 2}, {"big": 2}, partitions=["2", "2"])
    assert written.find(spark, "s = 'a'") == everywhere([0])
    assert written.find(spark, "coalesce(s, 'b') = 'b'") == everywhere([2, 3])


@pytest.mark.parametrize("where", ["date_format(t, 'HH') = '00'", "big * -1 = -9", "cast(big as int) = -1"])
def test_functions_that_turn_an_order(spark: SparkSession, written: Written, where: str) -> None:
    written.commit(
        {"t": at(2026, 1, 1, 23), "big": 100}, {"t": at(2026, 1, 2), "big": 9 if "int" not in where else 2**32 - 1}
    )
    assert written.find(spark, where) == everywhere([1])


def test_an_index_that_somebody_made_by_sql_is_refused(spark: SparkSession, gateway: Gateway, written: Written) -> None:
    written.commit({"t": at(2026)})
    spark.sql(f"create table values_of_sql using hudi location 'file://{written.folder}'")
    spark.conf.set(LOCKS, "org.apache.hudi.client.transaction.lock.InProcessLockProvider")
    try:
        spark.sql("create index by_hour on values_of_sql using column_stats(t) options(expr='hour')")
        with pytest.raises(TableMismatch, match=r"expr_index_by_hour.*slshudi table mend"):
            instants.check_table(gateway, written.pipeline)
        with pytest.raises(TableMismatch, match="expr_index_by_hour"):
            written.commit({"t": at(2027)})
        spark.sql("drop index by_hour on values_of_sql")
    finally:
        spark.conf.unset(LOCKS)
        spark.sql("drop table values_of_sql")
    instants.check_table(gateway, written.pipeline)


def test_a_time_before_the_calendar_changed_is_found_in_a_table_that_is_sorted_by_it(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    written = Written(gateway, tmp_path / "table", maintenance={"clustering": {"sort": ["t", "big"]}})
    for year in (1, 1500, 1883):
        written.commit({"t": at(year)})
    assert written.find(spark, "t = timestamp'0001-01-01 00:00:00'") == everywhere([0])
    assert written.find(spark, "t >= timestamp'1500-01-01 00:00:00' and year(t) < 1600") == everywhere([1])


def test_a_decimal_that_got_more_digits_behind_its_point_is_found_in_a_table_that_is_sorted_by_it(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    by = {"maintenance": {"clustering": {"sort": ["x", "big"]}}, "table": {"partition": {"by": "field", "column": "s"}}}
    Written(gateway, tmp_path / "table", types={"x": "decimal(5,2)"}, **by).commit(
        {"s": "a", "x": Decimal("5.00")}, partitions=["a"]
    )
    wider = Written(gateway, tmp_path / "table", types={"x": "decimal(9,4)"}, **by)
    wider.commit({"s": "a", "x": Decimal("1.5")}, partitions=["a"])
    assert statistics.Indexes.of(wider.storage).bounded == ["big"]
    assert wider.find(spark, "x > 2") == wider.find(spark, "x = 5.00") == everywhere([0])
    assert wider.find(spark, "x = 1.5") == everywhere([0])


def test_bounds_of_a_decimal_go_with_the_next_commit(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = {"maintenance": {"clustering": {"sort": ["x", "big"]}}, "table": {"partition": {"by": "field", "column": "s"}}}
    before = Written(gateway, tmp_path / "table", types={"x": "decimal(5,2)"}, **by)
    with monkeypatch.context() as then:
        then.setattr(statistics, "options", lambda *_: {BOUNDS: "true", BOUNDS_OF: "x,big"})
        before.commit({"s": "a", "x": Decimal("5.00")}, partitions=["a"])
    assert metadata_table.look(gateway, before.pipeline).hiding == ("x",)
    wider = Written(gateway, tmp_path / "table", types={"x": "decimal(9,4)"}, **by)
    wider.commit({"s": "a", "x": Decimal("1.5")}, partitions=["a"])
    assert wider.find(spark, "x > 2") == everywhere([0])


def test_a_column_that_is_left_out_of_the_file_has_no_bounds_any_more(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    table = {"options": {BOUNDS: "true"}, "partition": {"by": "field", "column": "s"}}
    Written(gateway, tmp_path / "table", table=table).commit({"s": "x", "big": 0}, partitions=["x"])
    now = Written(gateway, tmp_path / "table", table=table, without=["big"])
    now.commit({"s": "y"}, partitions=["y"])
    now.commit({"s": "x"}, partitions=["x"])
    assert statistics.Indexes.of(now.storage).bounded == []
    assert now.find(spark, "coalesce(big, 0) = 0") == everywhere([0, 0, 1])


def test_bounds_of_a_column_that_some_files_lack_are_told_of(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(statistics, "options", lambda *_: {})
        Written(gateway, tmp_path / "table", without=["big"]).commit({"n": 1})
        later = Written(gateway, tmp_path / "table", table={"options": {BOUNDS_OF: "n,big"}})
        later.commit({"n": 2, "big": 3})
    hiding = metadata_table.look(gateway, later.pipeline).hiding
    assert "big" in hiding and "n" not in hiding
