"""The documentation that DAGs and tasks carry: there for each, and about this pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG

from airflow_provider_slshudi.dag.factories import micro_batch, tail_dag, watch_dag
from airflow_provider_slshudi.dag.operations import backfill_dag, maintenance_dag, recovery_dag, verify_dag

FACTORIES = (tail_dag, backfill_dag, recovery_dag, verify_dag, maintenance_dag, watch_dag)
Changed = Callable[..., None]


@pytest.fixture
def changed(pipelines: Path) -> Changed:
    """Replaces fields of the pipeline's file, those of `table` one by one."""
    file = pipelines / "ad_events.yaml"

    def change(table: dict[str, Any] | None = None, **fields: Any) -> None:
        described = yaml.safe_load(file.read_text(encoding="utf-8"))
        described["table"] |= table or {}
        file.write_text(yaml.safe_dump({**described, **fields}), encoding="utf-8")

    return change


def pages(dag: DAG) -> dict[str, str]:
    """The page of each task by its id, and the DAG's own by the DAG's."""
    return {str(dag.dag_id): dag.doc_md or "", **{task.task_id: task.doc_md or "" for task in dag.tasks}}


def test_every_dag_and_every_task_has_a_page_about_its_pipeline(changed: Changed, tmp_path: Path) -> None:
    hours = {"by": "event_time", "column": "event_time", "every": "hour", "name": "event_hour", "lateness": "5m"}
    changed(table={"partition": hours}, catalog={"metastore": "thrift://metastore:9083"}, batch={"drain": "1h"})
    found = [pages(make("ad_events")) for make in FACTORIES]
    changed(table={"type": "merge_on_read", "upsert": {"record_key": "event_id", "buckets": 2}})
    found += [pages(maintenance_dag("ad_events"))]
    tasks = {name.rpartition(".")[2] for dag in found for name in dag if not name.startswith("ad_events")}
    assert tasks == {
        *("settle", "plan", "open", "append", "record", "commit", "sync", "drain", "partitions", "rest"),
        *("dangling", "recover", "verify", "watch", "clean", "archive", "cluster", "compact"),
    }
    for name, page in (item for dag in found for item in dag.items()):
        assert "the pipeline `ad_events`" in page.splitlines()[0], name
        assert "sls://ads/events" in page and f"{tmp_path}/lake/ad_events" in page, name
        for part in (
            "Reads",
            "Writes",
            "Keeps",
            "What its states mean.",
            "Retrying, clearing, marking.",
            "If it fails.",
        ):
            assert f"**{part}**" in page, (name, part)
        assert "{" not in page and "Whom to ask" not in page, name


def test_a_page_says_when_its_dag_runs(pipelines: Path) -> None:
    assert "- **Runs**: every 0:00:30\n" in str(tail_dag("ad_events").doc_md)
    assert "- **Runs**: @continuous\n" in str(tail_dag("ad_events", schedule="@continuous").doc_md)
    assert "- **Runs**: by hand\n" in str(recovery_dag("ad_events").doc_md)


def test_a_backfills_plan_speaks_of_params(pipelines: Path) -> None:
    tail, backfill = (pages(make("ad_events"))["batch.plan"] for make in (tail_dag, backfill_dag))
    assert "the params name" in backfill and "the params name" not in tail


def test_the_owner_is_whom_to_ask(pipelines: Path) -> None:
    for make in FACTORIES:
        found = pages(make("ad_events", default_args={"owner": "data-platform {us}"}))
        assert all("**Whom to ask.** data-platform {us}, the owner." in page for page in found.values())


def test_ones_own_page_wins(pipelines: Path) -> None:
    dag = tail_dag("ad_events", doc_md="# Mine", default_args={"doc_md": "# My task"})
    assert set(pages(dag).values()) == {"# Mine", "# My task"}


def test_the_tasks_of_a_batch_in_a_dag_of_ones_own_have_their_pages(pipelines: Path) -> None:
    with DAG("mine") as dag:
        micro_batch("ad_events", group_id="first")
    assert dag.doc_md is None
    assert all("`ad_events`" in str(task.doc_md) for task in dag.tasks)
