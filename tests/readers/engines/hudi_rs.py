"""hudi-rs by its Python package `hudi`, 0.4 and later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa

from tests.readers.engines.arrow import ArrowEngine
from tests.readers.engines.harness import Asked
from tests.readers.questions import Question


class HudiRs(ArrowEngine):
    leaves_rows_in = True

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        table: Any = hudi.HudiTableBuilder.from_base_uri(Path(asked.path).as_uri()).build()
        filters = [] if question is None else [(question.column, question.how, _literal(question))]
        if hasattr(hudi, "HudiReadOptions"):
            batches = table.read(hudi.HudiReadOptions(filters=filters) if filters else hudi.HudiReadOptions())
        else:
            batches = table.read_snapshot(filters=filters or None)
        return pa.Table.from_batches(batches)


def _literal(question: Question) -> str:
    value = question.value
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[HudiRs]:
    yield HudiRs()
