"""The steps of a transaction after settle: plan, open, append, record, commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import Asset, BaseOperatorLink

from airflow_provider_slshudi.exceptions import BatchUnderWay, JobFailed, TransientError
from airflow_provider_slshudi.handover.batch_files import ROUTE
from airflow_provider_slshudi.operators.base import SCHEDULED, PipelineOperator, refuse_retries, refuse_test, slices
from airflow_provider_slshudi.operators.events import complete_partitions, extra_of
from airflow_provider_slshudi.operators.lineage import CommitLineageTask
from airflow_provider_slshudi.plugins.links import SparkLink, TransactionLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work


class SlsHudiPlanOperator(PipelineOperator):
    """Pins the ranges of the tail's next batch; skips the run if there is nothing new, or another run was first.

    Returns `{"transaction": id, "token": fencing token}`, which the following steps take as `transaction`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        wait: how long it waits for news where there is nothing new, and keeps its slot. For DAGs whose runs follow one
            another at once, and would start for nothing again and again.
    """

    operator_extra_links = (TransactionLink(),)
    transaction: Any = None

    def __init__(self, *, wait: timedelta = timedelta(), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def execute(self, context: Context) -> dict[str, Any]:
        """Plans."""
        refuse_test()
        with self.told(context):
            work = self.work(context)
            transaction, more = self.plan(work, context)
        if transaction is None:
            raise AirflowSkipException("there is nothing new to read")
        self.log.info("planned transaction %s", transaction.id)
        planned = self.transaction = {"transaction": transaction.id, "token": transaction.token, **more}
        return planned

    def plan(self, work: Work, context: Context) -> tuple[Transaction | None, dict[str, Any]]:
        """The transaction, None if there is nothing to read; and further items of the result."""
        from airflow_provider_slshudi.transaction.news import await_news
        from airflow_provider_slshudi.transaction.plan import tail

        # What the other run leaves is read by the next one of the schedule; who triggered a run waits for its batch.
        scheduled = getattr(context["dag_run"], "run_type", None) == SCHEDULED
        try:
            planned = tail(work, in_turn=scheduled)
            for seconds in slices(self, context, self.wait):
                if planned is not None:
                    break
                await_news([work], seconds)
                planned = tail(work, in_turn=scheduled)
            return planned, {}
        except BatchUnderWay as error:
            if not scheduled:
                raise
            raise AirflowSkipException(f"another run was first: {error}") from None


class _Step(PipelineOperator):
    """A step of a planned transaction.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        transaction: the result of the plan operator.
    """

    template_fields = (*PipelineOperator.template_fields, "transaction")
    operator_extra_links: Collection[BaseOperatorLink] = (TransactionLink(),)

    passing: tuple[type[Exception], ...] = ()
    """Errors that the next run gets over, although this one failed."""

    def __init__(self, *, transaction: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.transaction = transaction

    def execute(self, context: Context) -> Any:
        """Runs the step."""
        planned = self.transaction
        if not isinstance(planned, Mapping) or {"transaction", "token"} - planned.keys():
            raise AirflowFailException(
                f"`transaction` is {planned!r}, not what the plan task of this run returns: clear the run from its "
                "settle task on"
            )
        with self.told(context, self.passing):
            return self.step(self.work(context), str(planned["transaction"]), int(planned["token"]), context)

    def step(self, work: Work, id_: str, token: int, context: Context) -> Any:
        """The step itself; its result becomes the XCom."""
        raise NotImplementedError


class _DriverStep(_Step):
    """A step that starts a Spark driver.

    It has no retries, and refuses an argument that asks for some: the driver of a failed try may still be alive. So the
    next run's settle fences it off and then decides the transaction.
    """

    passing = (TransientError, JobFailed)

    def __init__(self, **kwargs: Any) -> None:
        reason = "the driver of a failed try may still be alive, so the next run's settle fences it off and decides"
        refuse_retries(kwargs.get("task_id"), kwargs, reason)
        super().__init__(**{**kwargs, "retries": 0})


class SlsHudiOpenOperator(_DriverStep):
    """Opens the transaction's instant on Hudi's timeline; returns it."""

    def step(self, work: Work, id_: str, token: int, context: Context) -> str:
        """Opens."""
        from airflow_provider_slshudi.transaction.steps import open_instant

        return open_instant(work, id_, token)


class SlsHudiAppendOperator(_DriverStep):
    """Runs the Spark job that pulls the ranges and writes base files."""

    operator_extra_links = (TransactionLink(), SparkLink())

    def step(self, work: Work, id_: str, token: int, context: Context) -> None:
        """Appends."""
        from airflow_provider_slshudi.transaction.steps import append

        append(work, id_, token)


class SlsHudiRecordOperator(_Step):
    """Phase one: checks the append's manifest and makes manifest and offsets durable.

    Returns rows, raw bytes, per column how many values did not fit, how many logs went to the quarantine, how many the
    pipeline's condition left out if it has one, the rows of each route's table if there are routes, and the failed
    checks that only warn.
    """

    def step(self, work: Work, id_: str, token: int, context: Context) -> dict[str, Any]:
        """Records."""
        from airflow_provider_slshudi.transaction.steps import record

        recorded = record(work, id_, token)
        manifest = recorded.manifest or {}
        misfits = dict(manifest.get("misfits", {}))
        quarantined = manifest.get("quarantined") or 0
        if misfits:
            self.log.warning(
                "values that do not fit their columns: %s; %s of the logs went to the quarantine, %s were dropped, the "
                "other values became NULL. For example %s",
                misfits,
                quarantined,
                manifest.get("dropped", 0),
                "; ".join(manifest.get("examples", [])),
            )
        warnings = dict(manifest.get("warnings", {}))
        figures = {"rows": recorded.rows, "bytes": recorded.bytes, "misfits": misfits}
        filtered = manifest.get("filtered")
        if filtered is not None:
            self.log.info("`where` left out %d logs, and kept %d", filtered, recorded.rows)
            figures["filtered"] = filtered
        if routed := manifest.get("routed"):
            figures["routed"] = {key.removeprefix(ROUTE): rows for key, rows in routed.items()}
        return {**figures, "quarantined": quarantined, "warnings": warnings}


class SlsHudiCommitOperator(CommitLineageTask, _DriverStep):
    """Phase two: commits the instant; returns the transaction's id, kind, instant, rows, bytes, place and partitions.

    Each outlet that is an asset gets an event with this result as its `extra`. If the task dies before that, the next
    settle tells the asset (`operators.events`).
    """

    def step(self, work: Work, id_: str, token: int, context: Context) -> dict[str, Any]:
        """Commits."""
        from airflow_provider_slshudi.transaction.steps import commit

        committed = commit(work, id_, token)
        complete_partitions(work)
        self.remember(work, [committed])
        self.say_if_late(work, committed)
        done = extra_of(committed)
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = done
        return done
