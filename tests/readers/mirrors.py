"""The mirrors of the tables: a catalog of Iceberg in a database, and Delta logs in the tables' folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.mirror.following import Followed
from airflow_provider_slshudi.services.mirrors import mirror
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.mirror.conftest import NoLedger

NAMESPACE = "lake"
CATALOG = "lake_catalog"


class Mirrors:
    """The catalog in which mirrors of Iceberg's format stand, at a database's URL."""

    def __init__(self, url: str) -> None:
        self.properties = {"type": "sql", "uri": url, "name": CATALOG}

    def follow(self, pipeline: Pipeline) -> dict[str, Followed]:
        """Brings the mirrors of a pipeline's table up to its newest commit."""
        return mirror(
            Work(
                pipeline,
                cast(Ledger, NoLedger()),
                cast(Launcher, None),
                lambda: cast(LogService, None),
                Run("mirror", "readers"),
                lambda _: self.properties,
            )
        )


def mirror_faults(
    table: Storage, name: str, properties: Mapping[str, Any], names: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> list[str]:
    """Where a client of a mirror's format reads other rows than the table has.

    Args:
        table: has Delta's log in its folder.
        name: the name of Iceberg's table.
        properties: pyiceberg's, of the catalog.
        names: the columns that are compared.
        rows: these columns of the table's rows.
    """
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    expected = Counter(rows)
    iceberg = load_catalog(**properties).load_table(f"{NAMESPACE}.{name}")
    seen = {
        "Iceberg": iceberg.scan(selected_fields=tuple(names)).to_arrow(),
        "Delta": DeltaTable(table.full("")).to_pyarrow_table(columns=[*names]),
    }
    return [
        f"{table.uri}: the {kind} mirror has {mirrored.num_rows} rows that are not the table's {expected.total()}"
        for kind, mirrored in seen.items()
        if Counter(zip(*(mirrored[name].to_pylist() for name in names), strict=True)) != expected
    ]


def with_mirrors(pipeline: Pipeline, table: str) -> Pipeline:
    """The pipeline with a mirror in each format; `table` is the name of Iceberg's."""
    described = pipeline.model_dump(mode="json")
    described["mirror"] = {"iceberg": {"catalog": CATALOG, "table": f"{NAMESPACE}.{table}"}, "delta": {}}
    return Pipeline.model_validate(described)
