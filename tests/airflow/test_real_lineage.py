"""Lineage under a real scheduler: Airflow's OpenLineage provider writes its events into a file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.points import Point
from tests.airflows import SupervisedAirflow
from tests.crash.held import Holds, kill
from tests.local.sdk import by_ip
from tests.machine import ROOT, environment, event, write_pipeline
from tests.points import armed_in
from tests.residents import apart
from tests.waiting import until

pytestmark = pytest.mark.long

TAIL = "ad_events_tail"
SECRET = "never-to-be-told-0452"
SPARK = {"connection": "spark_default", "conf": {"spark.sql.shuffle.partitions": "4"}}
Json = dict[str, Any]


@dataclass
class Place:
    """One machine with everything on it."""

    airflow: SupervisedAirflow
    client: LogClient
    ledger: Ledger
    table: Path
    holds: Holds
    sent: Path

    def put(self, numbers: range) -> None:
        items = [LogItem(int(time.time()), contents=event(number)) for number in numbers]
        self.client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))

    def events(self) -> list[Json]:
        return [json.loads(line) for line in self.sent.read_text().splitlines()] if self.sent.exists() else []

    def told_by(self, task: str) -> list[Json]:
        """The events of a task's success that name a table."""
        return [
            found
            for found in self.events()
            if found["job"]["name"] == f"{TAIL}.{task}" and found["eventType"] == "COMPLETE" and found["outputs"]
        ]

    def committed(self) -> list[Transaction]:
        return self.ledger.last("ad_events", 10, State.COMMITTED)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("lineage")
    pipelines, table, ledger, sent = home / "pipelines", home / "lake" / "ad_events", home / "ledger.db", home / "sent"
    pipelines.mkdir()
    write_pipeline(pipelines / "ad_events.yaml", table, schedule="1h", spark=SPARK)
    with LocalSls(home / "sls", access_key_secret=SECRET) as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=2)
        engine = open_engine(f"sqlite:///{ledger}")
        migrate(engine)
        holds = Holds(home / "points")
        transport = json.dumps({"type": "file", "log_file_path": str(sent), "append": True})
        variables = environment(pipelines, ledger, server) | {
            **armed_in(holds.folder),
            IDLE: "60",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": transport,
            # For events of whole runs the provider forks the scheduler, which SQLite below Airflow does not bear.
            "AIRFLOW__OPENLINEAGE__EMISSION_POLICY": json.dumps(
                [{"scope": {}, "controls": {"emit_dag_events": False}}]
            ),
        }
        with apart(), SupervisedAirflow(home / "airflow", ROOT / "dags", variables) as airflow:
            airflow.wait_for_dag(TAIL)
            yield Place(airflow, client, Ledger(engine), table, holds, sent)


def test_each_committed_batch_is_told_whichever_task_commits_it(place: Place) -> None:
    place.put(range(300))
    place.airflow.pause(TAIL, False)
    (run,) = until("the first run is there", lambda: place.airflow.runs(TAIL))
    assert place.airflow.wait_for_run(TAIL, run["dag_run_id"], seconds=600) == "success"
    (told,) = until("the commit is told", lambda: place.told_by("batch.commit"))
    (batch,) = place.committed()
    (logs,), (table,) = told["inputs"], told["outputs"]
    assert (logs["namespace"], logs["name"]) == ("sls://ads", "events")
    assert logs["inputFacets"]["inputStatistics"]["rowCount"] == 300
    parts = logs["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert [part["identifier"] for part in parts] == [str(item) for item in place.ledger.ranges(batch.id)]
    assert (table["namespace"], table["name"]) == ("file", str(place.table))
    assert table["facets"]["version"]["datasetVersion"] == batch.instant
    written = table["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["size"], written["fileCount"]) == (300, size_of(place.table), files_of(place))
    assert {"name": "price", "type": "double"}.items() <= column(table, "price").items()
    (source,) = table["facets"]["columnLineage"]["fields"]["price"]["inputFields"]
    assert source["field"] == "price"

    # The commit's process dies before it commits: the next run's settle does, and tells.
    place.holds.arm(Point.COMMIT_DECIDED)
    place.put(range(300, 400))
    place.airflow.trigger(TAIL)
    held = psutil.Process(place.holds.wait(Point.COMMIT_DECIDED, seconds=600))
    kill(held)
    place.holds.release(Point.COMMIT_DECIDED)
    place.airflow.trigger(TAIL)
    (told,) = until("the settle is told", lambda: place.told_by("batch.settle"), seconds=600)
    newest = place.committed()[0]
    (table,) = told["outputs"]
    assert table["facets"]["version"]["datasetVersion"] == newest.instant
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 100
    place.airflow.pause(TAIL, True)


def test_the_tasks_between_name_no_dataset_and_a_commit_names_its_own_before_it_begins(place: Place) -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for sent in place.events():
        key = sent["job"]["name"].removeprefix(f"{TAIL}."), sent["eventType"]
        found.setdefault(key, []).append(len(sent["outputs"]))
    assert set(found["batch.commit", "START"]) == {1}
    for step in ("plan", "open", "append", "record"):
        assert set(found[f"batch.{step}", "COMPLETE"]) == {0}


def test_no_event_holds_a_secret(place: Place) -> None:
    assert SECRET not in place.sent.read_text()


def column(dataset: Json, name: str) -> Json:
    return next(dict(field) for field in dataset["facets"]["schema"]["fields"] if field["name"] == name)


def base_files(table: Path) -> list[Path]:
    return [file for file in table.rglob("*.parquet") if ".hoodie" not in file.parts]


def size_of(table: Path) -> int:
    return sum(file.stat().st_size for file in base_files(table))


def files_of(place: Place) -> int:
    return len(base_files(place.table))
