"""The settle sensor by itself: how it waits, for what, and how long. A real ledger, no log service."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from sqlalchemy import create_engine, update

from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.work import work_of
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.operators.base import PipelineTask
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sensors.settle import SlsHudiDanglingSensor, SlsHudiSettleSensor
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.transaction.dangling import QUIET_AFTER
from airflow_provider_slshudi.transaction.settle import register
from tests.airflow.operators.runs import in_run

NEXT = ("tail", "run-2")
GOES_ON = {"tail/run-1": "running"}
EARLIER = datetime(2026, 1, 1, tzinfo=timezone.utc)
DIES = """
import os, signal, sys
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
Ledger(open_engine(f"sqlite:///{sys.argv[1]}")).heartbeat(sys.argv[2], 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def begun(pipelines: Path, ledger_connection: Path) -> Transaction:
    """The first run's batch, on which this process works."""
    work = work_of("ad_events", Run("tail", "run-1"))
    register(work)
    return work.ledger.begin("ad_events", Kind.TAIL, [Range(0, 0, 5)], "tail", "run-1")


@pytest.fixture
def fall_quiet(begun: Transaction, ledger_connection: Path) -> Callable[[], None]:
    def fall_quiet() -> None:
        engine = create_engine(f"sqlite:///{ledger_connection}")
        with engine.begin() as connection:
            before = begun.heartbeat - QUIET_AFTER - timedelta(seconds=1)
            connection.execute(update(models.transactions).values(heartbeat=before))
        engine.dispose()

    return fall_quiet


def settle(**arguments: Any) -> SlsHudiSettleSensor:
    return SlsHudiSettleSensor(task_id="settle", pipeline="ad_events", **arguments)


def after(begun: Transaction, states: dict[str, str] | None = None) -> Any:
    """The second run, which began after the first one had planned."""
    return in_run(NEXT, GOES_ON if states is None else states, began=begun.created + timedelta(seconds=1))


def test_a_run_waits_without_a_slot_until_the_earlier_one_may_have_gone_quiet(begun: Transaction) -> None:
    """A look is a task of two CPU seconds, and whoever dies is found at the first one that can tell."""
    at, quiet_at = datetime.now(timezone.utc), begun.heartbeat + QUIET_AFTER
    for every, first in ((15, quiet_at), (2, quiet_at), (120, at + timedelta(seconds=120))):
        with pytest.raises(AirflowRescheduleException) as waits:
            settle(poke_interval=every).execute(after(begun))
        assert timedelta(0) <= waits.value.reschedule_date - first < timedelta(seconds=10), every


def test_a_clock_of_the_ledger_that_was_set_back_keeps_no_run_waiting_for_hours(
    begun: Transaction, ledger_connection: Path
) -> None:
    engine = create_engine(f"sqlite:///{ledger_connection}")
    with engine.begin() as connection:
        connection.execute(update(models.transactions).values(heartbeat=begun.heartbeat + timedelta(hours=3)))
    engine.dispose()
    with pytest.raises(AirflowRescheduleException) as waits:
        settle().execute(after(begun))
    assert waits.value.reschedule_date - datetime.now(timezone.utc) <= QUIET_AFTER + timedelta(seconds=1)


def test_a_deferrable_one_tells_the_trigger_what_to_wait_for_and_keeps_its_time(begun: Transaction) -> None:
    sensor = settle(deferrable=True, timeout=100)
    with pytest.raises(TaskDeferred) as first:
        sensor.execute(after(begun))
    path, arguments = first.value.trigger.serialize()
    assert path == "airflow_provider_slshudi.triggers.ledger.SettleTrigger"
    what = {"pipeline": "ad_events", "transaction": begun.id, "active": True, "lease": False}
    assert arguments == {"ledger_conn_id": "slshudi_ledger", "awaited": what, "seconds": 60}
    assert first.value.method_name == "wake"
    (since,) = (first.value.kwargs or {}).values()
    assert abs(since - time.time()) < 10

    with pytest.raises(TaskDeferred) as second:
        sensor.wake(after(begun), since - 90, event="it is time to look again")
    assert second.value.kwargs == {"since": since - 90}
    assert second.value.trigger.serialize()[1]["seconds"] < 11, "not longer than it may wait in all"
    # Where no triggerer runs, Airflow's scheduler ends it a minute later.
    assert second.value.timeout is not None and 50 < second.value.timeout.total_seconds() < 71


def test_once_the_other_batch_is_decided_it_goes_on(begun: Transaction) -> None:
    LedgerHook().ledger().aborted(begun.id, 1, "given up")
    assert settle(deferrable=True).wake(after(begun), time.time(), event="it may go on") == []


def test_a_dead_process_is_decided_while_airflow_says_that_its_run_goes_on(
    begun: Transaction, ledger_connection: Path, fall_quiet: Callable[[], None]
) -> None:
    dead = subprocess.run([sys.executable, "-c", DIES, str(ledger_connection), begun.id])
    assert dead.returncode < 0
    sensor, ledger = settle(deferrable=True), LedgerHook().ledger()
    with pytest.raises(TaskDeferred):
        sensor.execute(after(begun))
    assert ledger.get(begun.id).token == 1
    fall_quiet()
    assert sensor.execute(after(begun)) == [{"transaction": begun.id, "instant": None, "decision": "ABORT"}]


def test_a_quiet_batch_that_may_live_is_left_alone_and_holds_up_nobody(
    begun: Transaction, fall_quiet: Callable[[], None]
) -> None:
    fall_quiet()
    assert settle().execute(after(begun)) == []
    found = LedgerHook().ledger().get(begun.id)
    assert (found.state, found.token) == (State.PLANNED, 1)


def test_a_run_that_another_one_overtook_waits_too(begun: Transaction) -> None:
    """Nobody knows whether that batch has all that this run would read, or succeeds."""
    overtaken = in_run(NEXT, GOES_ON, began=begun.created - timedelta(seconds=1))
    with pytest.raises(AirflowRescheduleException):
        settle().execute(overtaken)
    with pytest.raises(TaskDeferred):
        settle(deferrable=True).execute(overtaken)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_batch_that_takes_longer_than_the_time_out_fails_nobody(begun: Transaction, deferrable: bool) -> None:
    with pytest.raises(AirflowSkipException, match=f"works on transaction {begun.id}"):
        waited_too_long(settle(deferrable=deferrable, timeout=0.0, mode="poke"), after(begun))


@pytest.mark.parametrize("deferrable", [False, True])
def test_what_cannot_be_read_for_too_long_fails_the_run(
    begun: Transaction, deferrable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    with pytest.raises(AirflowSensorTimeout):
        waited_too_long(settle(deferrable=deferrable, timeout=0.0, mode="poke"), after(begun))
    with pytest.raises(TaskDeferred) as waits:
        settle(deferrable=True).execute(after(begun))
    assert waits.value.trigger.serialize()[1]["awaited"]["pipeline"] == "", "only another look can tell"


def waited_too_long(sensor: SlsHudiSettleSensor, context: Any) -> None:
    if sensor.deferrable:
        sensor.wake(context, time.time() - 1)
    else:
        sensor.execute(context)


def test_it_waits_for_the_lease_without_its_slot(begun: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.sensors.settle.LOOK_WAIT_SECONDS", 0.2)
    LedgerHook().ledger().aborted(begun.id, 1, "given up")
    LedgerHook().ledger().begin("ad_events", Kind.TAIL, [Range(0, 0, 5)], "tail", "run-0")
    ended = {"tail/run-0": "failed"}
    with LedgerHook().ledger().lease("ad_events", "somebody", 30):
        at = time.monotonic()
        with pytest.raises(TaskDeferred) as waits:
            settle(deferrable=True).execute(after(begun, ended))
        assert time.monotonic() - at < 5
    awaited = waits.value.trigger.serialize()[1]["awaited"]
    assert awaited == {"pipeline": "ad_events", "transaction": "", "active": False, "lease": True}


def test_a_task_that_has_no_supervisor_does_not_end_with_its_parent(
    begun: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `dag.test` runs tasks: in the process of whoever called it."""
    asked: list[bool] = []
    monkeypatch.setattr("airflow_provider_slshudi.operators.base.end_with_parent", lambda *_: asked.append(True))
    work = PipelineTask.work(settle(), in_run(NEXT))
    assert work.run == Run(*NEXT) and asked == []


def dangling(**arguments: Any) -> SlsHudiDanglingSensor:
    return SlsHudiDanglingSensor(task_id="dangling", pipeline="ad_events", **arguments)


def test_recovery_waits_until_a_run_has_ended_that_left_a_batch(begun: Transaction) -> None:
    recovery = ("recovery", "run-1")
    with pytest.raises(AirflowRescheduleException):
        dangling().execute(in_run(recovery, GOES_ON))
    assert dangling().execute(in_run(recovery, {"tail/run-1": "failed"})) is None
    assert LedgerHook().ledger().get(begun.id).token == 1, "it decides nothing"


def test_recovery_that_nothing_needs_is_skipped_and_one_that_a_person_asks_for_goes_on(begun: Transaction) -> None:
    recovery = ("recovery", "run-1")
    with pytest.raises(AirflowSkipException, match="nothing dangled"):
        dangling(timeout=0).execute(in_run(recovery, GOES_ON))
    with pytest.raises(AirflowSkipException, match="nothing dangled"):
        dangling(deferrable=True, timeout=100).wake(in_run(recovery, GOES_ON), time.time() - 101)
    assert dangling().execute(in_run(recovery, GOES_ON, run_type="manual")) is None


def test_a_deferred_recovery_only_waits_for_its_time(begun: Transaction) -> None:
    with pytest.raises(TaskDeferred) as waits:
        dangling(deferrable=True, ledger_conn_id=None).execute(in_run(("recovery", "run-1"), GOES_ON))
    _, arguments = waits.value.trigger.serialize()
    assert (arguments["awaited"]["pipeline"], arguments["seconds"]) == ("", 15)


def test_recovery_that_cannot_look_is_no_recovery_that_nothing_needs(begun: Transaction) -> None:
    lost = dangling(ledger_conn_id="typo", timeout=0)
    with pytest.raises(AirflowSensorTimeout, match="is not known: Airflow has no connection 'typo'"):
        lost.execute(in_run(("recovery", "run-1"), GOES_ON))
