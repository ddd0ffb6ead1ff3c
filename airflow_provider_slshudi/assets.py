"""The assets by which Airflow knows a pipeline's table."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.values import scheme_and_place


def table_asset(pipeline: Pipeline) -> Asset:
    """The asset that a pipeline's commits update; a DAG may be scheduled on it.

    `hudi://bucket/path`, or `hudi://localhost/path` for a table on a file system.
    """
    scheme, place = scheme_and_place(pipeline.table.path)
    return Asset(name=f"hudi_{pipeline.name}", uri=f"hudi://{'localhost' if scheme == 'file' else ''}{place}")


def settled_alias(pipeline: Pipeline) -> AssetAlias:
    """The outlet by which settle and recovery update that asset.

    A task that succeeds updates each asset among its outlets, also after no work; through an alias only what it adds.
    """
    return AssetAlias(f"hudi_{pipeline.name}_settled")
