"""Readers of Iceberg and Delta for Python: pyiceberg, deltalake, Polars and DuckDB over the former two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.readers.engines import literals
from tests.readers.engines.arrow import ArrowEngine
from tests.readers.engines.harness import Asked
from tests.readers.questions import Question


def iceberg_table(metadata: str) -> Any:
    """The Iceberg table of a metadata file."""
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata)


class PyIceberg(ArrowEngine):
    def count(self, asked: Asked) -> int:
        return int(iceberg_table(asked.metadata).scan().count())

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        from pyiceberg import expressions

        row_filter: Any = expressions.AlwaysTrue()
        if question is not None:
            kinds: dict[str, Any] = {
                "=": expressions.EqualTo,
                "<": expressions.LessThan,
                "<=": expressions.LessThanOrEqual,
                ">": expressions.GreaterThan,
                ">=": expressions.GreaterThanOrEqual,
            }
            row_filter = kinds[question.how](question.column, _iceberg_literal(question))
        return iceberg_table(asked.metadata).scan(row_filter, tuple(columns)).to_arrow()


class DeltaLake(ArrowEngine):
    def count(self, asked: Asked) -> int:
        from deltalake import DeltaTable

        return int(DeltaTable(asked.path).to_pyarrow_dataset().count_rows())

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        import pyarrow as pa
        from deltalake import DeltaTable

        dataset = DeltaTable(asked.path).to_pyarrow_dataset()
        row_filter = None
        if question is not None:
            column = pa.compute.field(question.column)
            literal = pa.scalar(question.value, dataset.schema.field(question.column).type)
            row_filter = _compared(question, column, literal)
        return dataset.to_table(list(columns), filter=row_filter)


class Polars(ArrowEngine):
    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        import polars as pl

        lazy = pl.scan_delta(asked.path) if asked.form == "delta" else pl.scan_iceberg(iceberg_table(asked.metadata))
        if question is not None:
            literal = pl.lit(question.value, lazy.collect_schema()[question.column])
            lazy = lazy.filter(_compared(question, pl.col(question.column), literal))
        return lazy.select(columns).collect().to_arrow()


class DuckDb(ArrowEngine):
    """DuckDB by its own extensions, whose files are in packages; without any over what pyiceberg and deltalake open."""

    def __init__(self, extensions: Sequence[str]) -> None:
        import duckdb

        self._database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self._by_extension = bool(extensions)
        for name in extensions:
            self._database.execute(f"LOAD '{_extension(name)}'")
        self._database.execute("SET TimeZone = 'UTC'")

    def count(self, asked: Asked) -> int:
        [(number,)] = self._database.execute(f"SELECT count(*) FROM {self._source(asked)}").fetchall()
        return int(number)

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        listed = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {listed} FROM {self._source(asked)}{literals.where(question, literals.duckdb)}"
        return self._database.execute(query).to_arrow_table()

    def _source(self, asked: Asked) -> str:
        if self._by_extension:
            function = "delta_scan" if asked.form == "delta" else "iceberg_scan"
            return f"{function}('{asked.path if asked.form == 'delta' else asked.metadata}')"
        reader = DeltaLake() if asked.form == "delta" else PyIceberg()
        self._database.register("opened", reader.scan(asked, list(asked.types), None))
        return "opened"


def _extension(name: str) -> str:
    from importlib.util import find_spec
    from pathlib import Path

    package = find_spec(f"duckdb_extension_{name}")
    assert package is not None and package.submodule_search_locations is not None
    folder = Path(next(iter(package.submodule_search_locations)))
    return str(next(folder.rglob("*.duckdb_extension")))


def _iceberg_literal(question: Question) -> Any:
    from datetime import datetime

    value = question.value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if question.type == "date" else value


def _compared(question: Question, column: Any, literal: Any) -> Any:
    from tests.readers.questions import COMPARISONS

    return COMPARISONS[question.how](column, literal)


_ENGINES: dict[str, Any] = {"pyiceberg": PyIceberg, "deltalake": DeltaLake, "polars": Polars}


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[ArrowEngine]:
    name = settings["engine"]
    yield DuckDb(settings["extensions"]) if name == "duckdb" else _ENGINES[name]()
