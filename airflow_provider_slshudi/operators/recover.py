"""Recovery by an operator's hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.operators.base import PipelineTask, as_xcom, run_ended, terminal_fails

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.protocol.settle import Ended
    from airflow_provider_slshudi.protocol.work import Run, Work


class SlsHudiRecoverOperator(PipelineTask, BaseOperator):
    """Decides every dangling transaction now.

    The DAG param `transactions` names transactions that are to be decided although their run may still be going on,
    or is one that Airflow does not know. Whoever works on them finds out by the fencing token and stops.

    Returns `{"settled": [...], "left": [...]}`; left are live transactions of runs that have not ended.

    Args:
        pipeline: a pipeline's name or file.
    """

    template_fields = ("pipeline",)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Recovers."""
        from airflow_provider_slshudi.protocol.settle import settle

        with terminal_fails():
            work = self.work(context)
            named = context["params"].get("transactions") or []
            settled = settle(work, _also(run_ended(context), _runs(work, named)))
        left = [
            {"transaction": live.id, "state": live.state.value, "run": f"{live.dag_id}/{live.run_id}"}
            for live in work.ledger.live(work.pipeline.name)
        ]
        self.log.info("%d transactions settled, %d left to their runs", len(settled), len(left))
        return {"settled": as_xcom(settled), "left": left}


def _runs(work: Work, named: Sequence[str]) -> set[Run]:
    """The runs of named transactions; a run has one live transaction."""
    from airflow_provider_slshudi.protocol.work import Run

    live = {item.id: Run(item.dag_id, item.run_id) for item in work.ledger.live(work.pipeline.name)}
    for id_ in named:
        if id_ not in live:
            raise ConfigError(
                f"transactions: {id_!r} is none of pipeline {work.pipeline.name} that waits for a decision; those are "
                f"{', '.join(live) or 'none'}",
                source="DAG params",
                field="transactions",
                value=id_,
            )
    return {live[id_] for id_ in named}


def _also(ended: Ended, runs: set[Run]) -> Ended:
    return lambda run: True if run in runs else ended(run)
