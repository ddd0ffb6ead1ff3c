"""ClickHouse as the Python package chdb has it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chdb import session

from tests.readers.canonical import texts_of
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
        answer = self._ask(
            f"SELECT {listed} FROM {self._source(asked)} AS t{condition.replace(' WHERE ', ' WHERE t.')}"
        )
        return [texts_of(types, map(_value, types, row)) for row in answer]

    def _source(self, asked: Asked) -> str:
        """The table function; that of Hudi reaches object stores alone."""
        if asked.form == "hudi":
            store = self._store
            return f"hudi('{store['address']}/{asked.name}', '{store['user']}', '{store['secret']}')"
        if asked.form == "delta":
            return f"deltaLakeLocal('{asked.path}')"
        return f"icebergLocal('{Path(asked.metadata.removeprefix('file://')).parents[1]}')"

    def _ask(self, query: str) -> list[list[Any]]:
        said = str(
            self._database.query(f"{query} SETTINGS output_format_json_quote_denormals = 1", "JSONCompactEachRow")
        )
        return [json.loads(line) for line in said.splitlines() if line]


def _value(type_: str, value: Any) -> Any:
    return bytes.fromhex(value) if type_ == "binary" and value is not None else value


def _plain(name: str, type_: str) -> str:
    if type_ == "timestamp":
        return f"toUnixTimestamp64Micro(t.{name})"
    if type_.startswith(("date", "decimal", "bigint")):
        return f"toString(t.{name})"
    return f"hex(t.{name})" if type_ == "binary" else f"t.{name}"


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    # Functions of local files read none outside of the working folder.
    os.chdir("/")
    yield ClickHouse(session.Session(), settings)
