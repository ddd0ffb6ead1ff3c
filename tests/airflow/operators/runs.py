"""The context of a task in a DAG run, and what Airflow answers it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import AssetAlias, Context
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import AssetEventsResult, ErrorResponse, GetAssetEventByAsset
from airflow.sdk.execution_time.context import OutletEventAccessors

RUN = ("tail", "run-1")
NO_SUCH_RUN = {"status_code": 404, "message": "Server returned error", "detail": {"detail": {"reason": "not_found"}}}


def in_run(
    run: tuple[str, str] = RUN,
    states: dict[str, str] | None = None,
    conf: dict[str, Any] | None = None,
    answer: dict[str, Any] | None = None,
    began: datetime | None = None,
    run_type: str = "scheduled",
    tasks: dict[str, str] | None = None,
    **params: Any,
) -> Context:
    """A task's context; `states` are what Airflow knows of runs, others it does not know, and says so by `answer`;
    `tasks` the states of the tasks of each.

    The run began just now, unless `began` says when.
    """

    def get_dagrun_state(dag_id: str, run_id: str) -> str:
        if (state := (states or {}).get(f"{dag_id}/{run_id}")) is None:
            detail = answer or NO_SUCH_RUN
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))
        return state

    start = began or datetime.now(timezone.utc)
    told = {"start_date": start, "run_after": start, "run_type": run_type}
    dag_run = SimpleNamespace(dag_id=run[0], run_id=run[1], conf=conf, **told)
    ti = SimpleNamespace(
        get_dagrun_state=get_dagrun_state,
        get_task_states=lambda dag_id, run_ids: {run: tasks or {} for run in run_ids},
        get_first_reschedule_date=lambda context: None,
        task_id="task",
        try_number=1,
        max_tries=2,
    )
    return cast(Context, {"dag_run": dag_run, "ti": ti, "params": params, "outlet_events": OutletEventAccessors()})


def added(context: Context, alias: AssetAlias) -> list[dict[str, Any]]:
    """The `extra` of each event that a task has added through an alias, for Airflow to take once it succeeds."""
    return [dict(event.extra) for event in context["outlet_events"][alias].asset_alias_events]


class AssetEvents:
    """The events of an asset that Airflow has, as a task's supervisor tells of them."""

    def __init__(self) -> None:
        self.answers, self.asked = True, 0
        self._events: list[tuple[datetime, dict[str, Any]]] = []
        self.names = list[str | None]()
        """Of the assets that tasks asked for; None of what is no asset."""

    def add(self, extra: dict[str, Any], ago: timedelta = timedelta()) -> None:
        """Airflow has taken an event."""
        self._events.append((datetime.now(timezone.utc) - ago, extra))

    def send(self, msg: GetAssetEventByAsset) -> AssetEventsResult:
        """Answers a task."""
        self.asked += 1
        self.names.append(getattr(msg, "name", None))
        if not self.answers:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 502}))
        found = [event for event in self._events if msg.after is None or event[0] >= msg.after]
        found.sort(key=lambda event: event[0], reverse=not msg.ascending)
        asset = {"name": msg.name, "uri": msg.uri, "group": "asset"}
        return AssetEventsResult.model_validate(
            {
                "asset_events": [
                    {"id": number, "timestamp": at, "extra": extra, "asset": asset, "created_dagruns": []}
                    for number, (at, extra) in enumerate(found[: msg.limit])
                ]
            }
        )
