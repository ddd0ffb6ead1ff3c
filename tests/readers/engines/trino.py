"""Trino by its REST protocol (trino.io/docs/476/develop/client-protocol.html)."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.readers.canonical import micros, texts_of
from tests.readers.engines import literals
from tests.readers.engines.harness import Asked, Rows
from tests.readers.questions import Question

_NAMESPACE = "lake"
_DAYS_OF_400_YEARS = 146_097
_ENTRIES = "array_sort(transform(map_entries({column}), e -> CAST(e AS ROW(key varchar, value double))))"


class Trino:
    def __init__(self, address: str, catalog: str) -> None:
        self._address, self._catalog = address, catalog

    def count(self, asked: Asked) -> int:
        return int(query(self._address, f"SELECT count(*) FROM {self._name(asked)}")[0][0])

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        types = [asked.types[name] for name in columns]
        listed = ", ".join(_plain(name, type_) for name, type_ in zip(columns, types, strict=True))
        condition = literals.where(question, literals.trino)
        answer = query(self._address, f"SELECT {listed} FROM {self._name(asked)}{condition}")
        return [texts_of(types, map(_value, types, row)) for row in answer]

    def _name(self, asked: Asked) -> str:
        return f"{self._catalog}.{_NAMESPACE}.{asked.name}"


def query(address: str, text: str) -> list[list[Any]]:
    """The rows of a statement's result; raises RuntimeError with Trino's words."""
    request = urllib.request.Request(f"{address}/v1/statement", text.encode(), {"X-Trino-User": "readers"})
    rows: list[list[Any]] = []
    while True:
        with urllib.request.urlopen(request, timeout=300) as answer:
            page = json.load(answer)
        if "error" in page:
            raise RuntimeError(_innermost(page["error"]))
        rows += page.get("data", [])
        if "nextUri" not in page:
            return rows
        request = urllib.request.Request(page["nextUri"])


def _innermost(error: Mapping[str, Any]) -> str:
    """Trino's message, with that of the first cause behind."""
    cause: Mapping[str, Any] = error.get("failureInfo", {})
    while cause.get("cause"):
        cause = cause["cause"]
    inner = str(cause.get("message", ""))
    return str(error["message"]) if inner in error["message"] else f"{error['message']} ({inner})"


def _plain(name: str, type_: str) -> str:
    """Times and days as texts, maps as arrays, whose entries keep an order."""
    if type_ == "timestamp":
        return f"CAST(CAST({name} AS timestamp(6) with time zone) AS varchar)"
    if type_ == "date":
        return f"CAST({name} AS varchar)"
    return _ENTRIES.format(column=name) if type_.startswith("map") else name


def _value(type_: str, value: Any) -> Any:
    if value is None:
        return None
    if type_ == "timestamp":
        return _micros(value)
    return base64.b64decode(value) if type_ == "binary" else value


def _micros(text: str) -> int:
    """Microseconds since 1970 of `2026-01-01 00:00:00.000000 UTC`, of years beyond 9999, too."""
    year, rest = text.removesuffix(" UTC").lstrip("+").split("-", 1)
    later = max(0, -(-(int(year) - 9999) // 400))
    moment = datetime.strptime(f"{int(year) - 400 * later:04}-{rest}", "%Y-%m-%d %H:%M:%S.%f")
    return micros(moment) + later * _DAYS_OF_400_YEARS * 86_400_000_000


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Trino]:
    yield Trino(settings["address"], settings["catalog"])
