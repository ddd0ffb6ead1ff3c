"""Pipelines with mirrors, and ways to read what other engines see of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.mirror.following import Followed
from airflow_provider_slshudi.services import mirrors as protocol
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.mirror.tables import HandMade, counted
from tests.needs import DELTALAKE

TABLE = "lake.events"


class NoLedger:
    """A ledger that knows of no table."""

    def has_written(self, _: str) -> bool:
        return False


@dataclass
class Mirrored:
    """A table made by hand, and its mirrors in both formats."""

    made: HandMade
    work: Work
    catalog: dict[str, str]

    def follow(self) -> dict[str, Followed]:
        return protocol.mirror(self.work)

    @property
    def iceberg(self) -> Any:
        """The Iceberg table, as another client finds it."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(**self.catalog).load_table(TABLE)

    @property
    def iceberg_folder(self) -> Path:
        """The Iceberg table's location."""
        return Path(f"{self.made.storage.full('')}_iceberg")

    @property
    def delta(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.made.storage.full(""))

    def read_by_clients(self) -> dict[str, list[dict[str, Any]]]:
        """The rows by the two clients alone, which reach an object store by the environment."""
        from deltalake import DeltaTable

        delta = DeltaTable(self.made.storage.uri, storage_options={"aws_allow_http": "true"})
        return {
            "pyiceberg": self.iceberg.scan().to_arrow().to_pylist(),
            "deltalake": delta.to_pyarrow_table().to_pylist(),
        }

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """The rows by reader."""
        import polars

        return {
            "pyiceberg": self.iceberg.scan().to_arrow().to_pylist(),
            "polars, Iceberg": polars.scan_iceberg(self.iceberg).collect().to_arrow().to_pylist(),
            "deltalake": self.delta.to_pyarrow_table().to_pylist(),
            "polars, Delta": polars.read_delta(self.made.storage.full("")).to_arrow().to_pylist(),
        }

    def require(self, rows: list[dict[str, Any]]) -> None:
        """Checks that every reader sees exactly these rows."""
        names = self.iceberg.schema().column_names
        expected = counted([{name: row.get(name) for name in names} for row in rows])
        for reader, seen in self.read().items():
            assert counted(seen) == expected, reader


@pytest.fixture
def mirrored(tmp_path: Path) -> Callable[..., Mirrored]:
    """Makes a table of `n` and `day`, partitioned by `day`; more are fields of the pipeline."""

    pytest.importorskip("deltalake", reason=DELTALAKE)

    def make(keep: int = 10, **changes: Any) -> Mirrored:
        path = tmp_path / "lake" / "events"
        described: dict[str, Any] = {
            "name": "events",
            "source": {"project": "p", "logstore": "l"},
            "table": {"path": f"file://{path}", "name": "events", "partition": {"by": "field", "column": "day"}},
            "columns": [{"name": "n", "type": "int"}, {"name": "day"}],
            "mirror": {"iceberg": {"catalog": "c", "table": TABLE, "keep": keep}, "delta": {}},
        }
        pipeline = Pipeline.model_validate({**described, **changes})
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "name": "elsewhere"}
        work = Work(
            pipeline,
            cast(Ledger, NoLedger()),
            cast(Launcher, None),
            lambda: cast(LogService, None),
            Run("mirror", "run-1"),
            lambda _: catalog,
        )
        return Mirrored(HandMade(pipeline), work, catalog)

    return make
