"""Tasks that a person starts: recovery of dangling batches, and the actions of a pipeline's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import PARAMS_SOURCE, REPAIR, Act
from airflow_provider_slshudi.hooks.runs import AirflowRuns
from airflow_provider_slshudi.operators.base import (
    PipelineOperator,
    as_xcom,
    refuse_retries,
    refuse_unknown_params,
    who_asked,
)
from airflow_provider_slshudi.operators.events import tell
from airflow_provider_slshudi.operators.lineage import LineageTask

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work


class SlsHudiRecoverOperator(LineageTask, PipelineOperator):
    """Decides every dangling transaction now.

    The DAG param `transactions` names transactions to decide although their run may still be going on, or Airflow does
    not know it. A run that works on them finds out by the fencing token and stops.

    Returns `{"settled": [...], "left": [...]}`; `left` has the live transactions of runs that have not ended. Each
    outlet that is an asset's alias gets an event for each committed batch that has none yet.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        transactions: ids to decide, or one, where the run gives no param of that name; templated.
    """

    template_fields = (*PipelineOperator.template_fields, "transactions")

    def __init__(self, *, transactions: Sequence[str] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.transactions = transactions

    def execute(self, context: Context) -> dict[str, Any]:
        """Recovers."""
        from airflow_provider_slshudi.repair.recover import recover

        with self.told(context):
            refuse_unknown_params(context, ("transactions",))
            work = self.work(context)
            named = context["params"].get("transactions") or self.transactions or []
            ids = [named] if isinstance(named, str) else [*named]
            done = recover(work, AirflowRuns(context["ti"]), ids)
            self.remember(work, tell(self.outlets, context, work, done.settled))
        for item in done.left:
            self.log.info("left transaction %s of %s, %s: %s", item.transaction, item.run, item.state, item.why)
        undecided_transactions = [
            {"transaction": item.transaction, "state": item.state, "run": item.run} for item in done.left
        ]
        self.log.info("%d transactions settled, %d left to their runs", len(done.settled), len(undecided_transactions))
        return {"settled": as_xcom(done.settled), "left": undecided_transactions}


PARAMS = ("act", "reason", "transaction", "cursors")


class SlsHudiRepairOperator(LineageTask, PipelineOperator):
    """Does what the run's params or its own arguments ask for: an `act` of its role (see `Act`), for a `reason`, on a
    `transaction` or on `cursors`.

    The ledger keeps the user who triggered the run. Returns `{"done": what was done, in a sentence}`. It has no
    retries, and refuses some: the person sees what happened, and decides.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        role: REPAIR, for acts that lose nothing, or OVERRIDE, for those that may lose data.
        act: what to do where the run's params say nothing, as the next three; all are templated.
        reason: why; stays in the pipeline's history.
        transaction: the id of the batch that is meant, if it is one.
        cursors: `SHARD:BEGIN-END`, the end excluded, of `skip`.
    """

    template_fields = (*PipelineOperator.template_fields, *PARAMS)

    def __init__(
        self,
        *,
        role: str = REPAIR,
        act: str | None = None,
        reason: str | None = None,
        transaction: str | None = None,
        cursors: str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_retries(kwargs.get("task_id"), kwargs, "a person sees what happened, and decides")
        super().__init__(**{**kwargs, "retries": 0})
        self.role, self.act, self.reason, self.transaction, self.cursors = role, act, reason, transaction, cursors

    def in_trouble(self, context: Context, error: BaseException, waits: bool, step: str = "") -> None:
        """Tells no one else: the ledger has the act with its result, and the pipeline runs as before.

        Args:
            context: Airflow's, of the task.
            error: why the act failed.
            waits: whether the step tries again by itself.
            step: the step's name.
        """

    def execute(self, context: Context) -> dict[str, Any]:
        """Acts."""
        from airflow_provider_slshudi.repair.actions import perform

        with self.told(context):
            refuse_unknown_params(context, PARAMS)
            asked = [context["params"].get(name) for name in PARAMS]
            own = [getattr(self, name) for name in PARAMS]
            act, reason, transaction, cursors = asked if any(asked) else own
            acts = {item.value: item for item in Act}
            if act not in acts or acts[act].role != self.role:
                mine = ", ".join(item.value for item in Act if item.role == self.role)
                other = f", which the pipeline's DAG of role {acts[act].role} does" if act in acts else ""
                raise ConfigError(
                    f"act: {act!r}{other}: this DAG does one of {mine}. Nothing was done",
                    source=PARAMS_SOURCE,
                    field="act",
                    value=act,
                )
            work, who = self.work(context), who_asked(context)
            target = {"transaction": transaction or None, "cursors": cursors or None}
            done = perform(work, AirflowRuns(context["ti"]), acts[act], who, str(reason or ""), **target)
            self.remember(work, self._made(work))
        self.log.info("%s, for %s: %s", act, who, done)
        return {"done": done}

    @staticmethod
    def _made(work: Work) -> Iterator[Transaction]:
        """The batch that this very run made, a replay's; those of other runs are told by the next settle."""
        from airflow_provider_slshudi.ledger.records import State
        from airflow_provider_slshudi.transaction.context import is_of

        batch = work.ledger.of_run(work.pipeline.name, work.run.dag_id, work.run.run_id, work.run.airflow)
        if batch is not None and batch.state is State.COMMITTED and is_of(work.ledger, batch, work.run):
            yield batch
