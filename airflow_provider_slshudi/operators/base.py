"""Helpers of operators and sensors: from a task's context to `protocol`'s functions, and errors as Airflow takes them.

A task imports `protocol` and its dependencies (SDK, SQLAlchemy, pyarrow) when it runs, never when a DAG is parsed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError

from airflow_provider_slshudi.exceptions import ConfigError, TerminalError
from airflow_provider_slshudi.links import PipelineLink, SparkLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.protocol.settle import Ended, Settled
    from airflow_provider_slshudi.protocol.work import Run, Work

_log = logging.getLogger(__name__)
_OVER = ("success", "failed")
_IDENTITY = "slshudi_airflow"


class PipelineTask:
    """A task of one pipeline; mixed into operators and sensors."""

    operator_extra_links: Collection[BaseOperatorLink] = (PipelineLink(),)
    pipeline: str
    _work: Work | None = None

    def work(self, context: Context) -> Work:
        """The pipeline, ledger, Spark and log service of a step; raises as `work_of`."""
        from airflow_provider_slshudi.hooks.work import work_of
        from airflow_provider_slshudi.protocol.work import Run

        def show(page: str) -> None:
            try:
                context["ti"].xcom_push(SparkLink().xcom_key, page)
            except Exception as error:
                # No reason to stop the driver.
                _log.warning("Airflow does not take the link to %s: %s", page, error)

        run = context["dag_run"]
        self._work = work_of(self.pipeline, Run(run.dag_id, run.run_id), show)
        return self._work

    def on_kill(self) -> None:
        """Ends the Spark driver that runs for this task."""
        from airflow_provider_slshudi.hooks.spark import SparkLauncher

        if self._work is not None and isinstance(self._work.launcher, SparkLauncher):
            self._work.launcher.kill()


class PipelineOperator(PipelineTask, BaseOperator):
    """An operator of one pipeline.

    Args:
        pipeline: a pipeline's name or file.
    """

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline


@contextmanager
def terminal_fails() -> Iterator[None]:
    """Fails the task at once on an error that no retry mends; leaves every other error to Airflow's retries."""
    try:
        yield
    except TerminalError as error:
        _log.debug("%r", error, exc_info=True)
        # Without its cause, which says the same: a task's log shows every error of a chain with its text.
        raise AirflowFailException(str(error)) from None


def refuse_unknown_params(context: Context, known: Collection[str]) -> None:
    """Refuses params of a run that nobody reads: a misspelt name would count as left out.

    Raises:
        ConfigError: the run was given a name that is neither a param of the DAG nor `known`.
    """
    given = getattr(context["dag_run"], "conf", None) or {}
    names = {*getattr(context.get("dag"), "params", ()), *known}
    for name in sorted(given.keys() - names):
        raise ConfigError(
            f"the run was given {name!r}, but the DAG's params are {', '.join(sorted(names))}. Nothing was done; "
            "trigger the DAG again with one of these",
            source="DAG params",
            field=name,
            value=given[name],
        )


def run_ended(context: Context) -> Ended:
    """Returns a function that asks Airflow whether a DAG run has ended.

    A run that this Airflow made and does not know any more was deleted, so it has ended. The function cannot tell of an
    unknown run that this Airflow did not make: one of another Airflow with the same ledger, or of the command line.
    """

    def ended(run: Run) -> bool | None:
        try:
            state = context["ti"].get_dagrun_state(run.dag_id, run.run_id)
        except AirflowRuntimeError as error:
            if run.airflow and _is_unknown_run(error) and run.airflow == this_airflow():
                _log.info("run %s was deleted", run)
                return True
            _log.warning("Airflow does not tell the state of run %s: %s", run, error)
            return None
        return state in _OVER

    return ended


def _is_unknown_run(error: AirflowRuntimeError) -> bool:
    """Whether the API server answered that there is no such run; a wrong address gives 404 too, without this reason."""
    answer: Any = error.error.detail or {}
    told = (answer.get("detail") or {}).get("detail")
    return answer.get("status_code") == 404 and isinstance(told, dict) and told.get("reason") == "not_found"


def this_airflow() -> str:
    """The name by which this Airflow recognises its own runs, made on the first call; empty if Airflow refuses it.

    It is an Airflow variable, since no id of an installation reaches a task.
    """
    from airflow.sdk import Variable

    try:
        if not Variable.get(_IDENTITY, default=""):
            Variable.set(_IDENTITY, uuid.uuid4().hex, description="The name of this Airflow in slshudi's ledger")
        return str(Variable.get(_IDENTITY, default=""))
    except Exception as error:
        # No reason to stop: without the name, decisions wait for heartbeats instead.
        _log.warning("Airflow gives no variable %s: %s", _IDENTITY, error)
        return ""


def as_xcom(settled: list[Settled]) -> list[dict[str, Any]]:
    """The settled transactions as JSON."""
    return [
        {"transaction": item.transaction, "instant": item.instant, "decision": item.decision.value} for item in settled
    ]
