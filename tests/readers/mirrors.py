"""The mirrors of the tables: a catalog of Iceberg in a database, and Delta logs in the tables' folders."""

from __future__ import annotations

from typing import cast

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.mirror.following import Followed
from airflow_provider_slshudi.services.mirrors import mirror
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import Launcher
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


def with_mirrors(pipeline: Pipeline, table: str) -> Pipeline:
    """The pipeline with a mirror in each format; `table` is the name of Iceberg's."""
    described = pipeline.model_dump(mode="json")
    described["mirror"] = {"iceberg": {"catalog": CATALOG, "table": f"{NAMESPACE}.{table}"}, "delta": {}}
    return Pipeline.model_validate(described)
