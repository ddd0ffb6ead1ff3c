"""DAGs behind complete partitions under a real scheduler: one run for each, one more after late logs, none lost."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from textwrap import dedent

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessor
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.downstream.completeness import complete
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Completion, State
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.airflows import SupervisedAirflow
from tests.commits import HOUR
from tests.local.sdk import by_ip
from tests.machine import environment, write_hourly
from tests.residents import apart
from tests.waiting import until

pytestmark = pytest.mark.long
TAIL, REPORT, HOURS = "ad_events_tail", "report", "hours"
KEYED = hasattr(OutletEventAccessor, "add_partitions")
"""Whether this Airflow gives events partitions' keys."""
DAGS = """
    import json
    from datetime import datetime
    from pathlib import Path

    from airflow.sdk import DAG, task
    from airflow_provider_slshudi import (
        SlsHudiChangesOperator, SlsHudiConfirmOperator, partitions_asset, tail_dag
    )

    tail = tail_dag("ad_events")
    of_consumer = {{"pipeline": "ad_events", "start_date": datetime(2026, 1, 1)}}

    with DAG("report", schedule=[partitions_asset("ad_events")], max_active_runs=1, catchup=False) as report:
        taken = SlsHudiChangesOperator(task_id="take", consumer="report", of="partitions", **of_consumer)

        @task
        def write(changes):
            with Path({file!r}).open("a") as lines:
                for item in changes["partitions"]:
                    lines.write(json.dumps([item["partition"], item["times"], item["rows"]]) + "\\n")

        confirm = SlsHudiConfirmOperator(task_id="confirm", changes=taken.output, **of_consumer)
        write(taken.output) >> confirm
"""
KEYED_DAG = """
    from airflow.sdk import PartitionedAssetTimetable

    schedule = PartitionedAssetTimetable(assets=partitions_asset("ad_events"))
    with DAG("hours", schedule=schedule, catchup=False) as hours:

        @task
        def look():
            pass

        look()
"""


@dataclass
class Place:
    """One machine with everything on it."""

    airflow: SupervisedAirflow
    client: LogClient
    server: LocalSls
    ledger: Ledger
    pipeline: Path
    lines: Path
    count: int = 0

    def put(self, hours_ago: int, count: int = 10) -> str:
        """Logs of an hour that is over; gives its partition."""
        now = int(time.time())
        at = now - hours_ago * HOUR
        numbers = range(self.count, self.count + count)
        contents = [[("event_id", f"event-{number}"), ("event_time", str(at * 1000))] for number in numbers]
        items = [LogItem(now, contents=content) for content in contents]
        self.client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))
        self.count += count
        return Periods("hour").at(at).value

    def completions(self) -> list[Completion]:
        return self.ledger.completions("ad_events", 0, 1_000_000)

    def reported(self) -> Counter[tuple[str, int, int]]:
        """What the consumer wrote of each partition."""
        text = self.lines.read_text() if self.lines.exists() else ""
        return Counter((value, times, rows) for value, times, rows in map(json.loads, text.splitlines()))

    def keys(self) -> Counter[str]:
        return Counter(str(run["partition_key"]) for run in self.airflow.runs(HOURS))

    def wait_for(self, value: str, times: int) -> None:
        """Until the partition is complete so often, and both DAGs know it."""

        def is_known() -> bool:
            told = sum(item.value == value for item in self.completions()) == times
            reported = any((value, times) == line[:2] for line in self.reported())
            return told and reported and (not KEYED or self.keys()[value] >= times)

        until(f"{value} is complete {times} times", is_known, explain=self.explain)

    def explain(self) -> str:
        runs = {run["dag_run_id"]: self.airflow.tasks(TAIL, run["dag_run_id"]) for run in self.airflow.runs(TAIL)[-3:]}
        return f"{self.completions()}; {self.reported()}; {runs}; {self.airflow.directory}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("place")
    dags, pipelines, ledger_file = home / "dags", home / "pipelines", home / "ledger.db"
    dags.mkdir()
    pipelines.mkdir()
    lines = home / "lines.json"
    text = dedent(DAGS).format(file=str(lines)) + (dedent(KEYED_DAG) if KEYED else "")
    (dags / "behind.py").write_text(text, encoding="utf-8")
    write_hourly(pipelines / "ad_events.yaml", home / "lake" / "ad_events", "1s", schedule="2s")
    engine = open_engine(f"sqlite:///{ledger_file}")
    migrate(engine)
    with LocalSls(home / "sls") as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=2)
        variables = environment(pipelines, ledger_file, server)
        with apart(), SupervisedAirflow(home / "airflow", dags, variables) as airflow:
            for dag_id in (TAIL, REPORT, *([HOURS] if KEYED else [])):
                airflow.wait_for_dag(dag_id)
                airflow.pause(dag_id, dag_id == TAIL)
            yield Place(airflow, client, server, Ledger(engine), pipelines / "ad_events.yaml", lines)


def seconds_until_runs(place: Place) -> list[float]:
    """From the commit that completed a partition to the start of the run of its key."""
    committed = {item.place: item.changed for item in place.ledger.last("ad_events", 100, State.COMMITTED)}
    starts = {run["partition_key"]: datetime.fromisoformat(run["start_date"]) for run in place.airflow.runs(HOURS)}
    found = {item.value: committed[item.place] for item in place.completions() if item.rows}
    return [(starts[value] - at).total_seconds() for value, at in found.items()]


@pytest.mark.capability("a DAG behind complete partitions")
def test_each_complete_hour_starts_a_run_and_one_more_after_late_logs(place: Place) -> None:
    first, second = place.put(3), place.put(2)
    place.airflow.pause(TAIL, False)
    for value in (first, second):
        place.wait_for(value, 1)
    if KEYED:
        print(f"seconds from the commit to the run: {median(seconds_until_runs(place)):.1f}")
    place.put(3)
    place.wait_for(first, 2)
    assert place.reported()[first, 2, 20] == 1
    expected = Counter((item.value, item.times, item.rows) for item in place.completions())
    until("all is reported", lambda: place.reported() == expected, explain=place.explain)
    if KEYED:
        of_hours = Counter(item.value for item in place.completions())
        until("each has its run", lambda: place.keys() == of_hours, explain=place.explain)


@pytest.mark.skipif(version("apache-airflow").startswith("3.1."), reason="tasks of Airflow 3.1 cannot ask for events")
def test_an_event_that_died_with_its_task_is_sent_by_the_next_run(place: Place) -> None:
    """A run's tasks up to the one that completes the hour, which dies there: Airflow never has its event."""
    place.airflow.pause(TAIL, True)
    tails = place.airflow.runs
    until(
        "the tail is idle",
        lambda: all(run["state"] in ("success", "failed") for run in tails(TAIL)),
        explain=place.explain,
    )
    value = place.put(4)
    pipeline = load_pipeline(place.pipeline)
    service = LogService(place.server.connection(), pipeline.source.project, pipeline.source.logstore)
    work = Work(pipeline, place.ledger, SubprocessLauncher("local[2]"), lambda: service, Run(TAIL, "died"))
    planned = plan.tail(work)
    assert planned is not None
    of_batch = work, planned.id, planned.token
    steps.open_instant(*of_batch)
    steps.append(*of_batch)
    steps.record(*of_batch)
    steps.commit(*of_batch)
    assert value in [item.value for item in complete(place.ledger, pipeline)]
    assert value not in [line[0] for line in place.reported()]

    before = len(place.airflow.runs(TAIL))
    place.airflow.pause(TAIL, False)
    place.wait_for(value, 1)
    ended = [run for run in place.airflow.runs(TAIL)[before:] if run["state"] == "success"]
    assert len(ended) <= 2, "the first run that follows has sent it"
    if KEYED:
        assert place.keys()[value] == 1
