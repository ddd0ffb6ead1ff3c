"""Notifiers and deadlines under a real scheduler and triggerer: who plugs one in is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.planning.ranges import Range
from tests.airflows import SupervisedAirflow
from tests.ledgers import ledger_in
from tests.machine import connection, write_pipeline
from tests.seen import committed, saw
from tests.waiting import until

pytestmark = pytest.mark.long

NOTIFIER = """
from pathlib import Path

from airflow.sdk import BaseNotifier


class ToFile(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, file, text, **kwargs):
        super().__init__(**kwargs)
        self.file, self.text = file, text

    def notify(self, context):
        with Path(self.file).open("a") as file:
            file.write(self.text + "\\n")

    async def async_notify(self, context):
        self.notify(context)
"""
DAGS = """
from datetime import timedelta

from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference
from to_file import ToFile

from airflow_provider_slshudi.dag.factories import tail_dag, watch_dag

watch = watch_dag(
    "ad_events",
    schedule=None,
    behind=timedelta(minutes=15),
    default_args={{"on_failure_callback": [ToFile(file="{file}", text="{{{{ dag.dag_id }}}}: {{{{ exception }}}}")]}},
)

# Nobody can keep it: so it is missed as soon as a run is there.
tail = tail_dag(
    "ad_events",
    schedule=None,
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=1),
        callback=AsyncCallback(
            ToFile, kwargs={{"file": "{file}", "text": "late: {{{{ dag_run.dag_id }}}}/{{{{ dag_run.dag_run_id }}}}"}}
        ),
    ),
)
"""


@dataclass
class Place:
    airflow: SupervisedAirflow
    ledger: Ledger
    told: Path

    def lines(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []

    def watch(self) -> str:
        """One run of the watch; gives its state."""
        return self.airflow.wait_for_run("ad_events_watch", self.airflow.trigger("ad_events_watch"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("watch")
    pipelines, dags, plugins, file = home / "pipelines", home / "dags", home / "plugins", home / "told"
    for folder in (pipelines, dags, plugins):
        folder.mkdir()
    write_pipeline(pipelines / "ad_events.yaml", home / "lake" / "ad_events")
    (plugins / "to_file.py").write_text(NOTIFIER)
    (dags / "mine.py").write_text(DAGS.format(file=file))
    with ledger_in(home / "ledger.db") as ledger:
        ledger.register("ad_events", "sls://ads/events", f"file://{home}/lake/ad_events")
        variables = {
            "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(pipelines),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
            "AIRFLOW_CONN_SLSHUDI_LEDGER": connection(
                "slshudi_ledger", schema=str(home / "ledger.db"), extra={"dialect": "sqlite"}
            ),
        }
        with SupervisedAirflow(home / "airflow", dags, variables, triggerer=True) as airflow:
            airflow.wait_for_dag("ad_events_watch")
            airflow.pause("ad_events_watch", False)
            yield Place(airflow, ledger, file)


def test_a_notifier_is_told_what_the_watch_found_and_nothing_while_all_is_well(place: Place) -> None:
    saw(place.ledger, "ad_events", unread=0)
    assert (place.watch(), place.lines()) == ("success", [])
    batch = committed(place.ledger, "ad_events", [Range(0, 0, 1_500, gap=True), Range(0, 1_500, 1_510)], "run-1")
    place.ledger.note_trouble("ad_events", "ad_events_tail", "run-2", "plan", "DataExpired", "gone", waits=False)
    assert place.watch() == "failed"
    told = until("the notifier has written", place.lines)
    assert told == [
        "ad_events_watch: ad_events: ad_events_tail failed at plan: DataExpired",
        f"ad_events: batch {batch.id} records 1,500 log groups as lost",
    ]


def test_a_run_that_misses_its_deadline_is_told_while_it_goes_on(place: Place) -> None:
    before = place.lines()
    place.airflow.wait_for_dag("ad_events_tail")
    place.airflow.pause("ad_events_tail", False)
    run = place.airflow.trigger("ad_events_tail")
    assert until("the deadline is told", lambda: place.lines()[len(before) :]) == [f"late: ad_events_tail/{run}"]
