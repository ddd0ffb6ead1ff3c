"""Errors that pass by themselves, once what made them is over: nobody presses a button that mends."""

from __future__ import annotations

from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.ledger.records import Kind
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage
from tests.waiting import until

SCENARIOS = Scenarios()
UPSERTS = {"upsert": {"record_key": "event_id", "buckets": 1}, "partition": None}


def _passes(stage: Stage, error: str, says: str, **fault: str) -> str:
    """The service does something wrong for longer than the retries of a call last, and then right again."""
    stage.put(100)
    stage.world.disturb(stage.logstore, fault)
    run = stage.begin()
    failure = stage.sees(error, says)
    assert "which tries again by itself" in failure.inner_text()
    stage.world.disturb(stage.logstore, None)
    stage.succeeds(run)
    stage.is_well()
    return "nothing: Airflow's retry goes on"


@SCENARIOS.of("SourceUnavailable")
def source_unavailable(stage: Stage) -> str:
    """The service answers with errors of its own."""
    return _passes(stage, "SourceUnavailable", "InternalServerError", do="error")


@SCENARIOS.of("SourceThrottled")
def source_throttled(stage: Stage) -> str:
    """The requests hit a quota."""
    return _passes(stage, "SourceThrottled", "ReadQuotaExceed", do="quota")


@SCENARIOS.of("SourceCorrupt")
def source_corrupt(stage: Stage) -> str:
    """The list of shards arrives without its last third."""
    return _passes(stage, "SourceCorrupt", "it was not believed", operations="list_shards", do="truncate")


@SCENARIOS.of("BatchUnderWay", table=UPSERTS)
def batch_under_way(stage: Stage) -> str:
    """A table with upserts, and a batch of a backfill that was left to somebody else."""
    stage.before()
    stage.put(50)
    with stage.built() as pipeline:
        work = pipeline.by("by-hand")
        prepared = pipeline.prepare(work)
    stage.put(50)
    run = stage.run_now()
    failure = stage.sees("BatchUnderWay", "one batch after the other")
    assert "which tries again by itself" in failure.inner_text()
    with stage.built():
        steps.commit(work, prepared.id, prepared.token)
    stage.succeeds(run)
    stage.is_well()
    return "nothing: the run goes on once that batch is over"


@SCENARIOS.of("TailUnderWay")
def tail_under_way(stage: Stage) -> str:
    """A second run begins while the first appends. It is no trouble, and the page shows none."""
    first = stage.run_held_at(Point.APPEND_LAUNCHED)
    second = stage.run_now()
    until(
        "the second run waits",
        lambda: "up_for_reschedule" in stage.world.airflow.tasks(stage.tail, second).values(),
        explain=stage.explain,
    )
    log = stage.world.airflow.task_log(stage.tail, second, "batch.settle")
    assert "begins once that one is committed or aborted" in log, log
    assert "a batch is under way" in stage.window.pipeline(stage.name).inner_text("main")
    stage.is_well()
    stage.release()
    stage.succeeds(first)
    stage.succeeds(second)
    stage.is_well()
    return "nothing: the second run waits; the page says that a batch is under way"


@SCENARIOS.of("Fenced")
def fenced(stage: Stage) -> str:
    """Somebody has a batch decided, on its page, within one of its steps. It is no trouble, and the page shows none."""
    run = stage.run_held_at(Point.OPEN_TOLD)
    (live,) = stage.world.ledger.live(stage.name)
    stage.window.open(f"/transactions/{live.id}")
    assert "ROLL_BACK_AND_ABORT" in stage.act(Act.RECOVER)
    stage.release()
    stage.fails(run)
    assert "changed hands" in stage.world.airflow.task_log(stage.tail, run, "batch.open")
    stage.is_well()
    stage.goes_on()
    return "nothing: the next run reads the ranges again"


@SCENARIOS.of("IllegalTransition")
def illegal_transition(stage: Stage) -> str:
    """Somebody clears a single task of a batch that is committed."""
    stage.put(100)
    run = stage.begin()
    stage.succeeds(run)
    cleared = {"dry_run": False, "dag_run_id": run, "task_ids": ["batch.append"], "only_failed": False}
    # The run itself succeeds once more: its last task did.
    stage.world.airflow.post(f"dags/{stage.tail}/clearTaskInstances", cleared)
    stage.sees("IllegalTransition", "the batch is in the table, and nothing is left to do")
    stage.goes_on()
    return "nothing: the next run goes on"


@SCENARIOS.of("RangeConflict")
def range_conflict(stage: Stage) -> str:
    """A planner that lost its lease long ago reserves what another one is about to reserve."""
    run = stage.run_held_at(Point.PLAN_BEGINNING)
    ledger = stage.world.ledger
    (shard,) = ledger.shards(stage.name)
    (read,) = ledger.coverage(stage.name)
    taken = Range(shard.id, read.end, int(shard.end or 0))
    rival = ledger.begin(stage.name, Kind.TAIL, [taken], stage.tail, "late")
    stage.release()
    stage.fails(run)
    stage.sees("RangeConflict")
    ledger.aborted(rival.id, rival.token, "it is not needed")
    stage.goes_on()
    return "nothing: the next run plans again"
