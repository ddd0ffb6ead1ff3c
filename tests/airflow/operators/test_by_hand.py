"""Tasks that a person clears or marks: each says in one line what happened, and the next run decides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.operators.base import PipelineTask
from airflow_provider_slshudi.operators.batch import (
    SlsHudiAppendOperator,
    SlsHudiCommitOperator,
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRecordOperator,
)
from airflow_provider_slshudi.operators.events import settled_alias
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor
from airflow_provider_slshudi.services.verification import verify
from tests.airflow.operators.runs import AssetEvents, added, in_run
from tests.scenarios import Scenario

LOGS = 20
OPEN, APPEND, RECORD, COMMIT = SlsHudiOpenOperator, SlsHudiAppendOperator, SlsHudiRecordOperator, SlsHudiCommitOperator
ALL = (OPEN, APPEND, RECORD, COMMIT)
ENDED = {"tail/run-1": "failed"}


@pytest.fixture
def pipeline(scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, asset_events: AssetEvents) -> Scenario:
    """A pipeline with logs to read, which the tasks find."""
    found = scenario(shards=1)
    monkeypatch.setattr(PipelineTask, "work", lambda self, context: found.by(context["dag_run"].run_id))
    found.put(LOGS)
    return found


def planned() -> dict[str, Any]:
    return SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())


def run(step: type[Any], batch: dict[str, Any]) -> Any:
    return step(task_id="step", pipeline="ad_events", transaction=batch).execute(in_run())


def what_is_read(task: Callable[[], object], batch: dict[str, Any]) -> str:
    """What a failed task shows: one error, in one line, which names the transaction."""
    with pytest.raises(AirflowFailException) as failed:
        task()
    said = str(failed.value)
    assert "\n" not in said and batch["transaction"] in said
    assert failed.value.__cause__ is None and failed.value.__suppress_context__, "it would be printed twice"
    return said


def assert_the_next_run_decides(pipeline: Scenario, decision: str) -> None:
    alias, context = settled_alias(pipeline.work.pipeline), in_run(("tail", "run-2"), ENDED)
    settle = SlsHudiSettleSensor(task_id="settle", pipeline="ad_events", outlets=[alias])
    (decided,) = settle.poke(context).xcom_value or []
    assert decided["decision"] == decision
    events = added(context, alias)
    if decision == "RECOMMIT":
        (event,) = events
        assert event.pop("bytes") > 0 and sum(event.pop("partitions").values()) == LOGS
        of_batch = {"transaction": decided["transaction"], "instant": decided["instant"], "place": 1}
        assert event == {**of_batch, "kind": "tail", "rows": LOGS}
    else:
        assert events == []
    pipeline.put(10, first=LOGS)
    assert pipeline.batch("run-3").rows == (10 if decision == "RECOMMIT" else LOGS + 10)


@pytest.mark.parametrize(
    ("done", "by_hand", "told"),
    [
        ((), APPEND, "is PLANNED, this step needs OPEN: a step before it did not end, .* marked by hand"),
        ((OPEN,), RECORD, "its append did not end, be it killed or marked by hand. Nothing of transaction"),
        ((OPEN, APPEND), APPEND, "is INFLIGHT, not REQUESTED. Either the task was cleared after it had run"),
        ((OPEN, APPEND), COMMIT, "is OPEN, this step needs PREPARED: a step before it did not end"),
        ((OPEN, APPEND), None, "this run planned transaction .* which is OPEN: a run has one batch"),
    ],
    ids=["open marked", "append marked", "append cleared", "record marked", "plan cleared"],
)
def test_what_cannot_go_on_says_so_before_a_driver_starts(
    pipeline: Scenario,
    monkeypatch: pytest.MonkeyPatch,
    done: tuple[type[Any], ...],
    by_hand: type[Any] | None,
    told: str,
) -> None:
    batch = planned()
    for step in done:
        run(step, batch)

    def start(launcher: object, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        raise AssertionError(f"{verb} was started")

    with monkeypatch.context() as drivers:
        drivers.setattr(type(pipeline.work.launcher), "run", start)
        said = what_is_read(planned if by_hand is None else lambda: run(by_hand, batch), batch)
    assert re.search(told, said) and "he next run's settle decides it" in said, said
    assert_the_next_run_decides(pipeline, "ROLL_BACK_AND_ABORT" if done else "ABORT")


def test_a_commit_marked_by_hand_is_made_by_the_next_run(pipeline: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    batch = planned()
    for step in (OPEN, APPEND, RECORD):
        run(step, batch)
    # Cleared, it finds that it is done; the append is not done a second time.
    assert run(RECORD, batch)["rows"] == LOGS
    said = what_is_read(lambda: run(APPEND, batch), batch)
    assert "is PREPARED, this step needs OPEN: it was recorded before" in said
    with caplog.at_level("INFO"):
        assert_the_next_run_decides(pipeline, "RECOMMIT")
    told = f"transaction {batch['transaction']} of tail/run-1: ledger PREPARED, timeline INFLIGHT: RECOMMIT"
    assert sum(told in line for line in caplog.messages) == 1
    proof = verify(pipeline.work)
    assert (proof.ok, proof.rows) == (True, LOGS + 10)


def test_steps_of_a_batch_that_is_committed_have_nothing_left_to_do(pipeline: Scenario) -> None:
    batch = planned()
    for step in ALL:
        run(step, batch)
    assert run(COMMIT, batch)["rows"] == LOGS
    for step in (OPEN, APPEND, RECORD):
        said = what_is_read(partial(run, step, batch), batch)
        assert (
            "is COMMITTED, this step needs" in said and "the batch is in the table, and nothing is left to do" in said
        )
