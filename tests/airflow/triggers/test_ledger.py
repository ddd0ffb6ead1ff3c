"""What wakes tasks behind a table: a commit, a complete partition; seconds later, at the cost of two short queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.triggers.base import BaseTrigger

from airflow_provider_slshudi import ChangesTrigger, PartitionTrigger, SlsHudiPartitionsOperator
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.triggers.ledger import LOOK_SECONDS
from tests.airflow.operators.runs import in_run
from tests.commits import HOUR, T0, Committing

GO_ON, LOOK_AGAIN = "it may go on", "it is time to look again"


def fired(waiting: BaseTrigger, meanwhile: Callable[[], Any] = lambda: None) -> tuple[str, float]:
    """What it said, and the seconds that it took after something happened."""

    async def run() -> tuple[str, float]:
        event = asyncio.ensure_future(anext(aiter(waiting.run())))
        await asyncio.sleep(0.2)
        meanwhile()
        at = time.monotonic()
        return str((await event).payload), time.monotonic() - at

    return asyncio.run(run())


def changes(seconds: float = 30.0) -> ChangesTrigger:
    return ChangesTrigger("slshudi_ledger", "ad_events", "report", seconds)


@pytest.fixture
def reported(hourly: Committing) -> Committing:
    """With a consumer that has confirmed all."""
    hourly.ledger.subscribe("ad_events", "report", Feed.COMMITS, 0, 60)
    return hourly


def test_a_commit_wakes_it_soon_and_nothing_else_does(reported: Committing) -> None:
    assert fired(changes(LOOK_SECONDS + 0.5))[0] == LOOK_AGAIN
    said, seconds = fired(changes(), lambda: reported.commit(0))
    assert said == GO_ON and seconds < LOOK_SECONDS + 1


def test_a_consumer_that_is_forgotten_wakes_it_so_that_the_task_makes_it_anew(reported: Committing) -> None:
    assert fired(changes(), lambda: reported.ledger.forget("ad_events", "report"))[0] == GO_ON


def test_a_complete_partition_wakes_it(hourly: Committing) -> None:
    def complete() -> None:
        hourly.look(HOUR + 300)
        SlsHudiPartitionsOperator(task_id="partitions", pipeline="ad_events").execute(in_run(("tail", "run-1")))

    hourly.commit(0)
    assert fired(PartitionTrigger("slshudi_ledger", "ad_events", T0, LOOK_SECONDS + 0.5))[0] == LOOK_AGAIN
    assert fired(PartitionTrigger("slshudi_ledger", "ad_events", T0, 30.0), complete)[0] == GO_ON


def test_a_ledger_that_is_away_wakes_nobody(reported: Committing, monkeypatch: pytest.MonkeyPatch) -> None:
    reported.commit(0)
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    assert fired(changes(LOOK_SECONDS + 0.5))[0] == LOOK_AGAIN


@pytest.mark.parametrize(
    "made",
    [changes(12.5), PartitionTrigger("slshudi_ledger", "ad_events", T0, 12.5)],
    ids=["changes", "partition"],
)
def test_airflow_keeps_it_and_makes_it_anew(made: BaseTrigger) -> None:
    path, arguments = made.serialize()
    kept = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(arguments))
    assert type(made)(**kept).serialize() == (path, arguments)


def test_a_look_costs_little(reported: Committing) -> None:
    """Of a triggerer with a thousand such waits less than one core."""
    looks, before = 200, time.process_time()
    for _ in range(looks):
        assert not changes().is_over(reported.ledger)
    assert (time.process_time() - before) / looks < LOOK_SECONDS / 1000
