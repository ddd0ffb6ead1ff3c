"""Spark 3.5 with one of Hudi's bundles, with Iceberg's runtime or with Delta's jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.readers.canonical import text_of
from tests.readers.engines import literals
from tests.readers.engines.harness import Asked, Rows
from tests.readers.questions import Question


class Spark:
    def __init__(self, session: Any) -> None:
        self._session = session

    def count(self, asked: Asked) -> int:
        return int(self._frame(asked).count())

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        frame = self._frame(asked)
        if question is not None:
            literal = literals.spark(question.type, question.value)
            frame = frame.where(f"`{question.column}` {question.how} {literal}")
        answer = frame.selectExpr(*(_plain(name, asked.types[name]) for name in columns)).collect()
        types = [asked.types[name] for name in columns]
        return [[text_of(type_, value) for type_, value in zip(types, row, strict=True)] for row in answer]

    def _frame(self, asked: Asked) -> Any:
        if asked.form == "iceberg":
            return self._session.table(f"lake_catalog.lake.{asked.name}")
        return self._session.read.format(asked.form).load(asked.path)


def _plain(name: str, type_: str) -> str:
    """Python's times and days would depend on the machine's zone."""
    if type_ == "timestamp":
        return f"unix_micros(`{name}`)"
    return f"cast(`{name}` AS string)" if type_ == "date" else f"`{name}`"


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Spark]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key, value in settings["conf"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield Spark(session)
    finally:
        session.stop()
