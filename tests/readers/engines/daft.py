"""Daft, which reads Hudi by code of its own, Iceberg by pyiceberg and Delta by deltalake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import daft

from tests.readers.engines.arrow import ArrowEngine
from tests.readers.engines.harness import Asked
from tests.readers.engines.pythons import iceberg_table
from tests.readers.questions import COMPARISONS, Question


class Daft(ArrowEngine):
    def count(self, asked: Asked) -> int:
        return int(self._frame(asked).count_rows())

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        frame = self._frame(asked)
        if question is not None:
            column = daft.col(question.column)
            literal = daft.lit(question.value).cast(frame.schema()[question.column].dtype)
            frame = frame.where(COMPARISONS[question.how](column, literal))
        return frame.select(*columns).to_arrow()

    def _frame(self, asked: Asked) -> Any:
        if asked.form == "hudi":
            return daft.read_hudi(asked.path)
        if asked.form == "delta":
            return daft.read_deltalake(asked.path)
        return daft.read_iceberg(iceberg_table(asked.metadata))


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Daft]:
    yield Daft()
