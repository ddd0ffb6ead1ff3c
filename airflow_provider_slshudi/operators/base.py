"""What operators and sensors share: from a task's context to `protocol`'s functions, and errors as Airflow takes them.

`protocol` and what it brings (SDK, SQLAlchemy, pyarrow) is imported when a task runs, never when a DAG is parsed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError

from airflow_provider_slshudi.exceptions import TerminalError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.protocol.settle import Ended, Settled
    from airflow_provider_slshudi.protocol.work import Run, Work

_log = logging.getLogger(__name__)
_OVER = ("success", "failed")


class PipelineTask:
    """A task of one pipeline; mixed into operators and sensors."""

    pipeline: str
    _work: Work | None = None

    def work(self, context: Context) -> Work:
        """What the pipeline's steps work with; raises as `work_of`."""
        from airflow_provider_slshudi.hooks.work import work_of
        from airflow_provider_slshudi.protocol.work import Run

        run = context["dag_run"]
        self._work = work_of(self.pipeline, Run(run.dag_id, run.run_id))
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
    """Lets what no retry mends fail the task at once; every other error is left to Airflow's retries."""
    try:
        yield
    except TerminalError as error:
        raise AirflowFailException(str(error)) from error


def run_ended(context: Context) -> Ended:
    """Asks Airflow whether a DAG run has ended.

    Of a run that this Airflow does not know, be it deleted or of another Airflow with the same ledger, it cannot tell.
    """

    def ended(run: Run) -> bool | None:
        try:
            state = context["ti"].get_dagrun_state(run.dag_id, run.run_id)
        except AirflowRuntimeError as error:
            _log.warning("Airflow does not tell the state of run %s: %s", run, error)
            return None
        return state in _OVER

    return ended


def as_xcom(settled: list[Settled]) -> list[dict[str, Any]]:
    """What was settled, as JSON."""
    return [
        {"transaction": item.transaction, "instant": item.instant, "decision": item.decision.value} for item in settled
    ]
