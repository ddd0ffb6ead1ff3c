"""How pipelines stand, and what a backfill would read, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_slshudi.cli import main
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator
from airflow_provider_slshudi.operators.batch import SlsHudiPlanOperator
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.settle import register
from tests.airflow.operators.conftest import put  # noqa: F401  the pipeline `ad_events` and its logs
from tests.airflow.operators.runs import in_run
from tests.seen import committed, registered, saw

Put = Callable[[int], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def ledger(ledger_connection: Path) -> Ledger:
    return LedgerHook().ledger()


def test_status_puts_first_what_a_person_should_look_at(ledger: Ledger, capsys: Capture) -> None:
    for name in ("clicks", "views"):
        registered(ledger, name)
        saw(ledger, name, unread=0)
        committed(ledger, name, [Range(0, 0, 100)], "run-1")
    assert main(["status"]) == 0
    ledger.note_trouble("views", "views_tail", "run-2", "append", "JobFailed", "the driver was killed", waits=False)
    capsys.readouterr()
    assert main(["status"]) == 3
    told = capsys.readouterr().out
    assert told.index("views") < told.index("clicks")
    assert "views: views_tail at append: the driver was killed" in told


def test_status_of_one_as_json_and_of_one_that_nobody_knows(ledger: Ledger, capsys: Capture) -> None:
    registered(ledger, "clicks")
    assert main(["status", "clicks", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["need"], found["lag"]) == ("clicks", "not seen yet", None)
    assert found["unnamed"] is None
    assert main(["status", "unheard-of"]) == 1
    assert "no ledger knows a pipeline 'unheard-of'" in capsys.readouterr().err


def test_metrics_are_prometheus_text(ledger: Ledger, capsys: Capture) -> None:
    registered(ledger, "clicks")
    assert main(["metrics"]) == 0
    assert 'slshudi_needs_person{pipeline="clicks"} 0' in capsys.readouterr().out


def test_before_the_first_run_status_says_so_in_a_sentence(ledger_connection: Path, capsys: Capture) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out.endswith("No pipeline has run yet: its first run makes the ledger's tables.\n")
    assert not ledger_connection.exists()


def test_lag_asks_the_service(put: Put, ledger: Ledger, capsys: Capture) -> None:  # noqa: F811
    put(5)
    SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    put(2)
    capsys.readouterr()  # the step's log
    assert main(["lag", "ad_events", "--json"]) == 0
    shards = json.loads(capsys.readouterr().out)["shards"]
    assert sum(shard["unread"] for shard in shards) == 7
    assert main(["lag", "ad_events"]) == 0
    assert "ad_events, as the service says now" in capsys.readouterr().out


def test_a_dry_run_says_what_a_backfill_would_read(put: Put, ledger: Ledger, capsys: Capture) -> None:  # noqa: F811
    put(5)
    assert main(["backfill", "ad_events", "--everything", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "5 log groups in " in told and told.endswith("nothing was started\n")
    assert ledger.pipelines() == [], "not even registered"


def test_how_far_a_backfill_is(put: Put, ledger: Ledger, capsys: Capture) -> None:  # noqa: F811
    put(5)
    assert main(["backfill", "ad_events", "--progress"]) == 0
    assert "Backfills of ad_events: none" in capsys.readouterr().out
    plan = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    plan.execute(in_run(("ad_events_backfill", "old-logs"), everything=True))
    capsys.readouterr()  # the step's log
    assert main(["backfill", "ad_events", "--progress"]) == 0
    told = capsys.readouterr().out
    assert "everything" in told and "0%: 0 of 5 log groups" in told
    assert main(["backfill", "ad_events", "--progress", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    (live,) = ledger.live("ad_events")
    assert (found["groups_left"], found["share"], found["live"]) == (5, 0, live.id)


def test_a_backfill_that_failed_is_told_by_status_and_progress(put: Put, ledger: Ledger, capsys: Capture) -> None:  # noqa: F811
    put(5)
    plan = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    register(plan.work(in_run()))
    with pytest.raises(AirflowFailException):
        plan.execute(in_run(("ad_events_backfill", "typed"), cursors={"7": ["1", "2"]}))
    capsys.readouterr()  # the step's log
    for command in (["status"], ["backfill", "ad_events", "--progress"]):
        main(command)
        told = capsys.readouterr().out
        assert "cursors {'7': ['1', '2']}" in told and "failed: ConfigError: " in told and "no shard 7" in told


@pytest.mark.parametrize(
    ("cursors", "said"),
    [
        (["0:10"], "is no SHARD:BEGIN:END"),
        (["0:10:20", "0:30:40"], "names shard 0 a second time"),
        (["0:20:10"], "its begin is not before its end"),
    ],
)
def test_wrong_cursors_are_refused(put: Put, capsys: Capture, cursors: list[str], said: str) -> None:  # noqa: F811
    assert main(["backfill", "ad_events", "--cursors", *cursors]) == 1
    assert said in capsys.readouterr().err
