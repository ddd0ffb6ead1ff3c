"""A fleet: what the DAG is, and that one wrong pipeline is nobody else's trouble; under a real scheduler."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.dag.factories import fleet_dag
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.operators.fleet import SlsHudiLookOperator
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.points import Point
from tests.airflows import SupervisedAirflow
from tests.crash.held import Holds
from tests.deadmount import DEVICE, dead_mount
from tests.local.sdk import by_ip
from tests.machine import connection, environment, event, write_pipeline
from tests.points import armed_in
from tests.residents import apart
from tests.waiting import until

PROJECT = "ads"
GOOD, DYING, TABLELESS, REFUSED, WRONG = "good", "dying", "tableless", "refused", "wrong"
DAG_FILE = """
from airflow_provider_slshudi.dag.factories import fleet_dag

dag = fleet_dag("pipelines", schedule=None)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pipeline files `one` and `two`, and one that is wrong."""
    for name in ("one", "two"):
        write_pipeline(tmp_path / f"{name}.yaml", tmp_path / "lake" / name, name=name)
    (tmp_path / "wrong.yml").write_text("name: [", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no pipeline", encoding="utf-8")
    return tmp_path


def looked_at(dag: DAG) -> list[str]:
    look = dag.task_dict["look"]
    assert isinstance(look, SlsHudiLookOperator)
    return look.pipelines


def test_a_run_looks_each_minute_and_others_go_on_while_it_works(folder: Path) -> None:
    dag = fleet_dag(["one", "two"], tags=["mine"], default_args={"retries": 5})
    schedule: object = dag.schedule
    assert (dag.dag_id, schedule, dag.max_active_runs, dag.catchup) == ("fleet", timedelta(minutes=1), 16, False)
    assert dag.tags == {"mine", "slshudi", "slshudi:one", "slshudi:two"}, "by its tags the pages know whose DAG it is"
    assert looked_at(dag) == ["one", "two"]
    assert dag.task_dict["look"].downstream_task_ids == {"batch"}
    assert (dag.task_dict["look"].retries, dag.task_dict["batch"].retries) == (5, 0)
    assert "2: `one`, `two`" in str(dag.doc_md)
    endless = fleet_dag(["one"], "ads", schedule="@continuous")
    assert endless.max_active_runs == 1
    assert [getattr(found.task_dict["look"], "wait", None) for found in (dag, endless)] == [
        timedelta(),
        timedelta(minutes=10),
    ]
    twice: object = fleet_dag(["one"], schedule="30s").schedule
    assert twice == timedelta(seconds=30)


def test_a_folder_stands_for_all_files_in_it_and_none_is_read(folder: Path) -> None:
    dag = fleet_dag(str(folder))
    assert looked_at(dag) == [str(folder / name) for name in ("one.yaml", "two.yaml", "wrong.yml")]
    assert dag.tags == {"slshudi", "slshudi:one", "slshudi:two", "slshudi:wrong"}


@pytest.mark.parametrize(
    ("pipelines", "said"),
    [
        ([], "needs at least one"),
        ("nowhere", "nowhere is no folder with pipeline files"),
        (["one", "two", "pipelines/one.yaml"], "twice: one"),
    ],
)
def test_no_pipeline_or_the_same_one_twice_is_refused(folder: Path, pipelines: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fleet_dag(pipelines)


def test_a_folder_is_found_beside_the_dag_file(folder: Path) -> None:
    dags = folder / "dags"
    (dags / "pipelines").mkdir(parents=True)
    (folder / "one.yaml").rename(dags / "pipelines" / "one.yaml")
    (dags / "fleet.py").write_text(DAG_FILE, encoding="utf-8")
    bag = DagBag(str(dags))
    assert bag.import_errors == {}
    assert looked_at(bag.dags["fleet"]) == ["pipelines/one.yaml"], "wherever a worker has the DAG file"


@dataclass
class Place:
    """A fleet under a real Airflow, its logstores, ledger and tables."""

    airflow: SupervisedAirflow
    client: LogClient
    ledger: Ledger
    folder: Path
    holds: Holds
    put_: Counter[str]

    def put(self, *names: str, count: int = 20) -> None:
        for name in names:
            numbers = range(self.put_[name], self.put_[name] + count)
            items = [LogItem(int(time.time()), contents=event(number)) for number in numbers]
            self.client.put_logs(PutLogsRequest(PROJECT, f"logs-of-{name}", "ads", "10.0.0.1", items))
            self.put_[name] += count

    def run(self) -> tuple[str, dict[str, str]]:
        """A run to its end: its state, and that of each pipeline's task by the name that Airflow's pages show."""
        run = self.airflow.trigger("fleet")
        return self.airflow.wait_for_run("fleet", run), self.tasks(run)

    def tasks(self, run: str) -> dict[str, str]:
        found = self.airflow.get(f"dags/fleet/dagRuns/{run}/taskInstances")["task_instances"]
        return {task["rendered_map_index"]: task["state"] for task in found if task["map_index"] >= 0}

    def rows(self, name: str) -> int:
        return sum(item.rows or 0 for item in self.ledger.last(name, 100, State.COMMITTED))

    def troubles(self) -> dict[str, str]:
        return {trouble.pipeline: trouble.error for trouble in self.ledger.troubles()}

    def exact(self, name: str) -> bool:
        """Whether each of its logs is in its table once, and the ledger counts them so."""
        from hudi import HudiTableBuilder

        table = HudiTableBuilder.from_base_uri(f"file://{self.folder / 'lake' / name}").build()
        found = Counter(value for batch in table.read() for value in batch.column("event_id").to_pylist())
        logs = self.put_[name]
        return found == Counter(f"event-{number}" for number in range(logs)) and self.rows(name) == logs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("fleet")
    dags, ledger, holds = home / "dags", f"sqlite:///{home / 'ledger.db'}", Holds(home / "points")
    (dags / "pipelines").mkdir(parents=True)
    (dags / "fleet.py").write_text(DAG_FILE, encoding="utf-8")
    with LocalSls(home / "sls") as server:
        client = by_ip(server.connection())
        client.create_project(PROJECT, "tests")
        for name in (GOOD, DYING, TABLELESS, REFUSED):
            client.create_logstore(PROJECT, f"logs-of-{name}", ttl=7, shard_count=2)
            source = {"connection": "sls_default", "project": PROJECT, "logstore": f"logs-of-{name}", "start": "begin"}
            write_pipeline(dags / "pipelines" / f"{name}.yaml", home / "lake" / name, name=name, source=source)
        variables = {**environment(None, home / "ledger.db", server), IDLE: "60", **armed_in(holds.folder)}
        sls = server.connection()
        variables["AIRFLOW_CONN_SLS_OTHER"] = connection(
            "sls", host=sls.endpoint, login=sls.access_key_id, password="another"
        )
        engine = open_engine(ledger)
        migrate(engine)
        with apart(), SupervisedAirflow(home / "airflow", dags, variables) as airflow:
            airflow.wait_for_dag("fleet")
            airflow.pause("fleet", False)
            yield Place(airflow, client, Ledger(engine), home, holds, Counter())
        engine.dispose()


@pytest.mark.long
def test_each_pipeline_has_its_own_fate_and_the_next_run_mends_what_it_can(place: Place) -> None:
    everyone = (GOOD, DYING, TABLELESS, REFUSED)
    place.put(*everyone)
    assert place.run() == ("success", dict.fromkeys(everyone, "success"))
    assert all(place.exact(name) for name in everyone)

    # Nothing is new: no task but the look.
    assert place.run() == ("success", {})
    # Logs of one: a task of one.
    place.put(GOOD)
    assert place.run() == ("success", {GOOD: "success"})

    # One is slow, and other runs pass over it; then its task is killed while it commits.
    place.put(DYING)
    place.holds.arm(Point.COMMIT_DECIDED)
    slow = place.airflow.trigger("fleet")
    held = psutil.Process(place.holds.wait(Point.COMMIT_DECIDED))
    place.holds.release(Point.COMMIT_DECIDED)
    held.suspend()
    place.put(DYING, GOOD)
    assert place.run() == ("success", {GOOD: "success"})
    assert place.exact(GOOD)
    (prepared,) = place.ledger.live(DYING)
    assert (prepared.state, prepared.run_id) == (State.PREPARED, slow)
    held.kill()
    assert place.airflow.wait_for_run("fleet", slow) == "failed"
    assert [*place.tasks(slow).values()] == ["failed"]  # Airflow names a task once it has ended
    # Once it was not heard of for half a minute, the next run commits what it left, and reads what came meanwhile.
    until("another run decides", lambda: place.run() == ("success", {DYING: "success"}))
    assert place.ledger.get(prepared.id).state is State.COMMITTED
    assert place.exact(DYING)

    # A table goes, a key is refused, a file is wrong.
    file = place.folder / "dags" / "pipelines" / f"{REFUSED}.yaml"
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace("sls_default", "sls_other"), encoding="utf-8")
    wrong = file.with_name(f"{WRONG}.yaml")
    wrong.write_text("name: [", encoding="utf-8")
    other = file.with_name("another.yaml")
    other.write_text(before, encoding="utf-8")  # by the name of `refused`
    properties = place.folder / "lake" / TABLELESS / PROPERTIES
    aside = properties.rename(properties.with_suffix(".aside"))
    until("the wrong file is seen", lambda: f"`{WRONG}`" in place.airflow.get("dags/fleet/details")["doc_md"])
    place.put(*everyone)
    state, tasks = place.run()
    assert state == "failed"
    failed = dict.fromkeys((TABLELESS, REFUSED, WRONG, "another"), "failed")
    assert tasks == {**failed, GOOD: "success", DYING: "success"}
    assert place.exact(GOOD) and place.exact(DYING)
    of_files = dict.fromkeys((WRONG, "another"), "ConfigError")
    assert place.troubles() == {TABLELESS: "TimelineUnreadable", REFUSED: "SourceRefused", **of_files}

    # What was wrong is mended, and the next run goes on where each stood.
    file.write_text(before, encoding="utf-8")
    aside.rename(properties)
    wrong.unlink()
    other.unlink()
    until("the wrong file is gone", lambda: f"`{WRONG}`" not in place.airflow.get("dags/fleet/details")["doc_md"])
    assert place.run() == ("success", {TABLELESS: "success", REFUSED: "success"})
    assert all(place.exact(name) for name in everyone)
    assert place.troubles().keys() <= {WRONG, "another"}, "a file that is gone has no run that could end its trouble"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or not DEVICE.exists(), reason="a mount takes root, and FUSE")
def test_a_table_on_a_mount_that_never_answers_is_told_and_holds_up_nobody(place: Place) -> None:
    for name in (GOOD, DYING):
        place.put(name)
    state, tasks = place.run()
    assert (state, tasks[GOOD], tasks[DYING]) == ("success", "success", "success")
    place.put(GOOD, DYING)
    with dead_mount(place.folder / "lake" / DYING):
        state, tasks = place.run()
        assert (state, tasks[GOOD], tasks[DYING]) == ("failed", "success", "failed")
        assert place.exact(GOOD)
        assert place.troubles()[DYING] == "TableSilent"
    state, tasks = place.run()
    assert (state, tasks[DYING]) == ("success", "success")
    assert place.exact(DYING) and DYING not in place.troubles()
