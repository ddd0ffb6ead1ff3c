"""Readers of tables, and what each makes of the same filters over rows that come from no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.schema import table_columns
from tests.differential.filters import Compare, Filter, ducks_literal, polars_expression, sparks_literal, sql
from tests.differential.tables import Row, Table, Version
from tests.exact.counts import as_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Found = list[int] | str
"""The `n` of the rows that a filter is true of, in their order; or why the reader stopped."""
SETTINGS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "row by row": {"spark.sql.parquet.enableVectorizedReader": "false"},
    "no pushdown": {"spark.sql.parquet.filterPushdown": "false"},
}
OPTIONS: dict[str, dict[str, str]] = {
    "": {},
    "no skipping": {"hoodie.enable.data.skipping": "false"},
    "no metadata": {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"},
}


@dataclass(frozen=True)
class Asked:
    """A filter, what a reader found, and what it makes of the rows themselves."""

    reader: str
    view: str
    filter: Filter
    found: Found
    expected: Found

    @property
    def ok(self) -> bool:
        """Whether it found each row once, and no other."""
        return self.found == self.expected

    def __str__(self) -> str:
        told = {
            name: value if isinstance(value, str) else f"{len(value)} rows {value[:12]}"
            for name, value in (("found", self.found), ("expected", self.expected))
        }
        return f"{self.reader}, {self.view}: {str(self.filter)[:200]}: {told['found']}, and not {told['expected']}"


class Spark:
    """Spark with Hudi's data source."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        session.conf.set("spark.sql.session.timeZone", "UTC")

    def ask(
        self,
        table: Table,
        rows: Sequence[Row],
        filters: Sequence[Filter],
        view: str,
        options: dict[str, str],
        setting: str = "as it comes",
    ) -> list[Asked]:
        """The filters over the table, read with options."""
        texts = [sql(found, sparks_literal) for found in filters]
        expected = self.expected(table, rows, texts)
        for key, value in SETTINGS[setting].items():
            self._session.conf.set(key, value)
        try:
            found = self._found(lambda: self._load(table, options), texts)
        finally:
            for key in SETTINGS[setting]:
                self._session.conf.unset(key)
        name = f"Spark ({setting})"
        return [Asked(name, view, *rest) for rest in zip(filters, found, expected, strict=True)]

    def expected(self, table: Table, rows: Sequence[Row], texts: Sequence[str]) -> list[Found]:
        """What each filter is true of, by one pass over rows that are in no file."""
        answers = (
            self.plain(table, rows).selectExpr("n", *(f"({text}) as q{at}" for at, text in enumerate(texts))).collect()
        )
        return [sorted(row.n for row in answers if row[f"q{at}"] is True) for at in range(len(texts))]

    def values(self, table: Table, options: dict[str, str]) -> list[tuple[Any, ...]]:
        """All rows, as text."""
        return self._values(table, self._load(table, options))

    def model_values(self, table: Table, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        """The same of the model's rows."""
        return self._values(table, self.plain(table, rows))

    def _values(self, table: Table, frame: DataFrame) -> list[tuple[Any, ...]]:
        columns = (_as_text(name, type_) for name, type_ in table_columns(table.pipeline))
        return sorted(map(tuple, frame.selectExpr("n", *columns).collect()))

    def plain(self, table: Table, rows: Sequence[Row]) -> DataFrame:
        """Rows that are in no file."""
        batches = table.arrow(list(rows)).to_batches()

        def given(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        ddl = ", ".join(f"{name} {type_}" for name, type_ in table_columns(table.pipeline))
        return self._session.range(0, 1, 1, 1).mapInArrow(given, ddl)

    def _load(self, table: Table, options: dict[str, str]) -> DataFrame:
        return self._session.read.format("hudi").options(**options).load(table.storage.full(""))

    def _found(self, load: Callable[[], DataFrame], texts: Sequence[str]) -> list[Found]:
        """All filters in one job, each with a scan of its own; where that stops, one by one."""

        def one(at: int, text: str) -> DataFrame:
            return load().where(text).selectExpr(f"{at} as q", "n")

        try:
            rows = reduce(lambda a, b: a.unionAll(b), (one(at, text) for at, text in enumerate(texts))).collect()
        except Exception:
            return [self._alone(one(at, text)) for at, text in enumerate(texts)]
        return [sorted(row.n for row in rows if row.q == at) for at in range(len(texts))]

    def _alone(self, frame: DataFrame) -> Found:
        try:
            return sorted(row.n for row in frame.collect())
        except Exception as error:
            return f"stopped: {_cause(error)}"


def ask_rust(table: Table, rows: Sequence[Row], filters: Sequence[Filter], as_of: str | None = None) -> list[Asked]:
    """hudi-rs, which leaves out files and partitions by a filter, and may leave rows in."""
    from hudi import HudiReadOptions, HudiTableBuilder

    expected = in_duckdb(table.arrow(list(rows)), filters)
    there = HudiTableBuilder.from_base_uri(as_url(table.storage.full(""))).build()
    everything = sorted(row["n"] for row in rows)
    asked = []
    for found, wanted in zip(filters, expected, strict=True):
        assert isinstance(found, Compare)
        options = HudiReadOptions(filters=[(found.column, found.how, _plain(found.value))])
        if as_of is not None:
            options = options.with_as_of_timestamp(as_of)
        try:
            numbers = sorted(n for batch in there.read(options) for n in batch.column("n").to_pylist())
            if isinstance(wanted, list) and set(wanted) <= set(numbers) and set(numbers) <= set(everything):
                # No row twice.
                numbers = wanted if len(set(numbers)) == len(numbers) else numbers
            answer: Found = numbers
        except Exception as error:
            answer = f"stopped: {error}"[:200]
        asked.append(Asked("hudi-rs", "snapshot" if as_of is None else "as of", found, answer, wanted))
    return asked


def base_files(gateway: Gateway, table: Table) -> list[str]:
    """The newest base files, as readers without Hudi are given them."""
    return [table.storage.full(file.name) for file in committed_files(gateway, table.pipeline)]


def columns_of(files: list[str]) -> set[str]:
    """The columns that one of these files has at least."""
    import pyarrow.parquet as pq

    return {name for file in files for name in pq.read_schema(file).names}


def ask_duckdb(table: Table, files: list[str], rows: Sequence[Row], filters: Sequence[Filter]) -> list[Asked]:
    """DuckDB over the base files."""
    import duckdb

    expected = in_duckdb(table.arrow(list(rows)), filters)
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        named = ", ".join(f"'{file}'" for file in files)
        there = f"read_parquet([{named}], union_by_name = true, hive_partitioning = false)"
        found = [
            _ducks(database, f"select n from {there} where {sql(item, ducks_literal, 'starts_with')}")  # noqa: S608
            for item in filters
        ]
    return [Asked("DuckDB", "base files", *rest) for rest in zip(filters, found, expected, strict=True)]


def in_duckdb(rows: pa.Table, filters: Iterable[Filter]) -> list[Found]:
    """What DuckDB makes of filters over rows in memory; in the select list nothing is pushed down."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("given", rows)
        database.execute("create temp table plain as select * from given")
        return [
            _ducks(
                database,
                f"select n from (select n, ({sql(item, ducks_literal, 'starts_with')}) as q from plain) where q",  # noqa: S608
            )
            for item in filters
        ]


def ask_polars(table: Table, files: list[str], rows: Sequence[Row], filters: Sequence[Filter]) -> list[Asked]:
    """Polars over the base files."""
    import polars as pl

    plain = pl.from_arrow(table.arrow(list(rows)))
    assert isinstance(plain, pl.DataFrame)
    asked = []
    for item in filters:
        expression = polars_expression(item, dict(plain.schema))
        expected: Found = sorted(plain.with_columns(expression.alias("__q")).filter(pl.col("__q"))["n"].to_list())
        try:
            # One by one: files of an older schema lack columns, or have them narrower.
            found: Found = sorted(n for file in files for n in _polars(file, plain, expression))
        except Exception as error:
            found = f"stopped: {error}"[:200]
        asked.append(Asked("Polars", "base files", item, found, expected))
    return asked


def _polars(file: str, like: Any, expression: Any) -> list[int]:
    import polars as pl

    lazy = pl.scan_parquet(file)
    there = lazy.collect_schema()
    missing = [pl.lit(None, type_).alias(name) for name, type_ in like.schema.items() if name not in there]
    wider = [pl.col(name).cast(type_) for name, type_ in like.schema.items() if there.get(name) not in (None, type_)]
    return list(lazy.with_columns(*missing, *wider).filter(expression).select("n").collect()["n"].to_list())


def views(table: Table, version: Version) -> tuple[dict[str, str], dict[str, str]]:
    """Spark's options for a table as it was, and for what came after."""
    return (
        {"as.of.instant": version.completion},
        {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": version.completion,
        },
    )


def _ducks(database: Any, query: str) -> Found:
    try:
        return sorted(n for (n,) in database.execute(query).fetchall())
    except Exception as error:
        return f"stopped: {error}"[:200]


def _as_text(name: str, type_: str) -> str:
    if type_ == "binary":
        return f"hex({name})"
    if type_ == "timestamp":
        return f"cast(unix_micros({name}) as string)"
    if type_.startswith("map"):
        # Its entries have no order.
        return f"to_json(array_sort(map_entries({name})))"
    if type_.startswith(("array", "struct")):
        return f"to_json({name})"
    return f"cast({name} as string)"


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else (lines or [""])[0])[:200]


def _plain(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
