"""A consumer's changes by the hook: in a function of a task, and in a script that no Airflow runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.execution_time.context import set_current_context

from airflow_provider_slshudi import SlsHudiChangesHook
from airflow_provider_slshudi.downstream.changes import HOLD
from airflow_provider_slshudi.exceptions import ConsumerFenced, ConsumerUnderWay
from airflow_provider_slshudi.ledger.records import Consumer
from tests.airflow.operators.runs import in_run
from tests.commits import Committing

NAMES = "ad_events", "report"
SCRIPT = """
import sys
from airflow_provider_slshudi import SlsHudiChangesHook
with SlsHudiChangesHook("ad_events", "report") as changes:
    print("given:", None if changes is None else changes.key.rpartition("-")[0])
    if sys.argv[1] == "dies":
        sys.exit("in the midst of it")
"""


@contextmanager
def task(run: str, **states: str) -> Iterator[None]:
    """A task of a run; the states are those of other runs of its DAG."""
    known: dict[str, str] = {f"reports/{name.replace('_', '-')}": state for name, state in states.items()}
    with set_current_context(in_run(("reports", run), known)):
        yield


def given(hook: SlsHudiChangesHook) -> str | None:
    """The key of what a block is given, without the digest of its content."""
    with hook as changes:
        return None if changes is None else changes.key.rpartition("-")[0]


def consumer(hourly: Committing) -> Consumer:
    known = hourly.ledger.consumer(*NAMES)
    assert known is not None
    return known


def test_a_block_that_ends_confirms_what_it_was_given(hourly: Committing) -> None:
    hourly.commit(0)
    with task("run-1"):
        assert given(SlsHudiChangesHook(*NAMES)) == "ad_events/report/1-1"
        assert given(SlsHudiChangesHook(*NAMES)) is None
    hourly.commit(0)
    with task("run-2"):
        assert given(SlsHudiChangesHook(*NAMES)) == "ad_events/report/2-2"


def test_a_block_that_fails_confirms_nothing_and_its_run_is_given_the_same(hourly: Committing) -> None:
    hourly.commit(0)
    with task("run-1"):
        with pytest.raises(ZeroDivisionError), SlsHudiChangesHook(*NAMES):
            raise ZeroDivisionError
        hourly.commit(0)
        assert given(SlsHudiChangesHook(*NAMES)) == "ad_events/report/1-1"


def test_another_run_is_given_it_once_airflow_says_that_the_first_is_over(hourly: Committing) -> None:
    hourly.commit(0)
    with task("run-1"):
        changes = SlsHudiChangesHook(*NAMES).take()
    with task("run-2", run_1="running"), pytest.raises(ConsumerUnderWay):
        SlsHudiChangesHook(*NAMES).take()
    with task("run-2", run_1="failed"):
        again = SlsHudiChangesHook(*NAMES).take()
    assert changes is not None and again is not None and again.commits == changes.commits
    with pytest.raises(ConsumerFenced):
        SlsHudiChangesHook(*NAMES).confirm(changes)
    # In a task of its own, which knows no more than what the first one returned.
    SlsHudiChangesHook(*NAMES).confirm(again)
    assert consumer(hourly).confirmed == 1


def script(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, env=dict(os.environ))


def test_a_script_that_dies_leaves_it_to_the_next_one(hourly: Committing) -> None:
    hourly.commit(0)
    died = script("dies")
    assert died.returncode and "given: ad_events/report/1-1" in died.stdout, died.stderr
    assert consumer(hourly).taken == 1
    for key in ("ad_events/report/1-1", "None"):
        done = script("ends")
        assert not done.returncode and f"given: {key}\n" in done.stdout, done.stderr


def test_a_script_is_not_given_what_a_living_process_works_on(hourly: Committing) -> None:
    hourly.commit(0)
    with SlsHudiChangesHook(*NAMES):
        refused = script("ends")
    assert "ConsumerUnderWay" in refused.stderr and "run |slshudi/" in refused.stderr


@pytest.mark.parametrize(("hold", "after"), [(None, timedelta(hours=3)), (timedelta(hours=9), timedelta(hours=9))])
def test_a_hold_that_a_person_set_stays_unless_the_code_says_one(
    hourly: Committing, hold: timedelta | None, after: timedelta
) -> None:
    given(SlsHudiChangesHook(*NAMES))
    assert consumer(hourly).hold == HOLD.total_seconds()
    known = consumer(hourly)
    hourly.ledger.subscribe(*NAMES, known.of, 0, 3 * 3600)
    given(SlsHudiChangesHook(*NAMES, hold=hold))
    assert consumer(hourly).hold == after.total_seconds()


def test_another_ledger_is_named_by_its_connection(hourly: Committing, monkeypatch: pytest.MonkeyPatch) -> None:
    hourly.commit(0)
    value: Any = os.environ["AIRFLOW_CONN_SLSHUDI_LEDGER"]
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER")
    monkeypatch.setenv("AIRFLOW_CONN_OF_TEAM_A", value)
    assert given(SlsHudiChangesHook(*NAMES, ledger_conn_id="of_team_a")) == "ad_events/report/1-1"
