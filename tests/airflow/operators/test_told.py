"""What the ledger is told of how a step went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from airflow_provider_slshudi.exceptions import DataExpired, Fenced, JobFailed, LeaseHeld, SourceUnavailable
from airflow_provider_slshudi.handover.names import BACKFILL, DRY_RUN, OVERRIDE
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import BACKFILL_DONE
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator
from airflow_provider_slshudi.operators.batch import SlsHudiPlanOperator, SlsHudiRecordOperator
from airflow_provider_slshudi.operators.repair import SlsHudiRepairOperator
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.settle import register
from airflow_provider_slshudi.views import words
from airflow_provider_slshudi.views.progress import progress, refused
from airflow_provider_slshudi.views.standing import pipelines
from tests.airflow.operators.runs import in_run

Put = Callable[[int], None]


@pytest.fixture
def ledger(ledger_connection: Path) -> Ledger:
    return LedgerHook().ledger()


def step() -> SlsHudiPlanOperator:
    return SlsHudiPlanOperator(task_id="plan", pipeline="ad_events")


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Makes plans fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(plan, "tail", fail)


def test_a_batch_that_changed_hands_asks_for_nobody(put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the retry of a step that Airflow gave up five minutes after its worker died."""
    put(10)
    failing(monkeypatch, Fenced("changed hands", pipeline="ad_events", transaction="t", token=1))
    with pytest.raises(AirflowFailException):
        step().execute(in_run())
    assert ledger.troubles("ad_events") == []


def test_a_failure_that_no_retry_mends_asks_for_a_person_until_the_step_succeeds(
    put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(10)
    with monkeypatch.context() as broken:
        failing(broken, DataExpired("ad_events", 3, 10, 20))
        for _ in range(2):
            with pytest.raises(AirflowFailException):
                step().execute(in_run())
    (trouble,) = ledger.troubles("ad_events")
    assert (trouble.error, trouble.step, trouble.dag_id, trouble.waits, trouble.times) == (
        *("DataExpired", "plan", "tail", False, 2),
    )
    assert "shard 3 no longer holds the log groups [10, 20)" in trouble.message
    step().execute(in_run())
    assert ledger.troubles("ad_events") == []


def test_a_failure_that_airflow_tries_again_waits_until_its_last_try(
    put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, SourceUnavailable("no route", project="ads", logstore="x"))
    for tries, waits in ((1, True), (2, True), (3, False)):
        context = in_run()
        context["ti"].try_number = tries
        with pytest.raises(SourceUnavailable):
            step().execute(context)
        assert ledger.troubles("ad_events")[0].waits is waits


@pytest.mark.parametrize(
    ("ended_by", "told", "waits"),
    [
        ("ValueMisfit", "ValueMisfit", False),
        ("SourceUnavailable", "SourceUnavailable", True),
        ("Py4JJavaError", "JobFailed", True),
        ("", "JobFailed", True),
    ],
)
def test_a_job_that_failed_is_told_by_the_error_that_ended_its_driver(
    put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, ended_by: str, told: str, waits: bool
) -> None:
    failing(monkeypatch, JobFailed("the append ended with exit code 1", verb="append", error=ended_by))
    with pytest.raises(JobFailed):
        step().execute(in_run())
    assert [(trouble.error, trouble.waits) for trouble in ledger.troubles("ad_events")] == [(told, waits)]


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (
            JobFailed("append failed", verb="append", error="ValueMisfit", fields={"column": "price"}),
            "`columns`, price",
        ),
        (DataExpired("ad_events", 3, 10, 20), "`source`"),
    ],
)
def test_a_failure_names_the_line_of_the_file_to_edit(
    put: Put, ledger: Ledger, pipelines: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    failing(monkeypatch, error)
    with pytest.raises((JobFailed, AirflowFailException)):
        step().execute(in_run())
    (trouble,) = ledger.troubles("ad_events")
    file, _, line = trouble.message.rpartition("\nTo edit: ")[2].partition(" line ")
    number, _, field = line.partition(": ")
    assert (Path(file), field) == (pipelines / "ad_events.yaml", place)
    assert place.split(", ")[-1].strip("`") in Path(file).read_text().splitlines()[int(number) - 1]


def test_a_settle_that_looks_again_by_itself_waits(put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    held = LeaseHeld("somebody decides", pipeline="ad_events", holder="tail/x", expires=None)

    def refuse(*_: object) -> None:
        raise held

    monkeypatch.setattr("airflow_provider_slshudi.transaction.settle.settle", refuse)
    context = in_run()
    context["ti"].try_number = 9
    settle = SlsHudiSettleSensor(task_id="batch.settle", pipeline="ad_events")
    assert not settle.poke(context).is_done
    (trouble,) = ledger.troubles("ad_events")
    assert (trouble.step, trouble.error, trouble.waits) == ("settle", "LeaseHeld", True)


def test_a_pipeline_whose_file_is_wrong_is_told_by_the_name_it_was_given(pipelines: Path, ledger: Ledger) -> None:
    (pipelines / "ad_events.yaml").write_text("name: [")
    with pytest.raises(AirflowFailException):
        step().execute(in_run())
    assert [(found.pipeline, found.error) for found in ledger.troubles()] == [("ad_events", "ConfigError")]


def test_a_ledger_that_cannot_be_told_changes_nothing(
    put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(10)

    def away(*_: object, **__: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(Ledger, "clear_troubles", away)
    monkeypatch.setattr(Ledger, "note_trouble", away)
    assert step().execute(in_run())["transaction"]
    failing(monkeypatch, DataExpired("ad_events", 3, 10, 20))
    with pytest.raises(AirflowFailException, match="no longer holds"):
        step().execute(in_run())


def test_a_wrong_param_is_no_trouble_of_the_pipeline(put: Put, ledger: Ledger) -> None:
    backfill = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    with pytest.raises(AirflowFailException, match="give `cursors`"):
        backfill.execute(in_run())
    repair = SlsHudiRepairOperator(task_id="override", pipeline="ad_events", role=OVERRIDE)
    with pytest.raises(AirflowFailException, match="has no live transaction 'nobody'"):
        register(repair.work(in_run()))
        repair.execute(in_run(("override", "run-1"), act="abandon", reason="to see", transaction="nobody"))
    with pytest.raises(AirflowFailException, match=r"which the pipeline's DAG of role override does.*Nothing was done"):
        SlsHudiRepairOperator(task_id="repair", pipeline="ad_events").execute(in_run(act="abandon", reason="to see"))
    assert ledger.troubles() == []
    (refused,) = ledger.audit_entries("ad_events", 10, BACKFILL)
    (deed,) = ledger.audit_entries("ad_events", 10, "abandon")
    assert (refused.act, refused.reason) == (BACKFILL, "nothing was named")
    assert (deed.act, deed.who) == ("abandon", "override/run-1") and "has no live transaction" in (deed.result or "")


def test_a_backfill_whose_batch_fails_says_so_until_a_later_try_reads_the_rest(put: Put, ledger: Ledger) -> None:
    """Its run is a part of the backfill that another run began."""
    put(3)
    of_first, of_part = (("backfill", run) for run in ("old-logs", "old-logs.part2"))
    plan_operator = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    planned = plan_operator.execute(in_run(of_first, everything=True))
    assert not progress(ledger, "ad_events")[0].failure
    record = SlsHudiRecordOperator(task_id="batch.record", pipeline="ad_events", transaction=planned)
    with pytest.raises(AirflowFailException):
        record.execute(in_run(of_part))
    (found,) = progress(ledger, "ad_events")
    assert found.failure.startswith("IllegalTransition: ")
    assert words.progress(found).endswith(f"it failed: {found.failure}")
    (view,) = pipelines(ledger)
    assert view.failed_backfill == found.deed
    ledger.answer("ad_events", BACKFILL, "backfill/old-logs", BACKFILL_DONE)
    assert pipelines(ledger)[0].failed_backfill is None


def test_a_failed_backfill_is_shown_until_somebody_dismisses_it(put: Put, ledger: Ledger) -> None:
    backfill = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    with pytest.raises(AirflowFailException, match="give `cursors`"):
        backfill.execute(in_run())
    register(backfill.work(in_run()))
    assert pipelines(ledger)[0].failed_backfill is not None
    for number in range(12):
        with ledger.audited("ad_events", DRY_RUN, "ada", "how much is it?", f"backfill/dry-{number}") as result:
            result.append("nothing is left to read")
    ledger.ask("ad_events", BACKFILL, "bob", "everything", "backfill/another", {"0": ["0", "9", 9]})
    with pytest.raises(ValueError, match="busy"), ledger.audited("ad_events", "dismiss", "ada", "", "repair/run-0"):
        raise ValueError("busy")
    assert pipelines(ledger)[0].failed_backfill is not None, "other acts, and one that is not over, hide it not"
    repair = SlsHudiRepairOperator(task_id="repair", pipeline="ad_events")
    repair.execute(in_run(("repair", "run-1"), act="dismiss", reason="a typing error"))
    assert pipelines(ledger)[0].failed_backfill is None


def test_a_backfill_whose_task_is_cleared_is_no_failed_one_any_more(put: Put, ledger: Ledger) -> None:
    put(3)
    of_run = ("backfill", "load.partial-2026")
    backfill = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    with pytest.raises(AirflowFailException, match="give `cursors`"):
        backfill.execute(in_run(of_run))
    backfill.execute(in_run(of_run, everything=True))
    assert pipelines(ledger)[0].failed_backfill is None and not refused(ledger, "ad_events")
    assert [item.deed.run for item in progress(ledger, "ad_events")] == ["backfill/load.partial-2026"]


def test_a_settle_that_fails_otherwise_does_not_wait(put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("airflow_provider_slshudi.transaction.settle.settle", fail)
    context = in_run()
    context["ti"].try_number = 9
    with pytest.raises(ZeroDivisionError):
        SlsHudiSettleSensor(task_id="batch.settle", pipeline="ad_events").poke(context)
    assert [trouble.waits for trouble in ledger.troubles("ad_events")] == [False]


def test_a_step_that_takes_too_long_for_airflow_needs_a_person(
    put: Put, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        raise AirflowTaskTimeout("an hour is over")

    monkeypatch.setattr(plan, "tail", slow)
    with pytest.raises(AirflowTaskTimeout):
        step().execute(in_run())
    assert [(trouble.error, trouble.waits) for trouble in ledger.troubles()] == [("AirflowTaskTimeout", False)]
