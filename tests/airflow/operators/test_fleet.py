"""The two tasks of a fleet: what a look gives, and what a batch leaves when it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.operators.fleet import SlsHudiBatchOperator, SlsHudiLookOperator
from airflow_provider_slshudi.protocol import steps
from tests.airflow.operators.runs import in_run

FLEET = ("fleet", "run-1")


@pytest.fixture
def ledger(ledger_connection: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", "here")
    return LedgerHook().ledger()


def batch(pipeline: str = "ad_events") -> SlsHudiBatchOperator:
    return SlsHudiBatchOperator(task_id="batch", pipeline=pipeline)


def look(*pipelines: str) -> list[str]:
    return SlsHudiLookOperator(task_id="look", pipelines=pipelines).execute(in_run(FLEET))


def skipped(ledger: Ledger) -> None:
    """A batch that finds nothing."""
    with pytest.raises(AirflowSkipException, match="nothing new"):
        batch().execute(in_run(FLEET))


def test_a_batch_that_fails_decides_what_it_left_while_its_run_goes_on(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(3)

    def fail(*_: object) -> None:
        raise JobFailed("the driver ended with exit code 1", verb="open", error="Py4JJavaError")

    monkeypatch.setattr(steps, "open_instant", fail)
    with pytest.raises(JobFailed):
        batch().execute(in_run(FLEET, states={"fleet/run-1": "running"}))
    assert ledger.live("ad_events") == []
    assert [item.state for item in ledger.last("ad_events", 10)] == [State.ABORTED]
    assert [(trouble.step, trouble.error) for trouble in ledger.troubles("ad_events")] == [("batch", "JobFailed")]
    assert look("ad_events") == ["ad_events"], "its logs are unread again"


def test_a_batch_that_finds_nothing_ends_the_trouble_of_one_that_failed(
    put: Callable[[int], None], ledger: Ledger
) -> None:
    skipped(ledger)
    ledger.trouble("ad_events", "fleet", "run-0", "batch", "SourceRefused", "no", False, None)
    assert look("ad_events") == ["ad_events"]
    skipped(ledger)
    assert ledger.troubles("ad_events") == []
    assert look("ad_events") == []


def test_what_cannot_be_looked_at_comes_last_and_airflow_gets_no_more_than_it_maps(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped(ledger)
    put(1)
    assert look("amiss", "ad_events") == ["ad_events", "amiss"]
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    assert look("amiss", "ad_events") == ["ad_events"]


def test_a_file_that_is_called_otherwise_than_its_pipeline_is_refused(
    put: Callable[[int], None], pipelines: Path, ledger: Ledger
) -> None:
    (pipelines / "other.yaml").write_bytes((pipelines / "ad_events.yaml").read_bytes())
    put(1)
    with pytest.raises(AirflowFailException, match="the file is called other, and its pipeline ad_events"):
        batch("other").execute(in_run(FLEET))
    assert ledger.last("ad_events", 10) == []


def test_a_batch_that_is_only_tried_out_reserves_nothing(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1)
    monkeypatch.setenv("AIRFLOW_TEST_MODE", "True")
    with pytest.raises(AirflowFailException, match="plans nothing"):
        batch().execute(in_run(FLEET))
    assert ledger.last("ad_events", 10) == []
