"""Proof as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_slshudi.links import PipelineLink, SparkLink
from airflow_provider_slshudi.operators.base import PipelineOperator, refuse_unknown_params

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiVerifyOperator(PipelineOperator):
    """Compares the table's rows with the ledger, and fails if a row is missing, doubled, foreign or unreadable.

    The DAG param `source` (or the argument of that name, if the DAG has no such param) says whether to read the service
    again, too. Batches may go on meanwhile.

    Returns the totals, `as_of`, and how many ranges were compared.

    Args:
        pipeline: a pipeline's name or file.
        source: compare with the logs that the service still holds, too.
    """

    operator_extra_links = (PipelineLink(), SparkLink())

    def __init__(self, *, pipeline: str, source: bool = False, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, **kwargs)
        self.source = source

    def execute(self, context: Context) -> dict[str, Any]:
        """Verifies."""
        from airflow_provider_slshudi.protocol.verify import verify

        with self.told(context):
            refuse_unknown_params(context, ("source",))
            proof = verify(self.work(context), bool(context["params"].get("source", self.source)))
            totals: dict[str, Any] = {
                "as_of": proof.as_of,
                "ranges": len(proof.ranges),
                **proof.totals.to_dict(),
                "unreadable": proof.unreadable,
            }
            if not proof.ok:
                raise AirflowFailException(
                    f"pipeline {self.pipeline}: not every log is in the table once: {proof.complaint()}. "
                    f"`slshudi verify {self.pipeline}` lists the ranges"
                )
        self.log.info("every log is in the table once: %s", totals)
        return totals
