"""The task that watches a pipeline, over a real ledger."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_slshudi.dag.factories import watch_dag
from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.operators.watch import SlsHudiWatchOperator
from airflow_provider_slshudi.transaction.context import Work
from tests.airflow.operators.runs import in_run
from tests.machine import ROOT
from tests.seen import saw


def watch(**limits: Any) -> SlsHudiWatchOperator:
    return SlsHudiWatchOperator(task_id="watch", pipeline="ad_events", **limits)


def test_it_fails_with_all_that_is_to_be_told(work: Work) -> None:
    work.ledger.note_trouble("ad_events", "ad_events_tail", "run-1", "plan", "DataExpired", "gone", waits=False)
    saw(work.ledger, "ad_events", unread=0, seconds_ago=3_000)
    with pytest.raises(AirflowFailException) as failed:
        watch(behind=timedelta(minutes=15)).execute(in_run())
    first, second = str(failed.value).splitlines()
    assert first == "ad_events: ad_events_tail failed at plan: DataExpired"
    assert second.startswith("ad_events: up to 50 min")


def test_it_succeeds_where_all_is_well_and_leaves_no_trace(work: Work) -> None:
    saw(work.ledger, "ad_events", unread=0)
    watch(behind=timedelta(minutes=15)).execute(in_run())
    work.ledger.note_trouble("ad_events", "ad_events_tail", "run-1", "plan", "DataExpired", "gone", waits=False)
    before = work.ledger.troubles()
    with pytest.raises(AirflowFailException):
        watch().execute(in_run())
    assert work.ledger.troubles() == before, "or it would find itself"


def test_a_ledger_that_it_cannot_read_is_an_error_of_its_own(pipelines: Path, ledger_connection: Path) -> None:
    with pytest.raises(LedgerError):
        watch().execute(in_run())


def test_the_dag_takes_limits_and_anybodys_notifier(pipelines: Path) -> None:
    class Silent(BaseNotifier):
        def notify(self, context: Any) -> None:
            raise AssertionError("nobody runs this")

    dag = watch_dag("ad_events", expires=timedelta(hours=6), default_args={"on_failure_callback": [Silent()]})
    (task,) = dag.tasks
    assert isinstance(task, SlsHudiWatchOperator)
    assert (task.behind, task.dangling, task.expires) == (None, None, timedelta(hours=6))
    assert [type(notifier) for notifier in task.on_failure_callback] == [Silent]


def test_the_example_has_the_limits_of_the_alerts() -> None:
    rules = yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    alerts = {rule["alert"]: rule["expr"].split()[-1] for rule in rules}
    task = DagBag(str(ROOT / "dags" / "slshudi_watch.py")).dags["ad_events_watch"].get_task("watch")
    assert isinstance(task, SlsHudiWatchOperator)
    limits = {"SlshudiLate": task.behind, "SlshudiDangling": task.dangling, "SlshudiExpires": task.expires}
    assert limits == {alert: timedelta(seconds=int(alerts[alert])) for alert in limits}
