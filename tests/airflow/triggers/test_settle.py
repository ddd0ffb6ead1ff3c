"""The trigger by itself: it wakes when what it waits for is over, and blocks no one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.work import work_of
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.transaction.dangling import Awaited
from airflow_provider_slshudi.transaction.settle import register
from airflow_provider_slshudi.triggers import ledger as triggers
from airflow_provider_slshudi.triggers.ledger import SettleTrigger

GO_ON, LOOK_AGAIN = "it may go on", "it is time to look again"


@pytest.fixture
def begun(pipelines: Path, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch) -> Transaction:
    """A batch that somebody works on."""
    monkeypatch.setattr(triggers, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", lambda dag_id, run_id: "running")
    work = work_of("ad_events", Run("tail", "run-1"))
    register(work)
    return work.ledger.begin("ad_events", Kind.TAIL, [Range(0, 0, 5)], "tail", "run-1")


def trigger(what: Awaited, seconds: float = 30.0) -> SettleTrigger:
    return SettleTrigger("slshudi_ledger", asdict(what), seconds)


def fired(waiting: SettleTrigger, meanwhile: Callable[[], Any] = lambda: None) -> tuple[str, float]:
    """What it said, and the seconds that it took after something happened."""

    async def run() -> tuple[str, float]:
        event = asyncio.ensure_future(anext(aiter(waiting.run())))
        await asyncio.sleep(0.3)
        meanwhile()
        at = time.monotonic()
        return str((await event).payload), time.monotonic() - at

    return asyncio.run(run())


def test_it_wakes_when_the_batch_is_decided_and_not_before(begun: Transaction) -> None:
    what, ledger = Awaited("ad_events", begun.id, active=True), LedgerHook().ledger()
    assert fired(trigger(what, 0.6))[0] == LOOK_AGAIN
    said, seconds = fired(trigger(what), lambda: ledger.aborted(begun.id, 1, "given up"))
    assert said == GO_ON and seconds < 10


def test_it_wakes_when_airflow_says_that_the_run_has_ended(begun: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends() -> None:
        monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", lambda dag_id, run_id: "failed")

    assert fired(trigger(Awaited("ad_events", begun.id, active=True)), ends)[0] == GO_ON


def test_it_wakes_when_the_lease_is_free(begun: Transaction) -> None:
    with LedgerHook().ledger().lease("ad_events", "somebody", 30) as held:
        assert fired(trigger(Awaited("ad_events", lease=True), 0.6))[0] == LOOK_AGAIN
        assert held
    assert fired(trigger(Awaited("ad_events", lease=True)))[0] == GO_ON


def test_what_it_cannot_know_it_leaves_to_the_next_look(begun: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fired(trigger(Awaited(), 0.5))[0] == LOOK_AGAIN
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    assert fired(trigger(Awaited("ad_events", begun.id, active=True), 0.5))[0] == LOOK_AGAIN


def test_a_ledger_that_hangs_keeps_neither_other_triggers_nor_this_one(
    begun: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(ledger: Ledger, id_: str) -> None:
        time.sleep(2)

    monkeypatch.setattr(Ledger, "find", hangs)

    async def beside() -> tuple[str, float]:
        slowest, last = 0.0, time.monotonic()
        event = asyncio.ensure_future(anext(aiter(trigger(Awaited("ad_events", begun.id), 1.0).run())))
        while not event.done():
            await asyncio.sleep(0.01)
            slowest, last = max(slowest, time.monotonic() - last), time.monotonic()
        return str(event.result().payload), slowest

    at = time.monotonic()
    said, slowest = asyncio.run(beside())
    assert said == LOOK_AGAIN and time.monotonic() - at < 1.9
    assert slowest < 0.9


def test_airflow_keeps_it_and_makes_it_anew(begun: Transaction) -> None:
    made = trigger(Awaited("ad_events", begun.id, active=True), 12.5)
    path, arguments = made.serialize()
    kept = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(arguments))
    assert SettleTrigger(**kept).serialize() == (path, arguments)
