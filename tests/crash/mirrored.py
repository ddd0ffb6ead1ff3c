"""The mirrors of a pipeline of the matrix: they follow the table after each event, and show its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.services.mirrors import mirror
from airflow_provider_slshudi.storage.objectstore import hadoop_path
from airflow_provider_slshudi.transaction.context import Work
from tests.readers.mirrors import CATALOG, mirror_faults
from tests.readers.mirrors import with_mirrors as _with_mirrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE = "mirrored"


def with_mirrors(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a mirror in each format."""
    return _with_mirrors(pipeline, _TABLE)


def catalog_in(folder: Path) -> dict[str, str]:
    """The catalog of the Iceberg mirror, in a database of a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "name": CATALOG}


def faults(work: Work, spark: SparkSession) -> list[str]:
    """Has the mirrors follow; says where a client of theirs reads other rows than Spark does of the Hudi table.

    Of a Merge-On-Read table a mirror has what is compacted, as a read-optimized query.
    """
    mirror(work)
    names = ("event_id",) if any(each.name == "event_id" for each in work.pipeline.columns) else ("id", "number")
    options = {"hoodie.datasource.query.type": "read_optimized"}
    read = spark.read.format("hudi").options(**options).load(hadoop_path(work.storage.uri))
    rows = (tuple(row) for row in read.select(*names).collect())
    return mirror_faults(work.storage, _TABLE, work.iceberg_catalog(CATALOG), names, rows)
