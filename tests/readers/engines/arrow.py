"""Engines that give Arrow tables: what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.readers.canonical import text_of
from tests.readers.engines.harness import Asked, Rows, keeps
from tests.readers.questions import Question


class ArrowEngine(ABC):
    """An engine whose answers are Arrow tables.

    Attributes:
        leaves_rows_in: its filters leave out partitions and files, and not all of the rows that fail them.
    """

    leaves_rows_in = False

    @abstractmethod
    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        """The rows that the filter is true of, as an Arrow table with these columns at least."""

    def count(self, asked: Asked) -> int:
        return int(self.scan(asked, ["n"], None).num_rows)

    def rows(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Rows:
        if question is None or not self.leaves_rows_in:
            return texts(self.scan(asked, columns, question), columns, asked.types)
        both = [*columns, question.column]
        read = texts(self.scan(asked, both, question), both, asked.types)
        return [row[:-1] for row in read if keeps(question, row[-1])]


def texts(table: Any, columns: Sequence[str], types: dict[str, str]) -> Rows:
    """The rows of an Arrow table as canonical texts."""
    listed = [_column(table.column(name), types[name]) for name in columns]
    return [list(row) for row in zip(*listed, strict=True)]


def _column(column: Any, type_: str) -> list[str | None]:
    if type_ == "timestamp" and pa.types.is_timestamp(column.type):
        # Python's times end at the year 9999, and begin with 1.
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return [text_of(type_, value) for value in column.to_pylist()]
