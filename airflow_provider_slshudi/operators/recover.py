"""Recovery when a person asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.operators.base import (
    AirflowRuns,
    PipelineOperator,
    as_xcom,
    refuse_unknown_params,
)
from airflow_provider_slshudi.operators.events import tell
from airflow_provider_slshudi.operators.lineage import LineageTask

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiRecoverOperator(LineageTask, PipelineOperator):
    """Decides every dangling transaction now.

    The DAG param `transactions` names transactions to decide although their run may still be going on, or Airflow does
    not know it. A run that works on them finds out by the fencing token and stops.

    Returns `{"settled": [...], "left": [...]}`; `left` has the live transactions of runs that have not ended. Each
    outlet that is an asset's alias gets an event for each committed batch that has none yet.

    Args:
        pipeline: a pipeline's name or file.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Recovers."""
        from airflow_provider_slshudi.protocol.recover import recover

        with self.told(context):
            refuse_unknown_params(context, ("transactions",))
            work = self.work(context)
            done = recover(work, AirflowRuns(context["ti"]), context["params"].get("transactions") or [])
            self.remember(work, tell(self.outlets, context, work, done.settled))
        for item in done.left:
            self.log.info("left transaction %s of %s, %s: %s", item.transaction, item.run, item.state, item.why)
        left = [{"transaction": item.transaction, "state": item.state, "run": item.run} for item in done.left]
        self.log.info("%d transactions settled, %d left to their runs", len(done.settled), len(left))
        return {"settled": as_xcom(done.settled), "left": left}
