"""What Airflow tells of DAG runs, and the name by which it recognises its own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from airflow_provider_slshudi.settings import AIRFLOW_NAME

if TYPE_CHECKING:
    from airflow_provider_slshudi.transaction.context import Run

_log = logging.getLogger(__name__)
_OVER = ("success", "failed")
_LOCAL = ("LocalExecutor", "airflow.executors.local_executor.LocalExecutor")


class AirflowRuns:
    """What Airflow tells of DAG runs, as `transaction.dangling.Ended`.

    Args:
        ti: a task instance, or its class, by which Airflow is asked.
    """

    def __init__(self, ti: Any) -> None:
        self._ti = ti

    def __call__(self, run: Run) -> bool | None:
        """Whether a run has ended; one that this Airflow made and does not know any more was deleted, so it has.

        None of a run that is not known to be this Airflow's: another one with the same ledger may have one of the
        same id, and the command line has none.
        """
        if run.airflow != this_airflow():
            _log.info("run %s is not known to be one of this Airflow's, which cannot tell of it", run)
            return None
        try:
            state = self._ti.get_dagrun_state(run.dag_id, run.run_id)
        except AirflowRuntimeError as error:
            if run.airflow and _is_unknown_run(error):
                _log.info("run %s was deleted", run)
                return True
            _log.warning("Airflow does not tell the state of run %s: %s", run, error)
            return None
        return state in _OVER

    def shown_step(self, run: Run, steps: Collection[str]) -> str:
        """The one of these steps whose task a worker has, and the task's state; empty where Airflow knows of none.

        LocalExecutor has a worker free for every task that it queues, and never notices one that dies before its task
        runs. Empty where the run has more than one batch: whose step a task is, is not known. So of a run that no
        Airflow is known to have made: another one's of the same id may be at that step.
        """
        if not run.airflow:
            return ""
        try:
            states = self._ti.get_task_states(dag_id=run.dag_id, run_ids=[run.run_id])
        except AirflowRuntimeError as error:
            _log.warning("Airflow does not tell the tasks of run %s: %s", run, error)
            return ""
        named = [(task.rpartition(".")[2], state) for task, state in states.get(run.run_id, {}).items()]
        step_states = [(step, state) for step, state in named if step in steps]
        with_worker = ("running", "queued") if conf.get("core", "executor") in _LOCAL else ("running",)
        shown = [f"{step} {state}" for step, state in step_states if state in with_worker]
        return ", ".join(shown) if len(step_states) == len(dict(step_states)) else ""


def _is_unknown_run(error: AirflowRuntimeError) -> bool:
    """Whether the API server answered that there is no such run; a wrong address gives 404 too, without this reason."""
    answer: Any = error.error.detail or {}
    detail = (answer.get("detail") or {}).get("detail")
    return answer.get("status_code") == 404 and isinstance(detail, dict) and detail.get("reason") == "not_found"


def this_airflow() -> str:
    """The name by which this Airflow recognises its own runs; empty where it does not tell it.

    It is an Airflow variable, since no id of an installation reaches a task. It is read again once it is made: of
    several that make it at once the last one counts.
    """
    from airflow.sdk import Variable

    try:
        airflow_name = Variable.get(AIRFLOW_NAME, default="")
        if not airflow_name and _is_unknown_variable(AIRFLOW_NAME):
            Variable.set(AIRFLOW_NAME, uuid.uuid4().hex, description="The name of this Airflow in slshudi's ledger")
            airflow_name = Variable.get(AIRFLOW_NAME, default="")
        return str(airflow_name or "")
    except Exception as error:
        # No reason to stop: without the name, decisions wait for heartbeats instead.
        _log.warning("Airflow gives no variable %s: %s", AIRFLOW_NAME, error)
    return ""


def _is_unknown_variable(name: str) -> bool:
    """Whether there is no such variable; `Variable.get` gives its default as well where the API server failed."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable

    answer = task_runner.SUPERVISOR_COMMS.send(GetVariable(key=name))
    return isinstance(answer, ErrorResponse) and answer.error == ErrorType.VARIABLE_NOT_FOUND
