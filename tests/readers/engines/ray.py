"""Ray Data, which reads Hudi by hudi-rs, Iceberg by pyiceberg and Delta by deltalake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray

from tests.readers.engines.arrow import ArrowEngine
from tests.readers.engines.harness import Asked
from tests.readers.questions import Question


class Ray(ArrowEngine):
    leaves_rows_in = True

    def __init__(self, catalog: Mapping[str, str]) -> None:
        self._catalog = dict(catalog)

    def count(self, asked: Asked) -> int:
        return int(self._dataset(asked).count())

    def scan(self, asked: Asked, columns: Sequence[str], question: Question | None) -> Any:
        tables = ray.get(self._dataset(asked).to_arrow_refs())
        return pa.concat_tables(tables, promote_options="permissive")

    def _dataset(self, asked: Asked) -> Any:
        if asked.form == "hudi":
            return ray.data.read_hudi(Path(asked.path).as_uri())
        if asked.form == "delta":
            return ray.data.read_delta(asked.path)
        return ray.data.read_iceberg(table_identifier=f"lake.{asked.name}", catalog_kwargs=self._catalog)


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Ray]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    try:
        yield Ray(settings["catalog"])
    finally:
        ray.shutdown()
