"""The table's entry in a catalog, kept up to date by a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_slshudi.operators.base import PipelineOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiSyncOperator(PipelineOperator):
    """Tells the pipeline's `catalog` of the table's columns and partitions as of its newest commit; may be repeated.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> None:
        """Synchronises."""
        from airflow_provider_slshudi.protocol.catalog import sync

        with self.told(context):
            sync(self.work(context))
