"""A pipeline is back within a minute after deaths that Airflow notices after five, as Airflow comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import psutil
import pytest

from airflow_provider_slshudi.ledger.records import State, Transaction
from tests.airflow import deaths
from tests.airflow.deaths import TAIL, Place, die, place
from tests.waiting import until

pytestmark = pytest.mark.long

AIRFLOW_SECONDS = 300
"""When Airflow gives up a task whose worker died, or whose scheduler died and was started again at once."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("deaths"), deferrable=True) as found:
        found.put()
        until("the first batch is committed", found.committed, explain=found.explain)
        yield found
        found.airflow.pause(TAIL, True)


@pytest.mark.parametrize("kind", ["worker", "all"])
def test_the_next_run_decides_and_goes_on_before_airflow_notices(
    found: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[psutil.Process, Transaction]] = []
    kill = deaths.DEATHS[kind]

    def kills(place: Place, dying: Transaction) -> None:
        killed.append((deaths.step_of(dying), dying))
        kill(place, dying)
        killed[0][0].wait(20)  # with its worker: it could tell nobody how it ended

    monkeypatch.setitem(deaths.DEATHS, kind, kills)
    back = die(found, kind)
    ((_, dying),) = killed
    assert back.state is State.ABORTED
    # On a machine with nothing else to do it takes 35 to 45 seconds.
    assert back.planned < AIRFLOW_SECONDS / 2, back
    (taken,) = [event for event in found.ledger.events(dying.id) if event.what == "taken over"]
    ends = {run["dag_run_id"]: run["end_date"] for run in found.airflow.runs(TAIL)}
    end = ends[dying.run_id]
    assert end is None or datetime.fromisoformat(end.replace("Z", "+00:00")) > taken.at, "Airflow noticed first"


def test_every_log_is_there_once(found: Place) -> None:
    until(
        "all logs are committed",
        lambda: sum(batch.rows for batch in found.committed()) >= found.events,
        explain=found.explain,
    )
    assert Counter(found.rows()) == Counter(f"event-{number}" for number in range(found.events))
