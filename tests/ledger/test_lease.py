"""One decision at a time."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

import psutil
import pytest
from sqlalchemy import Engine

from airflow_provider_slshudi.exceptions import LeaseHeld, LedgerError, LedgerUnavailable
from airflow_provider_slshudi.ledger import engine as engine_module
from airflow_provider_slshudi.ledger import lease as lease_module
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.ledger import Ledger

PIPELINE = "clicks"


def test_a_held_lease_names_its_holder_and_its_end(ledger: Ledger) -> None:
    with ledger.lease(PIPELINE, "first", seconds=30) as lease:
        with pytest.raises(LeaseHeld, match="first") as caught, ledger.lease(PIPELINE, "second"):
            pytest.fail("two decide at once")
        assert (caught.value.holder, caught.value.expires, caught.value.pipeline) == ("first", lease.expires, PIPELINE)
        assert timedelta(0) < lease.expires - datetime.now(timezone.utc) < timedelta(seconds=60)
    with ledger.lease(PIPELINE, "second") as lease:
        assert lease.holder == "second"


def test_the_name_of_a_run_may_be_as_long_as_airflow_lets_it_be(ledger: Ledger) -> None:
    name = "d" * 250 + "/" + "r" * 250
    with (
        ledger.lease(PIPELINE, name),
        pytest.raises(LeaseHeld, match="d" * 250) as caught,
        ledger.lease(PIPELINE, "second"),
    ):
        pytest.fail("two decide at once")
    assert name.startswith(caught.value.holder)


def test_the_same_name_does_not_enter_twice(ledger: Ledger) -> None:
    with ledger.lease(PIPELINE, "task"), pytest.raises(LeaseHeld), ledger.lease(PIPELINE, "task"):
        pytest.fail("a task and its retry decide at once")


def test_a_failing_decision_releases_the_lease(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.lease(PIPELINE, "first"):
        raise ZeroDivisionError
    with ledger.lease(PIPELINE, "second"):
        pass


def test_an_expired_lease_is_taken_over_and_its_former_holder_finds_out(ledger: Ledger) -> None:
    with ledger.lease(PIPELINE, "slow", seconds=0.05) as slow:
        time.sleep(0.1)
        with ledger.lease(PIPELINE, "next", seconds=30) as following:
            with pytest.raises(LeaseHeld, match="next"):
                slow.renew()
            following.renew()
    # the slow one's end did not release what is no longer its own
    with ledger.lease(PIPELINE, "next", seconds=30), pytest.raises(LeaseHeld), ledger.lease(PIPELINE, "third"):
        pytest.fail("the lease was released by somebody else")


DECIDER = """
import sys
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
with Ledger(open_engine(sys.argv[1])).lease("clicks", "other", seconds=600):
    print("decides", flush=True)
    input()
"""


def test_a_dead_holders_lease_is_taken_at_once_and_a_living_ones_is_not(ledger: Ledger, url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", DECIDER, url], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "decides\n"
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(LeaseHeld, match="other"), ledger.lease(PIPELINE, "second"):
            pytest.fail("a stopped holder may go on")
        other.kill()
        psutil.Process(other.pid).wait(10)
        with ledger.lease(PIPELINE, "second") as lease:
            assert lease.holder == "second"


def test_leaving_an_expired_lease_does_not_release_its_new_holder(ledger: Ledger) -> None:
    slow = ledger.lease(PIPELINE, "slow", seconds=0.05)
    slow.__enter__()
    time.sleep(0.1)
    with ledger.lease(PIPELINE, "next", seconds=30):
        slow.__exit__(None, None, None)
        with pytest.raises(LeaseHeld, match="next"), ledger.lease(PIPELINE, "third"):
            pytest.fail("the lease was released by somebody else")


def test_renewing_holds_for_the_full_time_again_also_when_expired_but_free(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.lease(PIPELINE, "slow", seconds=60) as lease:
        first = lease.expires
        monkeypatch.setattr(lease_module, "now", lambda connection: now(connection) + timedelta(seconds=90))
        lease.renew()
        assert lease.expires > first
        with pytest.raises(LeaseHeld), ledger.lease(PIPELINE, "other"):
            pytest.fail("a renewed lease was taken")


def test_who_lost_the_lease_does_not_get_it_back_by_renewing_though_it_is_free_again(ledger: Ledger) -> None:
    with ledger.lease(PIPELINE, "slow", seconds=0.05) as slow:
        time.sleep(0.1)
        with ledger.lease(PIPELINE, "next", seconds=30):
            pass
        with pytest.raises(LeaseHeld, match="the lease was lost"):
            slow.renew()
        with ledger.lease(PIPELINE, "third"):
            pass


@pytest.mark.parametrize("days", [1 / 24, 400])
def test_a_lease_that_was_taken_by_a_clock_of_the_future_is_none(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, days: float
) -> None:
    """Its holder is in another container, of which nothing is known here, and is gone."""
    with monkeypatch.context() as ahead:
        ahead.setattr(lease_module, "now", lambda connection: now(connection) + timedelta(days=days))
        ahead.setattr(lease_module, "this_process", lambda: "another-boot/pid:[1]/7/7")
        lost = ledger.lease(PIPELINE, "from the future", seconds=195)
        held = lost.__enter__()
    with ledger.lease(PIPELINE, "second") as lease:
        assert lease.holder == "second"
    assert "a clock was wrong when it was taken" in caplog.text
    with pytest.raises(LeaseHeld):
        held.renew()


def test_a_clock_that_is_set_right_by_seconds_ends_no_lease(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger.lease(PIPELINE, "first", seconds=195):
        monkeypatch.setattr(lease_module, "now", lambda connection: now(connection) - timedelta(seconds=5))
        with pytest.raises(LeaseHeld, match="first"), ledger.lease(PIPELINE, "second"):
            pytest.fail("a living holder lost the lease")


def test_waiting_gets_the_lease_when_it_is_released(ledger: Ledger) -> None:
    entered, leave, order = threading.Event(), threading.Event(), []

    def first() -> None:
        with ledger.lease(PIPELINE, "first"):
            entered.set()
            leave.wait(10)
            order.append("first leaves")

    holder = threading.Thread(target=first)
    holder.start()
    assert entered.wait(10)
    threading.Timer(0.3, leave.set).start()
    with ledger.lease(PIPELINE, "second", wait=10):
        order.append("second enters")
    holder.join()
    assert order == ["first leaves", "second enters"]


def test_waiting_ends(ledger: Ledger) -> None:
    with ledger.lease(PIPELINE, "first"):
        started = time.monotonic()
        with pytest.raises(LeaseHeld), ledger.lease(PIPELINE, "second", wait=0.3):
            pytest.fail("two decide at once")
        assert 0.3 <= time.monotonic() - started < 3


def test_pipelines_have_leases_of_their_own(ledger: Ledger) -> None:
    ledger.register("views", "sls://shop/views", "file:///lake/views")
    with ledger.lease(PIPELINE, "first"), ledger.lease("views", "second"):
        pass


def test_an_unknown_pipeline_has_no_lease(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no pipeline nobody"), ledger.lease("nobody", "first"):
        pytest.fail("there is nothing to decide")


def test_only_the_server_s_clock_counts_where_there_is_a_server(
    engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        @staticmethod
        def now(zone: timezone) -> datetime:
            return datetime.now(zone) + timedelta(hours=1)

    with ledger.lease(PIPELINE, "first", seconds=60):
        monkeypatch.setattr(engine_module, "datetime", Late)
        if engine.dialect.name != "sqlite":
            with pytest.raises(LeaseHeld), ledger.lease(PIPELINE, "second"):
                pytest.fail("a wrong clock on one machine ended another's lease")
        else:
            with ledger.lease(PIPELINE, "second"):
                pass


def test_a_release_that_fails_does_not_undo_the_decision(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object, **__: object) -> object:
        raise LedgerUnavailable("the database went away")

    with caplog.at_level(logging.WARNING), ledger.lease(PIPELINE, "first", seconds=0.1):
        monkeypatch.setattr(lease_module, "transaction", gone)
    assert "expires by itself" in caplog.text
    monkeypatch.undo()
    with ledger.lease(PIPELINE, "second", wait=2):
        pass


def test_whoever_rewrites_files_keeps_nobody_from_deciding(ledger: Ledger) -> None:
    with (
        ledger.service_lease(PIPELINE, "service"),
        ledger.lease(PIPELINE, "batch"),
        pytest.raises(LeaseHeld, match="service"),
        ledger.service_lease(PIPELINE, "another"),
    ):
        pytest.fail("two services at once")
    with ledger.service_lease(PIPELINE, "another"):
        pass
