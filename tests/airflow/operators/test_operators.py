"""Operators and the sensor by themselves: a real ledger and log service, and a context as a task run has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable, PutVariable, VariableResult

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.hooks import runs as airflow_runs
from airflow_provider_slshudi.hooks.connections import ConnectionMissing
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.runs import AirflowRuns, this_airflow
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.operators.backfill import SlsHudiBackfillPlanOperator, SlsHudiBackfillRestOperator
from airflow_provider_slshudi.operators.batch import (
    SlsHudiOpenOperator,
    SlsHudiPlanOperator,
    SlsHudiRecordOperator,
)
from airflow_provider_slshudi.operators.repair import SlsHudiRecoverOperator
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.plugins.links import TransactionLink
from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.views.progress import progress, refused
from tests.airflow.operators.runs import RUN, in_run
from tests.clock import Clock
from tests.local.sdk import by_ip


def test_plan_pins_the_ranges_for_the_steps_that_follow(put: Callable[[int], None]) -> None:
    put(5)
    plan = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events")
    planned = plan.execute(in_run())
    link: Any = TransactionLink()
    assert link.get_link(plan, ti_key=None).endswith(f"/slshudi/transactions/{planned['transaction']}")
    found = LedgerHook().ledger().get(planned["transaction"])
    assert (found.state, found.token) == (State.PLANNED, planned["token"])
    assert (found.dag_id, found.run_id, found.kind) == (*RUN, Kind.TAIL)
    assert sum(map(len, LedgerHook().ledger().ranges(found.id))) == 5


def test_plan_skips_where_nothing_is_new(put: Callable[[int], None]) -> None:
    with pytest.raises(AirflowSkipException, match="nothing new"):
        SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())


def test_plan_reads_what_comes_while_it_waits(put: Callable[[int], None], clock: Clock) -> None:
    waits = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events", wait=timedelta(minutes=5))

    def meanwhile(now: float) -> None:
        if now == 3:
            put(2)

    clock.meanwhile = meanwhile
    planned = waits.execute(in_run())
    assert sum(map(len, LedgerHook().ledger().ranges(planned["transaction"]))) == 2
    assert clock.pauses == [1.0, 1.0, 1.0]


def test_plan_sees_a_split_and_what_was_freed_while_it_waits(
    put: Callable[[int], None], sls: LocalSls, clock: Clock
) -> None:
    """Neither moves the end of a shard that is known; each look in between keeps what it saw."""
    put(2)
    ledger = LedgerHook().ledger()
    held = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run(("backfill", "run-1")))

    def meanwhile(now: float) -> None:
        if now == 2:
            source = settings.pipeline("ad_events").source
            by_ip(sls.connection()).split_shard(source.project, source.logstore, 0, "8" + "0" * 31)
        if now == 20:
            ledger.aborted(held["transaction"], held["token"], "its run died")

    clock.meanwhile = meanwhile
    waits = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events", wait=timedelta(minutes=5))
    planned = waits.execute(in_run())
    assert sum(map(len, ledger.ranges(planned["transaction"]))) == 2
    assert len(ledger.shards("ad_events")) == 3
    assert clock.now == 30, "it looks anew each quarter of a minute"
    assert len(ledger.backlog_samples("ad_events", 10)) == 4, "so nobody takes it for one that stands still"


def test_plan_waits_no_longer_than_it_should_and_not_for_who_triggered_it(
    put: Callable[[int], None], clock: Clock
) -> None:
    waits = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events", wait=timedelta(seconds=10))
    for run_type, waited in (("manual", 0), ("scheduled", 10)):
        with pytest.raises(AirflowSkipException, match="nothing new"):
            waits.execute(in_run(run_type=run_type))
        assert clock.now == waited
    waits.execution_timeout = timedelta(seconds=6)
    with pytest.raises(AirflowSkipException, match="nothing new"):
        waits.execute(in_run())
    assert clock.now == 13, "half of what Airflow lets it have"


def test_slow_looks_make_no_wait_longer(
    put: Callable[[int], None], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        clock.now += 40

    monkeypatch.setattr("airflow_provider_slshudi.transaction.plan.tail", slow)
    with pytest.raises(AirflowSkipException, match="nothing new"):
        SlsHudiPlanOperator(task_id="plan", pipeline="ad_events", wait=timedelta(minutes=1)).execute(in_run())
    assert clock.pauses and clock.now <= 40 + 60 + 40, "the last look begins within the minute"


def test_a_backfill_subtracts_what_the_tail_reserved(put: Callable[[int], None]) -> None:
    put(5)
    SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    put(3)
    backfill = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    (shard,) = LedgerHook().ledger().shards("ad_events")
    cursors = {str(shard.id): [str(shard.first), str(shard.first + 8)]}
    planned = backfill.execute(in_run(("backfill", "run-1"), cursors=cursors))
    assert planned["cursors"] == cursors
    ranges = LedgerHook().ledger().ranges(planned["transaction"])
    assert ranges == [Range(shard.id, shard.first + 5, shard.first + 8)]
    (found,) = progress(LedgerHook().ledger(), "ad_events")
    assert (found.groups, found.groups_left) == (8, 8), "what the tail only reserved is not committed yet"
    assert found.live is not None and found.live.id == planned["transaction"]
    assert (found.deed.who, found.deed.run, found.deed.result) == ("backfill/run-1", "backfill/run-1", None)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({}, "give `cursors`"),
        ({"from": "2026-01-01T00:00:00Z"}, "both `from` and `to`"),
        ({"cursors": {"0": ["1", "2"]}, "to": "2026-01-01T00:00:00Z"}, "not both"),
        ({"cursors": {"0": ["2", "2"]}}, "cursors.0: ['2', '2']: its begin is not before its end"),
        ({"cursors": {"0": ["%", "2"]}}, "'%' is no SLS cursor"),
        ({"cursors": {"0": ["1", 2]}}, "cursors.0: 2: expected a cursor in quotes"),
        ({"cursors": {"zero": ["1", "2"]}}, "a shard is a number"),
        ({"cursors": {"0": ["1", "2"], "00": ["2", "3"]}}, "cursors.00: '00': a shard is a number"),
        ({"from": "2026-01-01T00:00:00", "to": "2026-01-02T00:00:00Z"}, "expected a time with its zone"),
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T08:00:00+08:00"}, "is not before `to`"),
        ({"cursors": {"7": ["1", "2"]}}, "has no shard 7"),
        ({"from": "2150-01-01T00:00:00Z", "to": "2151-01-01T00:00:00Z"}, "'2150-01-01T00:00:00Z': is yet to come"),
    ],
)
def test_a_backfill_that_asks_wrongly_fails_at_once_and_plans_nothing(
    put: Callable[[int], None], params: dict[str, Any], told: str
) -> None:
    with pytest.raises(AirflowFailException) as failed:
        SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run(**params))
    assert told in str(failed.value)
    ledger = LedgerHook().ledger()
    assert ledger.live("ad_events") == [] and ledger.troubles("ad_events") == []
    (deed,) = refused(ledger, "ad_events")
    assert deed.who == "tail/run-1" and str(deed.result).endswith(f"Error: {failed.value}")


def test_a_backfill_to_a_time_that_is_yet_to_come_ends_with_what_there_is_when_it_is_asked_for(
    put: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(5)
    plan = SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events")
    span: dict[str, Any] = {"from": "2026-01-01T00:00:00Z", "to": "2150-01-01T00:00:00Z"}
    planned = plan.execute(in_run(("backfill", "run-1"), **span))
    (shard,) = LedgerHook().ledger().shards("ad_events")
    assert planned["cursors"] == {str(shard.id): [str(shard.first), str(shard.first + 5)]}
    # Logs that come meanwhile are the tail's: without an end of its own the backfill would follow them for ever.
    put(3)
    rest = SlsHudiBackfillRestOperator(task_id="rest", pipeline="ad_events", planned=planned)
    with pytest.raises(AirflowSkipException, match="all of the backfill is covered or reserved"):
        rest.execute(in_run(("backfill", "run-1"), **span))
    (deed,) = LedgerHook().ledger().audit_entries("ad_events", 10)
    assert (deed.act, deed.result) == ("backfill", "nothing is left to read")

    LedgerHook().ledger().aborted(planned["transaction"], planned["token"], "so that all of it is left")
    triggered: list[Any] = []
    monkeypatch.setattr(
        TriggerDagRunOperator, "execute", lambda self, context: triggered.append((self.conf, self.note))
    )
    rest.execute(in_run(("backfill", "run-1"), **span))
    # Nobody named these cursors: of what expires before the next part it reads the rest.
    conf = {"cursors": planned["cursors"], "everything": True}
    assert triggered == [(conf, "Part 2 of backfill run-1: 1 ranges were left")]
    again = plan.execute(in_run(("backfill", "run-1.part2"), **triggered[0][0]))
    assert sum(map(len, LedgerHook().ledger().ranges(again["transaction"]))) == 5
    assert len(LedgerHook().ledger().audit_entries("ad_events", 10)) == 1, "both runs are parts of one backfill"


def test_what_no_param_is_is_refused_by_name(put: Callable[[int], None]) -> None:
    put(1)
    given: dict[str, Any] = {"form": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    told = "the run was given 'form', but the DAG's params are cursors, dry_run, everything, from, to"
    with pytest.raises(AirflowFailException, match=told):
        SlsHudiBackfillPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run(conf=given, **given))
    with pytest.raises(AirflowFailException, match=r"was given 'transaction', but the DAG's params are transactions"):
        SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events").execute(in_run(conf={"transaction": ["one"]}))


def test_a_second_try_of_a_plan_goes_on_in_the_place_of_the_first_that_died(
    put: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(2)
    with monkeypatch.context() as dies:
        dies.setattr(Ledger, "release", lambda *_: None)
        dies.setattr("airflow_provider_slshudi.ledger.transactions.this_process", lambda: "the first try")
        first = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    assert LedgerHook().ledger().get(first["transaction"]).process == "the first try"
    second = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    assert second == {"transaction": first["transaction"], "token": first["token"] + 1}
    assert LedgerHook().ledger().get(first["transaction"]).process is None, "others would take it for dead"


def test_a_plan_leaves_the_tail_to_another_run_that_was_first(put: Callable[[int], None]) -> None:
    first = planned_by(put, "run-1")
    put(1)
    with pytest.raises(AirflowSkipException, match=f"another run was first: run run-1 of tail .* {first.id}"):
        SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run(("tail", "run-2")))
    # A DAG of its own, a backfill's for example, goes on beside it.
    SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run(("another", "run-2")))


def test_a_run_that_somebody_triggered_has_a_batch_though_another_works(put: Callable[[int], None]) -> None:
    first = planned_by(put, "run-1")
    put(1)
    by_hand = in_run(("tail", "run-2"), run_type="manual")
    planned = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(by_hand)
    assert planned["transaction"] != first.id


def test_a_step_whose_transaction_changed_hands_fails_at_once(put: Callable[[int], None]) -> None:
    put(1)
    planned = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    LedgerHook().ledger().take_over(planned["transaction"])
    with pytest.raises(AirflowFailException, match="changed hands"):
        SlsHudiOpenOperator(task_id="open", pipeline="ad_events", transaction=planned).execute(in_run())


def test_a_step_out_of_order_fails_at_once(put: Callable[[int], None]) -> None:
    put(1)
    planned = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())
    with pytest.raises(AirflowFailException, match="is PLANNED, this step needs OPEN"):
        SlsHudiRecordOperator(task_id="record", pipeline="ad_events", transaction=planned).execute(in_run())


def test_a_step_without_a_plan_says_where_to_clear_from() -> None:
    with pytest.raises(AirflowFailException, match="clear the run from its settle task"):
        SlsHudiOpenOperator(task_id="open", pipeline="ad_events", transaction=None).execute(in_run())


def planned_by(put: Callable[[int], None], run_id: str, dag_id: str = "tail") -> Transaction:
    put(1)
    planned = SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run((dag_id, run_id)))
    return LedgerHook().ledger().get(planned["transaction"])


def test_settle_decides_for_ended_runs_and_for_no_others(put: Callable[[int], None]) -> None:
    ended, running, unknown = (planned_by(put, "run", name) for name in ("ended", "running", "unknown"))
    context = in_run(("tail", "next"), {"ended/run": "failed", "running/run": "running"})
    answer = SlsHudiSettleSensor(task_id="settle", pipeline="ad_events").poke(context)
    assert answer.is_done
    assert answer.xcom_value == [{"transaction": ended.id, "instant": None, "decision": "ABORT"}]
    ledger = LedgerHook().ledger()
    assert ledger.get(ended.id).state is State.ABORTED
    # A run that Airflow does not know may be another Airflow's: its heartbeat decides, and that is fresh.
    assert [item.id for item in ledger.live("ad_events")] == [running.id, unknown.id]


def called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Airflow's variable say that this Airflow has this name."""
    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", name)


def test_the_batch_of_a_run_that_was_deleted_is_decided_at_once(
    put: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    called("here", monkeypatch)
    deleted = planned_by(put, "run", "deleted")
    called("elsewhere", monkeypatch)
    of_another = planned_by(put, "run", "of another Airflow")
    settle = SlsHudiSettleSensor(task_id="settle", pipeline="ad_events")
    ledger = LedgerHook().ledger()

    called("here", monkeypatch)
    for unsure in (
        {"status_code": None, "message": "connection refused"},
        {"status_code": 502, "message": "bad gateway"},
        {"status_code": 404, "message": "Not Found", "detail": {"detail": "Not Found"}},
    ):
        assert settle.poke(in_run(("tail", "next"), answer=unsure)).xcom_value == []
    answer = settle.poke(in_run(("tail", "next")))
    assert answer.xcom_value == [{"transaction": deleted.id, "instant": None, "decision": "ABORT"}]
    assert ledger.get(deleted.id).state is State.ABORTED
    assert [item.id for item in ledger.live("ad_events")] == [of_another.id]


def test_a_task_that_is_only_tried_out_reserves_nothing(
    put: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(5)
    monkeypatch.setenv("AIRFLOW_TEST_MODE", "True")  # as `airflow tasks test` does
    for operator in (SlsHudiPlanOperator, SlsHudiBackfillPlanOperator):
        with pytest.raises(AirflowFailException, match="`airflow tasks test` plans nothing"):
            operator(task_id="plan", pipeline="ad_events").execute(in_run())
    assert LedgerHook().ledger().live("ad_events") == []


def test_settle_waits_while_something_cannot_be_known(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER", raising=False)
    assert not SlsHudiSettleSensor(task_id="settle", pipeline="ad_events").poke(in_run()).is_done


def test_settle_fails_at_once_where_a_person_has_to_look(pipelines: Path) -> None:
    with pytest.raises(AirflowFailException, match="no pipeline 'none'"):
        SlsHudiSettleSensor(task_id="settle", pipeline="none").poke(in_run())


def test_a_plan_that_may_work_later_is_left_to_retries(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SLSHUDI_LEDGER", raising=False)
    with pytest.raises(ConnectionMissing):
        SlsHudiPlanOperator(task_id="plan", pipeline="ad_events").execute(in_run())


def test_recovery_touches_a_running_transaction_only_where_it_is_named(put: Callable[[int], None]) -> None:
    running = planned_by(put, "running")
    recover = SlsHudiRecoverOperator(task_id="recover", pipeline="ad_events")
    states = {"tail/running": "running"}
    by_hand = ("recovery", "run-1")
    left = [{"transaction": running.id, "state": "PLANNED", "run": "tail/running"}]
    assert recover.execute(in_run(by_hand, states, transactions=None)) == {"settled": [], "left": left}

    with pytest.raises(AirflowFailException, match=rf"'nobody' does not wait .* these do: {running.id}"):
        recover.execute(in_run(by_hand, states, transactions=["nobody"]))

    done = recover.execute(in_run(by_hand, states, transactions=[running.id]))
    assert done["left"] == [] and done["settled"][0]["decision"] == "ABORT"
    with pytest.raises(AirflowFailException, match="changed hands"):
        SlsHudiOpenOperator(
            task_id="open", pipeline="ad_events", transaction={"transaction": running.id, "token": running.token}
        ).execute(in_run())


class Supervisor:
    """Answers what a task asks of Airflow's variables; its last answer stays."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.put = [*answers], list[str]()

    def send(self, message: object) -> object:
        if isinstance(message, PutVariable):
            self.put.append(str(message.value))
        if not isinstance(message, GetVariable):
            return None
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_an_airflow_that_does_not_tell_its_name_for_a_moment_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 502})
    unknown = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
    known = VariableResult(key="slshudi_airflow", value="here")
    for answers, name, put in (
        ([failed], "", 0),
        ([failed, known], "", 0),
        ([known], "here", 0),
        ([unknown], "", 1),
        ([unknown, unknown, known], "here", 1),
    ):
        supervisor = Supervisor(*answers)
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        assert this_airflow() == name
        assert len(supervisor.put) == put


@pytest.mark.parametrize(
    ("executor", "queued"),
    [("LocalExecutor", True), ("CeleryExecutor", False), ("LocalExecutor,CeleryExecutor", False)],
)
def test_airflow_is_asked_which_steps_of_a_run_have_a_worker(
    executor: str, queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LocalExecutor every task that is queued has one."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setattr(airflow_runs, "this_airflow", lambda: "here")

    def shown(*steps: str, airflow: str = "here", **tasks: str) -> str:
        run, named = Run("tail", "run-1", airflow), {name.replace("__", "."): state for name, state in tasks.items()}
        runs = AirflowRuns(in_run(states={"tail/run-1": "running"}, tasks=named)["ti"])
        assert runs(run) is (False if airflow else None)
        return runs.shown_step(run, steps)

    assert shown("open", "append", batch__open="success", batch__append="running") == "append running"
    assert not shown("open", "record", batch__open="success", batch__append="running")
    assert not shown("append", batch__append="scheduled")
    assert shown("append", batch__append="queued") == ("append queued" if queued else "")
    # A run without a name may be another Airflow's.
    assert not shown("append", airflow="", batch__append="running")
    # Of two batches in one run nobody knows whose step it is.
    assert not shown("open", "append", one__append="running", two__append="scheduled")
