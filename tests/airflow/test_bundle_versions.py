"""A git bundle under a real scheduler: a run goes on with the pipeline of the version that it began with."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest
from hudi import HudiTableBuilder

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.points import Point
from tests.airflow.gitbundle import git
from tests.airflows import SupervisedAirflow
from tests.crash.held import Holds
from tests.local.sdk import by_ip
from tests.machine import ROOT, environment, event, write_pipeline
from tests.points import armed_in
from tests.residents import apart
from tests.waiting import until

pytestmark = pytest.mark.long

GIT, LOCAL = "tests.airflow.gitbundle.GitBundle", "airflow.dag_processing.bundles.local.LocalDagBundle"
TAIL = "ad_events_tail"
DAG_FILE = """from airflow_provider_slshudi import tail_dag

dag = tail_dag("ad_events", schedule=None)
"""
COLUMNS = [{"name": "event_id"}, {"name": "event_time", "type": "timestamp", "format": "millis"}]
LOGS = 50


def put(client: LogClient, first: int) -> None:
    items = [LogItem(1_767_225_600 + number, contents=event(number)) for number in range(first, first + LOGS)]
    client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))


def write_bundle(folder: Path, table: Path, **changes: object) -> None:
    """A DAG file in a folder of a team, and its pipeline beside it."""
    (folder / "team" / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "team" / "tail.py").write_text(DAG_FILE, encoding="utf-8")
    write_pipeline(folder / "team" / "pipelines" / "ad_events.yaml", table, **changes)


def commit(repository: Path) -> str:
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "-m", "a version")
    return git(repository, "rev-parse", "HEAD")


def rows(table: Path) -> pa.Table:
    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(f"file://{table}").build().read())


def test_a_run_goes_on_with_the_pipeline_that_it_began_with(tmp_path: Path) -> None:
    repository, table, holds = tmp_path / "repository", tmp_path / "lake" / "ad_events", Holds(tmp_path / "points")
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    write_bundle(repository, table, columns=COLUMNS)
    first = commit(repository)
    # A second bundle has a DAG file of the same name, and a pipeline file of its own.
    write_bundle(tmp_path / "local", tmp_path / "lake" / "clicks", name="clicks")
    bundles = [
        {"name": "git", "classpath": GIT, "kwargs": {"repository": str(repository)}},
        {"name": "local", "classpath": LOCAL, "kwargs": {"path": str(tmp_path / "local")}},
    ]
    with LocalSls(tmp_path / "sls") as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=1)
        told = environment(None, tmp_path / "ledger.db", server) | {
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(tmp_path / "bundles"),
            **armed_in(holds.folder, ROOT),
            IDLE: "60",
        }
        with apart(), SupervisedAirflow(tmp_path / "airflow", tmp_path / "no-dags", told) as airflow:
            for dag, bundle in ((TAIL, "git"), ("clicks_tail", "local")):
                airflow.wait_for_dag(dag)
                known = airflow.get(f"dags/{dag}")
                assert (known["bundle_name"], known["relative_fileloc"]) == (bundle, "team/tail.py")

            put(client, 0)
            holds.arm(Point.PLAN_BEGUN)
            airflow.pause(TAIL, False)
            airflow.trigger(TAIL, run_id="first")
            planning = partial(airflow.tasks, TAIL, "first")
            until("the first run has planned", lambda: holds.claimed(Point.PLAN_BEGUN), explain=planning)

            # Only the pipeline's file differs: one more column.
            write_bundle(repository, table, columns=[*COLUMNS, {"name": "experiment"}])
            second = commit(repository)
            until("the second version landed", lambda: airflow.get(f"dags/{TAIL}")["bundle_version"] == second)
            holds.release(Point.PLAN_BEGUN)
            assert airflow.wait_for_run(TAIL, "first") == "success", airflow.tasks(TAIL, "first")
            assert "experiment" not in rows(table).column_names

            put(client, LOGS)
            airflow.trigger(TAIL, run_id="second")
            assert airflow.wait_for_run(TAIL, "second") == "success", airflow.tasks(TAIL, "second")
            versions = {run["dag_run_id"]: run["bundle_version"] for run in airflow.runs(TAIL)}
            assert versions == {"first": first, "second": second}
            found = {row["event_id"]: row["experiment"] for row in rows(table).to_pylist()}
            assert found == {f"event-{number}": None if number < LOGS else "b" for number in range(2 * LOGS)}
