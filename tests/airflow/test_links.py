"""Links of tasks: where they lead, and where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_slshudi.dag.factories import tail_dag
from airflow_provider_slshudi.dag.operations import backfill_dag, maintenance_dag, recovery_dag, verify_dag
from airflow_provider_slshudi.operators.batch import SlsHudiAppendOperator, SlsHudiPlanOperator
from airflow_provider_slshudi.operators.repair import SlsHudiRecoverOperator
from airflow_provider_slshudi.plugins.links import PipelineLink, SparkLink, TransactionLink, web_address
from airflow_provider_slshudi.transaction.context import Run

KEY: Any = None
"""The task's key: no link depends on it."""


@pytest.fixture(autouse=True)
def base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/here/")


def names(task: Any) -> set[str]:
    return {link.name for link in task.operator_extra_links}


def test_each_task_leads_to_its_transaction_or_its_pipeline(pipelines: Path) -> None:
    for make in (tail_dag, backfill_dag, recovery_dag, verify_dag, maintenance_dag):
        for task in make("ad_events").tasks:
            step = task.task_id.rpartition(".")[2]
            of_batch = step in ("plan", "open", "append", "record", "commit")
            assert ("Transaction" if of_batch else "Pipeline") in names(task), task.task_id
            assert ("Spark" in names(task)) == (step in ("append", "verify", "cluster", "compact")), task.task_id
    assert "Triggered DAG" in names(backfill_dag("ad_events").get_task("rest"))


def test_a_step_leads_to_the_page_of_its_transaction() -> None:
    step = SlsHudiAppendOperator(task_id="append", pipeline="ad_events", transaction={"transaction": "t-1", "token": 1})
    assert TransactionLink().get_link(step, ti_key=KEY) == "https://airflow.example/here/slshudi/transactions/t-1"


@pytest.mark.parametrize("planned", [None, "{{ not rendered }}"])
def test_a_step_of_nothing_leads_nowhere(planned: object) -> None:
    step = SlsHudiAppendOperator(task_id="append", pipeline="ad_events", transaction=planned)
    assert TransactionLink().get_link(step, ti_key=KEY) == ""
    plan = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events")
    assert TransactionLink().get_link(plan, ti_key=KEY) == ""


def test_a_pipeline_is_named_by_its_name_however_its_file_is(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pipelines / "ad_events.yaml").rename(pipelines / "events.yaml")
    for given in ("events", str(pipelines / "events.yaml")):
        task = SlsHudiRecoverOperator(task_id="recover", pipeline=given)
        link = PipelineLink().get_link(task, ti_key=KEY)
        assert link == "https://airflow.example/here/slshudi/pipelines/ad_events"
    gone = SlsHudiRecoverOperator(task_id="recover", pipeline="gone")
    assert PipelineLink().get_link(gone, ti_key=KEY) == ""
    monkeypatch.delenv("AIRFLOW__API__BASE_URL")
    assert PipelineLink().get_link(task, ti_key=KEY) == "/slshudi/pipelines/ad_events"


def test_a_drivers_page_is_gone_with_the_driver() -> None:
    task = SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events")
    assert SparkLink().get_link(task, ti_key=KEY) == ""


@pytest.mark.parametrize(
    ("text", "leads"),
    [
        ("http://10.0.0.1:4040", True),
        ("https://driver.example:4040/jobs/", True),
        ("javascript:alert(document.cookie)", False),
        ("JavaScript://driver.example/%0aalert(1)", False),
        ("data:text/html,<script>alert(1)</script>", False),
        ("http://driver.example\njavascript:alert(1)", False),
        ("//driver.example", False),
        ("http://", False),
        ("http://[::1", False),
    ],
)
def test_a_drivers_page_is_linked_only_where_it_is_a_web_address(
    text: str, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert web_address(text) == (text if leads else "")
    pushed: dict[str, str] = {}
    shows: list[Callable[[str], None]] = []

    def work_of(pipeline: str, run: Run, file: Path | None, show: Callable[[str], None], _: object) -> Any:
        shows.append(show)
        raise InterruptedError

    monkeypatch.setattr("airflow_provider_slshudi.hooks.work.work_of", work_of)
    task = SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events")
    instance = SimpleNamespace(xcom_push=pushed.__setitem__)
    context: Any = {"ti": instance, "dag_run": SimpleNamespace(dag_id="d", run_id="r")}
    with pytest.raises(InterruptedError):
        task.work(context)
    shows[0](text)
    assert pushed == {SparkLink().xcom_key: text if leads else ""}
