"""The context of a task in a DAG run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

RUN = ("tail", "run-1")
NO_SUCH_RUN = {"status_code": 404, "message": "Server returned error", "detail": {"detail": {"reason": "not_found"}}}


def in_run(
    run: tuple[str, str] = RUN,
    states: dict[str, str] | None = None,
    conf: dict[str, Any] | None = None,
    answer: dict[str, Any] | None = None,
    **params: Any,
) -> Context:
    """A task's context; `states` are what Airflow knows of runs, others it does not know, and says so by `answer`."""

    def get_dagrun_state(dag_id: str, run_id: str) -> str:
        if (state := (states or {}).get(f"{dag_id}/{run_id}")) is None:
            detail = answer or NO_SUCH_RUN
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))
        return state

    dag_run = SimpleNamespace(dag_id=run[0], run_id=run[1], conf=conf)
    ti = SimpleNamespace(get_dagrun_state=get_dagrun_state)
    return cast(Context, {"dag_run": dag_run, "ti": ti, "params": params})
