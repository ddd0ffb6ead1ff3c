"""DAGs behind complete partitions under a real scheduler: a run for each, one more after late logs, no event lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessor

from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.downstream.completeness import complete
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Completion
from tests.airflows import SupervisedAirflow
from tests.commits import HOUR, Committing, hour
from tests.machine import connection, write_hourly
from tests.waiting import until

pytestmark = pytest.mark.long
PARTITIONS, REPORT, HOURS = "partitions", "report", "hours"
KEYED = hasattr(OutletEventAccessor, "add_partitions")
"""Whether this Airflow gives events partitions' keys."""
DAGS = """
    import json
    from datetime import datetime, timedelta
    from pathlib import Path

    from airflow.sdk import DAG, AssetAlias, task
    from airflow_provider_slshudi import (
        SlsHudiChangesOperator, SlsHudiConfirmOperator, SlsHudiPartitionsOperator, partitions_asset
    )

    of_all = {{"start_date": datetime(2026, 1, 1), "catchup": False, "default_args": {{"pipeline": "ad_events"}}}}
    asset = partitions_asset("ad_events")

    with DAG("partitions", schedule=timedelta(seconds=2), max_active_runs=3, **of_all) as partitions:
        # The last task of a tail, which follows each commit, and each run without one.
        SlsHudiPartitionsOperator(task_id="partitions", outlets=[asset, AssetAlias("completed")])

    with DAG("report", schedule=[asset], max_active_runs=1, **of_all) as report:
        taken = SlsHudiChangesOperator(task_id="take", consumer="report", of="partitions")

        @task
        def write(changes):
            with Path({file!r}).open("a") as lines:
                for item in changes["partitions"]:
                    lines.write(json.dumps([item["partition"], item["times"], item["rows"]]) + "\\n")

        write(taken.output) >> SlsHudiConfirmOperator(task_id="confirm", changes=taken.output)
"""
KEYED_DAG = """
    from airflow.sdk import PartitionedAssetTimetable

    with DAG("hours", schedule=PartitionedAssetTimetable(assets=asset), **of_all) as hours:

        @task
        def look():
            pass

        look()
"""


@dataclass
class Place:
    """An Airflow, and a ledger whose pipeline commits."""

    airflow: SupervisedAirflow
    committing: Committing
    lines: Path

    def completions(self) -> list[Completion]:
        return self.committing.ledger.completions("ad_events", 0, 1_000)

    def reported(self) -> Counter[tuple[str, int, int]]:
        """What the consumer wrote of each partition."""
        text = self.lines.read_text() if self.lines.exists() else ""
        return Counter((value, times, rows) for value, times, rows in map(json.loads, text.splitlines()))

    def keys(self) -> Counter[str]:
        """How many runs each partition has."""
        return Counter(str(run["partition_key"]) for run in self.airflow.runs(HOURS))

    def wait_for(self, *completed: tuple[str, int, int]) -> None:
        """Until these are complete, and both DAGs know it."""
        of_hours = Counter(value for value, *_ in completed)

        def is_known() -> bool:
            done = Counter((item.value, item.times, item.rows) for item in self.completions())
            reported = done == self.reported() == Counter(completed)
            return reported and (not KEYED or self.keys() == of_hours)

        until(f"{completed} are complete and reported once", is_known, explain=self.explain)

    def states(self) -> set[str | None]:
        """Of the newest tasks that tell of partitions."""
        newest = self.airflow.get(f"dags/{PARTITIONS}/dagRuns", order_by="-run_after", limit=10)["dag_runs"]
        return {self.airflow.tasks(PARTITIONS, run["dag_run_id"]).get("partitions") for run in newest}

    def explain(self) -> str:
        keys = self.keys() if KEYED else "no keys"
        return f"{self.completions()}; {self.reported()}; {keys}; {self.airflow.directory}"


@contextmanager
def running(home: Path) -> Iterator[Place]:
    """A place whose DAGs are parsed and not paused."""
    dags, pipelines, ledger_file, lines = (home / name for name in ("dags", "pipelines", "ledger.db", "lines.json"))
    dags.mkdir()
    pipelines.mkdir()
    text = dedent(DAGS).format(file=str(lines)) + (dedent(KEYED_DAG) if KEYED else "")
    (dags / "behind.py").write_text(text, encoding="utf-8")
    write_hourly(pipelines / "ad_events.yaml", home / "lake" / "ad_events")
    engine = open_engine(f"sqlite:///{ledger_file}")
    migrate(engine)
    committing = Committing(Ledger(engine), load_pipeline(pipelines / "ad_events.yaml"))
    variables = {
        "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(pipelines),
        "AIRFLOW_CONN_SLSHUDI_LEDGER": connection(
            "slshudi_ledger", schema=str(ledger_file), extra={"dialect": "sqlite"}
        ),
    }
    with SupervisedAirflow(home / "airflow", dags, variables) as airflow:
        for dag_id in (REPORT, *([HOURS] if KEYED else []), PARTITIONS):
            airflow.wait_for_dag(dag_id)
            airflow.pause(dag_id, False)
        yield Place(airflow, committing, lines)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.mark.capability("a DAG behind complete partitions")
def test_each_complete_hour_starts_a_run_and_one_more_after_late_logs(place: Place) -> None:
    first, second = (hour(0), 1, 5), (hour(1), 1, 5)
    place.committing.commit(0, 1, rows=5)
    place.committing.look(2 * HOUR + 300)
    place.wait_for(first, second)

    place.committing.commit(0, rows=2)
    place.committing.look(2 * HOUR + 400)
    place.wait_for(first, second, (hour(0), 2, 7))


@pytest.mark.skipif(version("apache-airflow").startswith("3.1."), reason="tasks of Airflow 3.1 cannot ask for events")
def test_an_event_that_died_with_its_task_is_sent_by_the_next_run(place: Place) -> None:
    airflow = place.airflow
    airflow.pause(PARTITIONS, True)
    until("no task is at it", lambda: not place.states() & {"queued", "running"}, explain=place.explain)
    reported = [*place.reported()]
    place.committing.commit(2, rows=3)
    place.committing.look(3 * HOUR + 300)
    # As a task does that dies before its success, with which Airflow would have the event.
    assert [item.value for item in complete(place.committing.ledger, place.committing.pipeline)] == [hour(2)]
    airflow.pause(PARTITIONS, False)
    place.wait_for(*reported, (hour(2), 1, 3))
