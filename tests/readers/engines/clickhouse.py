"""ClickHouse as the Python package chdb has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chdb import session

from tests.readers.canonical import text_of
from tests.readers.engines import literals
from tests.readers.engines.harness import Asked, Rows
from tests.readers.questions import Question


class ClickHouse:
    def __init__(self, database: Any, store: Mapping[str, str]) -> None:
        self._database, self._store = database, store

    def count(self, asked: Asked) -> int:
        return int(self._ask(f"SELECT toString(count()) FROM {self._source(asked)}")[0][0])

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        listed = ", ".join(_plain(name, asked.types[name]) for name in columns)
        condition = literals.where(question, literals.clickhouse)
        types = [asked.types[name] for name in columns]
        answer = self._ask(f"SELECT {listed} FROM {self._source(asked)} AS t{condition.replace(' WHERE ', ' WHERE t.')}")
        return [[text_of(type_, value) for type_, value in zip(types, row, strict=True)] for row in answer]

    def _source(self, asked: Asked) -> str:
        """The table function; that of Hudi reaches object stores alone."""
        if asked.form == "hudi":
            store = self._store
            return f"hudi('{store['address']}/{asked.name}', '{store['user']}', '{store['secret']}')"
        if asked.form == "delta":
            return f"deltaLakeLocal('{asked.path}')"
        return f"icebergLocal('{Path(asked.metadata.removeprefix('file://')).parents[1]}')"

    def _ask(self, query: str) -> list[list[Any]]:
        said = str(self._database.query(query, "JSONCompactEachRow"))
        return [[_value(item) for item in json.loads(line)] for line in said.splitlines() if line]


def _value(item: Any) -> Any:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}.get(item, item) if isinstance(
        item, str
    ) else item


def _plain(name: str, type_: str) -> str:
    if type_ == "timestamp":
        return f"toUnixTimestamp64Micro(t.{name})"
    if type_ in ("date", "decimal", "bigint") or type_.startswith("decimal"):
        return f"toString(t.{name})"
    return f"hex(t.{name})" if type_ == "binary" else f"t.{name}"


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    yield ClickHouse(session.Session(), settings)
