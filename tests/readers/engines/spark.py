"""Spark 3.5 with one of Hudi's bundles, with Iceberg's runtime or with Delta's jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from tests.readers.canonical import texts_of
from tests.readers.engines import literals
from tests.readers.engines.harness import Asked, Rows
from tests.readers.questions import Question


class Spark:
    """A session. It asks all filters of a table in one job, each with a scan of its own: jobs cost more than scans."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._opened: tuple[Asked, Any] | None = None
        self._numbers: dict[str, Rows] = {}

    def count(self, asked: Asked) -> int:
        return int(self._frame(asked).count())

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        frame = self._frame(asked)
        if question is None:
            return _texts(frame, asked, columns)
        if not self._numbers:
            self._ask_all(asked, frame)
        if question.name in self._numbers:
            return self._numbers[question.name]
        return _texts(_filtered(frame, question), asked, columns)

    def _ask_all(self, asked: Asked, frame: Any) -> None:
        """Fills `_numbers`; leaves it empty where one of the filters fails, so that each is asked by itself."""
        each = [
            _filtered(frame, question).selectExpr(f"{position} AS question", "n")
            for position, question in enumerate(asked.questions)
        ]
        try:
            answer = reduce(lambda one, other: one.unionAll(other), each).collect()
        except Exception:
            return
        for position, question in enumerate(asked.questions):
            self._numbers[question.name] = [[str(number)] for place, number in answer if place == position]

    def _frame(self, asked: Asked) -> Any:
        if self._opened is None or self._opened[0] is not asked:
            self._opened, self._numbers = (asked, self._load(asked)), {}
        return self._opened[1]

    def _load(self, asked: Asked) -> Any:
        if asked.form == "iceberg":
            return self._session.table(f"lake_catalog.lake.{asked.name}")
        return self._session.read.format(asked.form).load(asked.path)


def _filtered(frame: Any, question: Question) -> Any:
    return frame.where(f"`{question.column}` {question.how} {literals.spark(question.type, question.value)}")


def _texts(frame: Any, asked: Asked, columns: Sequence[str]) -> Rows:
    answer = frame.selectExpr(*(_plain(name, asked.types[name]) for name in columns)).collect()
    types = [asked.types[name] for name in columns]
    return [texts_of(types, row) for row in answer]


def _plain(name: str, type_: str) -> str:
    """Python's times and days would depend on the machine's zone."""
    if type_ == "timestamp":
        return f"unix_micros(`{name}`)"
    return f"cast(`{name}` AS string)" if type_ == "date" else f"`{name}`"


def session_of(settings: Mapping[str, Any]) -> Any:
    """A session with the settings' configuration, which logs nothing."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key, value in settings["conf"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Spark]:
    session = session_of(settings)
    try:
        yield Spark(session)
    finally:
        session.stop()
