"""The first step of every run: decides the transactions that earlier runs left undecided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_slshudi.exceptions import TransientError
from airflow_provider_slshudi.operators.base import PipelineTask, as_xcom, run_ended
from airflow_provider_slshudi.operators.events import tell

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiSettleSensor(PipelineTask, BaseSensorOperator):
    """Decides every dangling transaction of the pipeline, and waits until ledger and table agree.

    Pokes again while something cannot be read or somebody else decides, and for tables with upserts while another
    batch is under way; fails at once if a person has to look.

    Each outlet that is an asset's alias gets an event for each committed batch that has none yet.

    Args:
        pipeline: a pipeline's name or file.
    """

    template_fields = ("pipeline",)

    def __init__(self, *, pipeline: str, poke_interval: float = 15, timeout: float = 3600, **kwargs: Any) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.pipeline = pipeline

    def poke(self, context: Context) -> PokeReturnValue:
        """One attempt to settle."""
        from airflow_provider_slshudi.protocol.settle import require_alone, settle

        try:
            with self.told(context, passing=(TransientError,)):
                work = self.work(context)
                settled = settle(work, run_ended(context))
                require_alone(work)
                tell(self.outlets, context, work, settled)
        except TransientError as error:
            self.log.warning("not settled yet: %s", error)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=as_xcom(settled))
