"""The table's mirrors for readers of Iceberg and Delta, kept up to date by a task."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.operators.base import PipelineOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiMirrorOperator(PipelineOperator):
    """Brings the pipeline's `mirror` up to the table's newest completed instant, in this process; may be repeated.

    Returns `{"iceberg" or "delta": {"instants": those that got a snapshot of their own, "reconciled": whether all files
    were compared instead}}`.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Mirrors."""
        from airflow_provider_slshudi.protocol.mirror import mirror

        with self.told(context):
            done = mirror(self.work(context))
        for name, followed in done.items():
            how = "by comparing all files" if followed.reconciled else f"{len(followed.instants)} instants"
            self.log.info("%s mirror: %s", name, how)
        return {name: {**asdict(followed), "instants": list(followed.instants)} for name, followed in done.items()}
