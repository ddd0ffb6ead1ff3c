"""The DAGs of `dags/` under a real scheduler: local SLS server, real Spark, a ledger in SQLite."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.operators.events import extra_of
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work, run_of
from tests.airflows import SupervisedAirflow
from tests.crash.held import Holds, kill
from tests.local.sdk import by_ip
from tests.machine import ROOT, all_cursors, arguments_of, environment, event, write_pipeline
from tests.points import armed_in
from tests.residents import apart
from tests.waiting import Seen, until

pytestmark = pytest.mark.long
NOTELESS = version("apache-airflow").startswith("3.1.")

TAIL, BACKFILL, RECOVERY, VERIFY = (f"ad_events_{role}" for role in ("tail", "backfill", "recovery", "verify"))
SECRET = "never-to-be-seen-0451"
GROUP = 50
SPARK = {"connection": "spark_default", "conf": {"spark.sql.shuffle.partitions": "4"}}


@dataclass
class Place:
    """One machine with everything on it."""

    airflow: SupervisedAirflow
    client: LogClient
    server: LocalSls
    ledger_file: Path
    pipeline: Path
    table: Path
    holds: Holds
    events: int = 0
    left: list[psutil.Process] = field(default_factory=list)

    def put(self, count: int) -> None:
        for start in range(self.events, self.events + count, GROUP):
            numbers = range(start, min(start + GROUP, self.events + count))
            items = [LogItem(int(time.time()), contents=event(number)) for number in numbers]
            self.client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))
        self.events += count

    def ledger(self) -> Ledger:
        return Ledger(open_engine(f"sqlite:///{self.ledger_file}"))

    def committed(self) -> list[Transaction]:
        return self.ledger().last("ad_events", 100, State.COMMITTED)

    def wait_for_rows(self, rows: int) -> None:
        self.until(f"{rows} rows are committed", lambda: sum(item.rows for item in self.committed()) >= rows)

    def until(self, what: str, seen: Callable[[], Seen]) -> Seen:
        return until(what, seen, explain=self.explain)

    def explain(self) -> str:
        runs = {run["dag_run_id"]: (run["state"], self.airflow.tasks(TAIL, run["dag_run_id"])) for run in self.runs()}
        return f"{runs}; {self.airflow.directory}"

    def events_of(self, transaction: str) -> list[dict[str, Any]]:
        """The asset events that speak of a transaction."""
        events = self.airflow.get("assets/events", order_by="-timestamp", limit=100)["asset_events"]
        return [event for event in events if event["extra"].get("transaction") == transaction]

    def leads_to(self, run: str, task: str, links: Mapping[str, str | None]) -> bool:
        """Whether a task of the tail has these links."""
        found = self.airflow.get(f"dags/{TAIL}/dagRuns/{run}/taskInstances/{task}/links")["extra_links"]
        return bool(found == links)

    def all_cursors(self) -> dict[str, list[str]]:
        return all_cursors(self.ledger(), self.client, "ad_events", "ads", "events")

    def runs(self) -> list[dict[str, Any]]:
        return self.airflow.runs(TAIL)

    def table_rows(self) -> pa.Table:
        from hudi import HudiTableBuilder

        return pa.Table.from_batches(HudiTableBuilder.from_base_uri(f"file://{self.table}").build().read())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("place")
    pipelines, table, ledger = home / "pipelines", home / "lake" / "ad_events", home / "ledger.db"
    pipelines.mkdir()
    write_pipeline(pipelines / "ad_events.yaml", table, schedule="2s", spark=SPARK)
    with LocalSls(home / "sls", access_key_secret=SECRET) as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=2)
        # Made here, so that no look at it meets a database that a task is just making.
        migrate(open_engine(f"sqlite:///{ledger}"))
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        variables = environment(pipelines, ledger, server)
        variables |= {"AIRFLOW__CORE__TEST_CONNECTION": "Enabled", IDLE: "60"}
        with apart(), SupervisedAirflow(home / "airflow", ROOT / "dags", variables) as airflow:
            airflow.wait_for_dag(TAIL)
            place = Place(airflow, client, server, ledger, pipelines / "ad_events.yaml", table, Holds(home / "points"))
            yield place
        assert [process for process in place.left if process.is_running()] == []
        after = psutil.Process().children(recursive=True)
        assert [process for process in after if process.pid not in before] == []
    assert [process for process in psutil.process_iter() if str(home) in " ".join(arguments_of(process))] == []


def test_the_scheduler_holds_what_its_tasks_import_and_the_parser_of_dags_does_not(place: Place) -> None:
    maps = {name: Path(f"/proc/{pid}/maps").read_text() for name, pid in place.airflow.pids.items()}
    assert {name for name, text in maps.items() if "libarrow" in text} == {"scheduler"}


@pytest.mark.capability("a scheduler whose driver is killed")
def test_tail_with_a_killed_append_then_an_overlapping_backfill_gives_every_log_once(place: Place) -> None:
    airflow = place.airflow
    place.put(3000)
    airflow.pause(TAIL, False)
    place.wait_for_rows(3000)

    # The append is failed by hand while it runs; the next scheduled run decides what it left and reads it all again.
    place.put(500)
    killed, driver = wait_for_append(place)
    airflow.patch(f"dags/{TAIL}/dagRuns/{killed.run_id}/taskInstances/batch.append", {"new_state": "failed"})
    driver.wait(20)
    place.wait_for_rows(3500)
    assert place.ledger().get(killed.id).state is State.ABORTED
    # A run of its own for each batch.
    batches = place.committed()
    assert len({item.run_id for item in batches}) == len(batches) >= 2
    assert {item.dag_id for item in batches} == {TAIL}
    runs = {run["dag_run_id"]: run["state"] for run in place.runs()}
    assert runs.pop(killed.run_id) == "failed"
    assert set(runs.values()) <= {"success", "running", "queued"}, place.explain()

    # All that was ever written is asked for again; only what is missing is read, in two runs by the smaller limit.
    airflow.pause(TAIL, True)
    wait_until_idle(place)
    place.put(500)
    write_pipeline(place.pipeline, place.table, spark=SPARK, batch={"max_bytes": batches[0].bytes * 6 // 10})
    cursors = place.all_cursors()
    airflow.pause(BACKFILL, False)
    first = airflow.trigger(BACKFILL, {"cursors": cursors}, run_id="again")
    assert airflow.wait_for_run(BACKFILL, first) == "success", airflow.tasks(BACKFILL, first)
    assert airflow.wait_for_run(BACKFILL, "again.part2") == "success", airflow.tasks(BACKFILL, "again.part2")
    assert airflow.tasks(BACKFILL, "again.part2")["rest"] == "skipped"
    note = airflow.get(f"dags/{BACKFILL}/dagRuns/again.part2")["note"]
    assert note.startswith("Part 2 of backfill again: "), note
    backfilled = place.committed()[:2]
    assert [(item.kind, item.run_id) for item in backfilled] == [
        (Kind.BACKFILL, "again.part2"),
        (Kind.BACKFILL, "again"),
    ]
    assert sum(item.rows for item in backfilled) == 500

    rows = place.table_rows()
    assert rows.num_rows == 4000
    assert len(set(rows["_hoodie_record_key"].to_pylist())) == 4000
    assert set(rows["event_id"].to_pylist()) == {f"event-{number}" for number in range(4000)}

    # Nothing is left: the same, now by receive times, plans nothing and ends well.
    run = airflow.trigger(BACKFILL, {"from": "2026-01-01T00:00:00Z", "to": "2100-01-01T00:00:00+08:00"})
    assert airflow.wait_for_run(BACKFILL, run) == "success"
    states = airflow.tasks(BACKFILL, run)
    assert (states["batch.settle"], states["batch.plan"], states["batch.commit"]) == ("success", "skipped", "skipped")

    # Each commit told the table's asset what it brought.
    events = airflow.get("assets/events", limit=100)["asset_events"]
    assert Counter(event["extra"]["rows"] for event in events) == Counter(item.rows for item in place.committed())


@pytest.mark.capability("a backfill beside the tail")
def test_a_backfill_beside_the_running_tail_doubles_and_loses_nothing(place: Place) -> None:
    airflow = place.airflow
    write_pipeline(place.pipeline, place.table, schedule="2s", spark=SPARK)
    place.put(300)
    airflow.pause(TAIL, False)
    airflow.pause(BACKFILL, False)
    of_tail, driver = wait_for_append(place)
    # However slow the machine is, the tail appends until the backfill is planned.
    driver.suspend()
    try:
        place.put(300)
        # All of the logstore: committed batches, the one that the tail appends now, and what nobody has.
        cursors = place.all_cursors()
        run = airflow.trigger(BACKFILL, {"cursors": cursors}, run_id="beside")
        place.until(
            "the backfill is planned",
            lambda: any(item.run_id == "beside" for item in place.ledger().live(of_tail.pipeline)),
        )
    finally:
        driver.resume()
    assert airflow.wait_for_run(BACKFILL, run) == "success", airflow.tasks(BACKFILL, run)
    place.put(100)
    place.wait_for_rows(place.events)
    airflow.pause(TAIL, True)
    wait_until_idle(place)

    ledger = place.ledger()
    assert ledger.get(of_tail.id).state is State.COMMITTED
    beside = [item for item in place.committed() if item.run_id == "beside"]
    for item in beside:
        assert item.created < ledger.get(of_tail.id).changed, "it was planned before the tail's batch had committed"
    assert sum(item.rows for item in beside) == 300
    rows = place.table_rows()
    assert Counter(rows["event_id"].to_pylist()) == Counter(f"event-{number}" for number in range(place.events))
    assert len(set(rows["_hoodie_record_key"].to_pylist())) == place.events


def test_a_run_that_is_deleted_is_decided_by_the_next_and_a_cleared_task_says_once_what_it_found(place: Place) -> None:
    airflow = place.airflow
    place.put(100)
    airflow.pause(TAIL, False)
    killed, driver = wait_for_append(place)
    airflow.pause(TAIL, True)
    run = f"dags/{TAIL}/dagRuns/{killed.run_id}"
    airflow.patch(run, {"state": "failed"})
    driver.wait(20)
    assert airflow._session.delete(f"{airflow.url}/api/v2/{run}", timeout=30).status_code == 204
    airflow.pause(TAIL, False)
    # Not after the ten minutes that a run takes of which Airflow cannot tell.
    place.wait_for_rows(place.events)
    ledger, (committed, *_) = place.ledger(), place.committed()
    assert ledger.get(killed.id).state is State.ABORTED
    assert ledger.ranges(committed.id) == ledger.ranges(killed.id), "no later batch overtook it"
    assert airflow.wait_for_run(TAIL, committed.run_id) == "success"

    clear = {"dag_run_id": committed.run_id, "task_ids": ["batch.append"], "dry_run": False, "only_failed": False}
    airflow.post(f"dags/{TAIL}/clearTaskInstances", clear)
    told = f"transaction {committed.id} is COMMITTED, this step needs OPEN: the batch is in the table"
    place.until(
        "the cleared task has failed", lambda: airflow.tasks(TAIL, committed.run_id)["batch.append"] == "failed"
    )
    airflow.pause(TAIL, True)
    wait_until_idle(place)
    assert airflow.task_log(TAIL, committed.run_id, "batch.append").count(told) == 1

    # The links of a task that succeeded, and of one that failed: stored right after its state.
    pages = f"{airflow.url}/slshudi"
    for task, links in (
        ("batch.settle", {"Pipeline": f"{pages}/pipelines/ad_events"}),
        ("batch.append", {"Transaction": f"{pages}/transactions/{committed.id}", "Spark": None}),
    ):
        place.until(f"{task} leads to {links}", partial(place.leads_to, committed.run_id, task, links))


def test_wrong_params_of_a_backfill_are_refused_before_anything_is_planned(place: Place) -> None:
    airflow = place.airflow
    airflow.pause(BACKFILL, False)
    with pytest.raises(AirflowRefused, match="cursors"):
        airflow.trigger(BACKFILL, {"cursors": {"0": [1]}})
    run = airflow.trigger(BACKFILL, {})
    assert airflow.wait_for_run(BACKFILL, run) == "failed"
    assert "give `cursors`" in airflow.task_log(BACKFILL, run, "batch.plan")
    tries = airflow.get(f"dags/{BACKFILL}/dagRuns/{run}/taskInstances/batch.plan")["try_number"]
    assert tries == 1, "what no retry mends is not retried"


def test_recovery_by_hand_finds_nothing_left(place: Place) -> None:
    airflow = place.airflow
    airflow.pause(RECOVERY, False)
    run = airflow.trigger(RECOVERY)
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    run = airflow.trigger(RECOVERY, {"transactions": ["none-such"]})
    assert airflow.wait_for_run(RECOVERY, run) == "failed"
    assert "none-such" in airflow.task_log(RECOVERY, run, "recover")


def test_the_table_is_proven_by_a_task(place: Place) -> None:
    airflow = place.airflow
    airflow.pause(VERIFY, False)
    run = airflow.trigger(VERIFY, {"source": True})
    assert airflow.wait_for_run(VERIFY, run) == "success"
    assert "every log is in the table once" in airflow.task_log(VERIFY, run, "verify")


def test_a_killed_scheduler_is_started_anew_and_what_it_left_ends_with_all_else(place: Place) -> None:
    airflow = place.airflow
    assert airflow.revive() == [], "nothing has ended yet"
    # What is started from now on stops where the next test says, and starts no process that stays.
    airflow.environment |= {**armed_in(place.holds.folder), IDLE: "0"}
    scheduler = psutil.Process(airflow.pids["scheduler"])
    place.left = scheduler.children()
    assert place.left, "the executor's workers"
    scheduler.kill()
    scheduler.wait(20)
    assert airflow.revive() == ["scheduler"]
    assert airflow.pids["scheduler"] != scheduler.pid
    run = airflow.trigger(RECOVERY)
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    assert all(process.is_running() for process in place.left), "as a supervisor of single processes leaves them"


def test_a_batch_that_another_task_commits_has_one_event_all_the_same(place: Place) -> None:
    airflow, ledger = place.airflow, place.ledger()

    def commit_killed_at(point: Point) -> Transaction:
        place.holds.arm(point)
        place.put(100)
        held = psutil.Process(place.holds.wait(point))
        (found, *_) = ledger.last("ad_events", 1)
        kill(held)
        place.holds.release(point)
        return found

    airflow.pause(TAIL, False)
    # Before its commit: the next run's settle commits it. After: that settle finds it committed, and no event of it.
    for point, state in ((Point.COMMIT_DECIDED, State.PREPARED), (Point.COMMIT_CLEANED, State.COMMITTED)):
        killed = commit_killed_at(point)
        assert killed.state is state
        (event,) = place.until(f"{killed.id} has an event", partial(place.events_of, killed.id))
        assert event["extra"] == extra_of(ledger.get(killed.id))
        assert (event["name"], event["source_task_id"]) == ("hudi_ad_events", "batch.settle")
        assert event["source_run_id"] != killed.run_id
    place.wait_for_rows(place.events)
    airflow.pause(TAIL, True)
    wait_until_idle(place)

    # Two at once, by one task: each has its own.
    ended = [run["dag_run_id"] for run in place.runs() if run["state"] in ("success", "failed")][-2:]
    left = [leave_prepared(place, run) for run in ended]
    airflow.pause(RECOVERY, False)
    run, later = airflow.trigger(RECOVERY), airflow.trigger(RECOVERY)
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    for prepared in left:
        (event,) = place.events_of(prepared.id)
        assert event["extra"] == extra_of(ledger.get(prepared.id))
        assert (event["source_task_id"], event["source_run_id"]) == ("recover", run)

    # Whoever looks after that says nothing twice.
    assert airflow.wait_for_run(RECOVERY, later) == "success"
    assert [len(place.events_of(item.id)) for item in place.committed()] == [1] * len(place.committed())


def test_the_command_line_sees_the_same(place: Place) -> None:
    def slshudi(*arguments: str) -> Any:
        command = [sys.executable, "-m", "airflow_provider_slshudi.cli", *arguments, "--json"]
        done = subprocess.run(command, env=place.airflow.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert slshudi("plan", "ad_events") == {"pipeline": "ad_events", "ranges": []}
    listed = slshudi("ledger", "show")
    assert sum(item["rows"] for item in listed if item["state"] == "COMMITTED") == place.events
    report = slshudi("verify", "ad_events", "--source")
    assert (report["ok"], report["rows"]) == (True, place.events)
    assert report["totals"]["compared"] > 0 and report["totals"]["not_comparable"] == 0
    assert slshudi("recover", "ad_events") == {"pipeline": "ad_events", "decided": [], "left": []}
    committed = len(place.committed())
    assert slshudi("ledger", "rebuild", "ad_events") == {
        "pipeline": "ad_events",
        "committed": committed,
        "rolled_back": [],
    }
    assert (len(place.committed()), sum(item.rows for item in place.committed())) == (committed, place.events)
    assert slshudi("plan", "ad_events")["ranges"] == []


def test_the_forms_of_connections_test_what_is_filled_in(place: Place, tmp_path: Path) -> None:
    def pressed(variable: str, **changes: Any) -> tuple[bool, str]:
        stored = json.loads(place.airflow.environment[f"AIRFLOW_CONN_{variable}"])
        extra = json.dumps({**stored.pop("extra", {}), **changes.pop("extra", {})})
        filled_in = {**stored, **changes}
        answer = place.airflow.post("connections/test", {"connection_id": "of_a_form", "extra": extra, **filled_in})
        return answer["status"], answer["message"]

    works, message = pressed("SLS_DEFAULT", extra={"project": "ads", "logstore": "events"})
    assert works and "log:GetCursorOrData is allowed" in message
    works, message = pressed("SLS_DEFAULT", extra={"project": "ads", "logstore": "none-such"})
    assert not works and "check the logstore's name" in message
    works, message = pressed("SLS_DEFAULT", password="wrong")
    assert not works and "check the access key secret" in message
    works, message = pressed("SLSHUDI_LEDGER")
    assert works and "one was taken and given back" in message
    works, message = pressed("SLSHUDI_LEDGER", schema=str(tmp_path / "none" / "ledger.db"))
    assert not works and "mkdir -p" in message


def test_no_log_of_airflow_holds_the_secret(place: Place) -> None:
    logs = [*place.airflow.directory.rglob("*.log")]
    assert len(logs) > 20
    told = [file for file in logs if SECRET in file.read_text(errors="replace")]
    assert told == []
    # The jobs' output did arrive in them.
    assert any(re.search(r"instant \d+: \d+ rows in \d+ files", file.read_text(errors="replace")) for file in logs)


def leave_prepared(place: Place, run: str) -> Transaction:
    """A batch of new logs that a run of the tail recorded, and did not commit."""
    place.put(50)
    pipeline, launcher = load_pipeline(place.pipeline), SubprocessLauncher("local[2]")
    service = LogService(place.server.connection(), pipeline.source.project, pipeline.source.logstore)
    ledger = place.ledger()
    # By its name: this Airflow's tasks judge no other Airflow's run by theirs of the same id.
    tail = Run(TAIL, run, run_of(ledger, place.committed()[-1]).airflow)
    work = Work(pipeline, ledger, launcher, lambda: service, tail)
    planned = plan.tail(work)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    steps.append(work, planned.id, planned.token)
    return steps.record(work, planned.id, planned.token)


def wait_for_append(place: Place) -> tuple[Transaction, psutil.Process]:
    """The transaction whose append is seen running, and its driver."""

    def appending() -> tuple[Transaction, psutil.Process] | None:
        for live in place.ledger().live("ad_events"):
            for process in psutil.Process().children(recursive=True):
                arguments = arguments_of(process)
                if f"slshudi append ad_events {live.instant}" in arguments and arguments[0].endswith("java"):
                    return live, process
        return None

    found = place.until("an append runs", appending)
    assert found is not None
    return found


def wait_until_idle(place: Place) -> None:
    """A paused DAG ends the tasks that are under way; those that are scheduled stay so, but for the newest look's."""
    looks = [False]

    def idle() -> bool:
        states = {state for run in place.runs()[-3:] for state in place.airflow.tasks(TAIL, run["dag_run_id"]).values()}
        looks.append(not states & {"queued", "running"})
        time.sleep(0.5)
        return all(looks[-4:])

    place.until("no task is queued or running", idle)
