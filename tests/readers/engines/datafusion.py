"""DataFusion over the table provider of hudi-rs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datafusion import SessionContext
from hudi import HudiDataFusionDataSource

from tests.readers.engines import literals
from tests.readers.engines.arrow import ArrowEngine
from tests.readers.engines.harness import Asked
from tests.readers.questions import Question


class DataFusion(ArrowEngine):
    def count(self, asked: Asked) -> int:
        return int(self._ask(asked, "SELECT count(*) AS number FROM t").column("number")[0].as_py())

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        listed = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {listed} FROM t{literals.where(question, literals.datafusion)}"
        return self._ask(asked, query)

    def _ask(self, asked: Asked, query: str) -> Any:
        # The table provider fails once its session is gone.
        context = SessionContext()
        context.register_table("t", HudiDataFusionDataSource(Path(asked.path).as_uri()))
        return context.sql(query).to_arrow_table()


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[DataFusion]:
    yield DataFusion()
