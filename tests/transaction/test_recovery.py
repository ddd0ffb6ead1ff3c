"""Each row of the recovery table, made for real: a Hudi table, a ledger, drivers killed with SIGKILL.

Every scenario ends the same way: the next run settles, reads what is left, and each log is in the table once.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update
from typing_extensions import Self

from airflow_provider_slshudi.exceptions import (
    CommitStateUnknown,
    Fenced,
    IllegalTransition,
    JobFailed,
    LedgerAhead,
    LedgerLost,
    ManifestError,
    TimelineUnreadable,
)
from airflow_provider_slshudi.handover import ROOT, batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.handover.bound import digest_of
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.client import commit
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import engine as engine_module
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.models import transactions
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.repair.recover import decisions, recover
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.resolve import _commit_order
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario, forget_all_instants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOGS = 200
HALF_WAY = ["plan alone", "half of the files", "instant inflight", "instant requested", "instant gone"]
"""What a rollback of Hudi's may leave when it dies, from its first change to its last but one."""


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """A pipeline with one committed batch and logs waiting for the next."""
    made = scenario()
    made.put(LOGS)
    made.batch("run-before")
    made.put(LOGS, first=LOGS)
    return made


def settled(work: Work) -> list[Decision]:
    return [item.decision for item in settle(work, lambda run: True)]


def phase(pipeline: Scenario, transaction: Transaction) -> Phase | None:
    found = Timeline.load(pipeline.work.storage).get(transaction.instant or "")
    return found.phase if found else None


def base_files(pipeline: Scenario, instant: str | None) -> list[Path]:
    return list(Path(pipeline.work.storage.full("")).glob(f"event_date=*/*_{instant}.parquet"))


def assert_healthy(pipeline: Scenario, spark: SparkSession, logs: int = 2 * LOGS) -> None:
    """The next batch is a healthy one and every log is in the table once."""
    pipeline.put(10, first=logs)
    assert pipeline.batch("run-after").state is State.COMMITTED
    table = spark.read.format("hudi").load(pipeline.work.storage.full("")).select("event_id", "_hoodie_record_key")
    rows = table.collect()
    assert sorted(row["event_id"] for row in rows) == sorted(f"event-{n}" for n in range(logs + 10))
    assert len({row["_hoodie_record_key"] for row in rows}) == len(rows)
    assert pipeline.work.ledger.live("ad_events") == []
    assert Timeline.load(pipeline.work.storage).pending() == []


def test_planned_and_nothing_on_the_timeline_is_aborted(spark: SparkSession, pipeline: Scenario) -> None:
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    assert settled(pipeline.by("run-2")) == [Decision.ABORT]
    assert pipeline.work.ledger.get(planned.id).state is State.ABORTED
    assert_healthy(pipeline, spark)


def test_a_healthy_batch_is_left_alone_where_the_databases_clock_is_behind_the_workers(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Behind(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) - timedelta(minutes=11)

    monkeypatch.setattr(engine_module, "datetime", Behind)
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    # Of runs that Airflow does not know.
    done = recover(pipeline.by("run-2"), lambda run: None)
    assert (done.settled, [left.transaction for left in done.left]) == ([], [planned.id])
    assert (silent := re.match(r"its last heartbeat is (\d+) s old", done.left[0].why)) and int(silent[1]) < 300


def test_a_plan_that_died_right_after_it_had_begun_is_gone_on_with_by_its_retry(
    spark: SparkSession, pipeline: Scenario
) -> None:
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    again = plan.tail(pipeline.by("run-1"))
    assert again is not None and (again.id, again.token) == (planned.id, planned.token + 1)
    with pytest.raises(Fenced):
        steps.open_instant(pipeline.by("run-1"), planned.id, planned.token)
    steps.open_instant(pipeline.by("run-1"), again.id, again.token)
    assert settled(pipeline.by("run-2")) == [Decision.ROLL_BACK_AND_ABORT]
    assert_healthy(pipeline, spark)


@pytest.mark.parametrize(
    ("point", "decision"),
    [(Point.OPEN_OWNED, Decision.ABORT), (Point.OPEN_REQUESTED, Decision.ROLL_BACK_AND_ABORT)],
)
def test_a_driver_killed_while_it_opens_leaves_no_instant_behind(
    spark: SparkSession, pipeline: Scenario, point: Point, decision: Decision
) -> None:
    work = pipeline.by("run-1", launcher=DyingLauncher(point))
    with pytest.raises(JobFailed):
        pipeline.open(work)
    (planned,) = pipeline.work.ledger.live("ad_events")
    assert planned.state is State.PLANNED
    assert settled(pipeline.by("run-2")) == [decision]
    assert_healthy(pipeline, spark)


def test_an_opening_that_fails_before_its_instant_is_on_the_timeline_leaves_no_note(
    spark: SparkSession, pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk without inodes, which a drawn world had."""

    def full(storage: Storage, instant: str) -> None:
        raise TimelineUnreadable(f"{storage.uri}: no inodes for {instant}", table=storage.uri)

    with monkeypatch.context() as patched:
        patched.setattr(fencing, "admit", full)
        with pytest.raises(TimelineUnreadable, match="no inodes"):
            pipeline.open(pipeline.by("run-1"))
    assert not [name for name in pipeline.work.storage.names(ROOT) or [] if name.isdigit()]
    settled(pipeline.by("run-2"))
    assert_healthy(pipeline, spark)


@pytest.mark.parametrize(
    ("point", "left"),
    [
        (Point.APPEND_STARTED, Phase.REQUESTED),
        (Point.APPEND_INFLIGHT, Phase.INFLIGHT),
        (Point.APPEND_WRITTEN, Phase.INFLIGHT),
    ],
)
def test_a_driver_killed_while_it_appends_is_rolled_back_with_its_files(
    spark: SparkSession, pipeline: Scenario, point: Point, left: Phase
) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    with pytest.raises(JobFailed):
        steps.append(pipeline.by("run-1", launcher=DyingLauncher(point)), opened.id, opened.token)
    assert phase(pipeline, opened) is left
    assert bool(base_files(pipeline, opened.instant)) == (point is Point.APPEND_WRITTEN)
    assert settled(pipeline.by("run-2")) == [Decision.ROLL_BACK_AND_ABORT]
    assert phase(pipeline, opened) is None and base_files(pipeline, opened.instant) == []
    assert_healthy(pipeline, spark)


def test_open_and_rolled_back_by_somebody_is_aborted(spark: SparkSession, pipeline: Scenario) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    roll_back_by_hand(spark, pipeline, opened)
    assert settled(pipeline.by("run-2")) == [Decision.ABORT]
    assert_healthy(pipeline, spark)


def test_prepared_and_inflight_is_recommitted(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    files = base_files(pipeline, prepared.instant)
    with pytest.raises(CommitStateUnknown, match="the next settle recommits it"):
        steps.commit(pipeline.by("run-1", launcher=DyingLauncher(Point.COMMIT_STARTED)), prepared.id, prepared.token)
    assert phase(pipeline, prepared) is Phase.INFLIGHT
    assert settled(pipeline.by("run-2")) == [Decision.RECOMMIT]
    assert pipeline.work.ledger.get(prepared.id).state is State.COMMITTED
    assert base_files(pipeline, prepared.instant) == files
    assert_healthy(pipeline, spark)


def test_a_batch_whose_options_a_newer_version_refuses_is_committed(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    (order,) = Path(pipeline.work.storage.full(fencing.folder(str(prepared.instant)))).glob("batch-*.json")
    left = json.loads(order.read_text())
    left["pipeline"]["table"]["options"] = {"hoodie.base.path": "/elsewhere"}
    order.write_text(json.dumps(left))
    planned_so = {"order_digest": digest_of(order.read_bytes())}
    with pipeline.work.ledger._engine.begin() as connection:
        connection.execute(update(transactions).where(transactions.c.id == prepared.id).values(planned_so))
    assert steps.commit(pipeline.by("run-1"), prepared.id, prepared.token).state is State.COMMITTED
    assert_healthy(pipeline, spark)


def test_prepared_and_completed_is_marked_committed(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    with pytest.raises(JobFailed):
        order = _commit_order(pipeline.work, prepared)
        DyingLauncher(Point.COMMIT_COMPLETED).run(Verb.COMMIT, order, {})
    assert phase(pipeline, prepared) is Phase.COMPLETED
    assert settled(pipeline.by("run-2")) == [Decision.MARK_COMMITTED]
    assert_healthy(pipeline, spark)


def test_a_commit_whose_driver_dies_right_after_it_is_seen_to_have_happened(
    spark: SparkSession, pipeline: Scenario
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    work = pipeline.by("run-1", launcher=DyingLauncher(Point.COMMIT_COMPLETED))
    assert steps.commit(work, prepared.id, prepared.token).state is State.COMMITTED
    assert_healthy(pipeline, spark)


def test_prepared_and_rolled_back_by_somebody_is_read_again(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    roll_back_by_hand(spark, pipeline, prepared)
    with pytest.raises(IllegalTransition, match="ABORTED"):
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    assert pipeline.work.ledger.reserved("ad_events") == []
    assert_healthy(pipeline, spark)


@pytest.mark.parametrize("left", HALF_WAY)
def test_a_rollback_that_died_half_way_is_carried_on_and_never_committed(
    spark: SparkSession, pipeline: Scenario, tmp_path: Path, left: str
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    roll_back_half_way(spark, pipeline, prepared, tmp_path / "before", left)
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    with pytest.raises(IllegalTransition, match="ABORTED"):
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    (decided,) = decisions(pipeline.work.ledger.events(prepared.id))
    assert (decided.timeline, decided.decision) == ("ROLLING_BACK", Decision.ROLL_BACK_AND_ABORT)
    assert_rolled_back(pipeline, prepared)
    assert_healthy(pipeline, spark)


@pytest.mark.parametrize("left", ["instant inflight", "instant gone"])
def test_a_rollback_of_an_aborted_transactions_instant_that_died_half_way_is_carried_on(
    spark: SparkSession, pipeline: Scenario, tmp_path: Path, left: str
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    roll_back_half_way(spark, pipeline, prepared, tmp_path / "before", left)
    pipeline.work.ledger.aborted(prepared.id, prepared.token, "by hand")
    assert settled(pipeline.by("run-2")) == [Decision.ROLL_BACK]
    assert_rolled_back(pipeline, prepared)
    assert_healthy(pipeline, spark)


def test_committed_and_completed_is_left_alone(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    again = steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    assert again.state is State.COMMITTED
    assert settled(pipeline.by("run-2")) == []
    assert_healthy(pipeline, spark)


def test_committed_and_gone_from_the_timeline_stops(pipeline: Scenario) -> None:
    before = pipeline.work.ledger.latest_committed("ad_events")
    assert before is not None
    forget_all_instants(pipeline)
    with pytest.raises(LedgerAhead, match="slshudi ledger rebuild ad_events") as stopped:
        settle(pipeline.by("run-1"), lambda run: True)
    assert (stopped.value.transaction, stopped.value.instant) == (before.id, before.instant)


def test_a_timeline_that_cannot_be_read_decides_nothing(spark: SparkSession, pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    folder = Path(pipeline.work.storage.full(".hoodie/timeline"))
    folder.rename(folder.with_name("away"))
    with pytest.raises(TimelineUnreadable):
        settle(pipeline.by("run-2"), lambda run: True)
    folder.write_text("not a folder")
    with pytest.raises(TimelineUnreadable):
        settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    folder.unlink()
    folder.with_name("away").rename(folder)
    assert settled(pipeline.by("run-4")) == [Decision.RECOMMIT]
    assert_healthy(pipeline, spark)


@pytest.mark.parametrize("lost_while", ["inflight", "completed"])
def test_an_instant_of_ours_that_the_ledger_does_not_know_stops(
    pipeline: Scenario, tmp_path: Path, lost_while: str
) -> None:
    unknown = pipeline.work.ledger.latest_committed("ad_events")
    if lost_while == "inflight":
        unknown = pipeline.prepare(pipeline.by("run-1"))
    assert unknown is not None
    engine = open_engine(f"sqlite:///{tmp_path / 'new-ledger.db'}")
    migrate(engine)
    with pytest.raises(LedgerLost, match="slshudi ledger rebuild ad_events") as stopped:
        settle(pipeline.by("run-2", ledger=Ledger(engine)), lambda run: True)
    assert (stopped.value.transaction, stopped.value.instant) == (unknown.id, unknown.instant)
    engine.dispose()


def test_an_instant_that_a_fenced_driver_opened_late_is_rolled_back(spark: SparkSession, pipeline: Scenario) -> None:
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    assert settled(pipeline.by("run-2")) == [Decision.ABORT]
    late = pipeline.work.order(transaction=planned.id, token=planned.token)
    pipeline.work.launcher.run(Verb.OPEN, late, {})
    assert settled(pipeline.by("run-3")) == [Decision.ROLL_BACK]
    assert_healthy(pipeline, spark)


def test_a_second_instant_of_one_transaction_is_rolled_back(spark: SparkSession, pipeline: Scenario) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    again = pipeline.work.order(transaction=opened.id, token=opened.token)
    pipeline.work.launcher.run(Verb.OPEN, again, {})
    assert len(Timeline.load(pipeline.work.storage).pending()) == 2
    assert settle(pipeline.by("run-2"), lambda run: False) != []
    assert [item.time for item in Timeline.load(pipeline.work.storage).pending()] == [opened.instant]
    assert settled(pipeline.by("run-3")) == [Decision.ROLL_BACK_AND_ABORT]
    assert_healthy(pipeline, spark)


def test_a_run_whose_transaction_was_taken_over_is_refused_at_every_step(
    spark: SparkSession, pipeline: Scenario
) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), opened.id, opened.token)
    taken = pipeline.work.ledger.take_over(opened.id)
    for step in (steps.open_instant, steps.append, steps.record, steps.commit):
        with pytest.raises(Fenced, match="changed hands"):
            step(pipeline.by("run-1"), opened.id, opened.token)
    # The manifest that the old token left is none of the new one's.
    with pytest.raises(ManifestError, match="no manifest"):
        steps.record(pipeline.by("run-2"), taken.id, taken.token)
    assert settled(pipeline.by("run-3")) == [Decision.ROLL_BACK_AND_ABORT]
    assert_healthy(pipeline, spark)


def test_a_live_transaction_of_a_running_run_is_let_be(pipeline: Scenario) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    assert settle(pipeline.by("run-2"), lambda run: False) == []
    assert settle(pipeline.by("run-2"), lambda run: None) == []
    assert pipeline.work.ledger.get(opened.id).token == opened.token


def test_a_manifest_that_was_changed_after_it_was_recorded_is_not_committed(pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    manifest, _ = Attempt(pipeline.work.storage, prepared.id, prepared.instant or "", prepared.token).manifest()
    manifest.stats.pop()
    batch_files.write_manifest(pipeline.work.storage, manifest)
    with pytest.raises(ManifestError, match="is not the one that was recorded"):
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    assert phase(pipeline, prepared) is Phase.INFLIGHT


def roll_back_by_hand(spark: SparkSession, pipeline: Scenario, transaction: Transaction) -> None:
    """What an operator's own Hudi client would do."""
    commit.roll_back(Gateway.of(spark.sparkContext), pipeline.work.pipeline, transaction.instant or "")


def roll_back_half_way(
    spark: SparkSession, pipeline: Scenario, transaction: Transaction, before: Path, left: str
) -> None:
    """Leaves what an operator's Hudi client leaves that dies while it rolls back: parts of a rollback's true outcome.

    Hudi 1.2.0 writes the plan, goes inflight, deletes files, tells the metadata table, deletes the instant's inflight
    and then its requested file, completes the rollback, and deletes the markers.
    """
    table, timeline = Path(pipeline.work.storage.full("")), ".hoodie/timeline"
    markers = f".hoodie/.temp/{transaction.instant}"
    shutil.copytree(table, before)
    roll_back_by_hand(spark, pipeline, transaction)
    (completed,) = (table / timeline).glob("*_*.rollback")
    completed.unlink()
    if left in ("plan alone", "half of the files"):
        plans = {path.name: path.read_bytes() for path in (table / timeline).glob("*.rollback.*")}
        shutil.rmtree(table)
        shutil.copytree(before, table)
        for name, content in plans.items():
            if left == "half of the files" or name.endswith("requested"):
                (table / timeline / name).write_bytes(content)
        files = base_files(pipeline, transaction.instant)
        assert len(files) > 1
        for file in files[::2] if left == "half of the files" else []:
            file.unlink()
        return
    shutil.copytree(before / markers, table / markers)
    there = {"instant inflight": ["commit.requested", "inflight"], "instant requested": ["commit.requested"]}
    for suffix in there.get(left, []):
        name = f"{timeline}/{transaction.instant}.{suffix}"
        shutil.copy(before / name, table / name)


def assert_rolled_back(pipeline: Scenario, transaction: Transaction) -> None:
    timeline = Timeline.load(pipeline.work.storage)
    assert timeline.pending() == [] and timeline.was_rolled_back(transaction.instant or "")
    assert base_files(pipeline, transaction.instant) == []
    for folder in (".hoodie/.temp", ".hoodie/slshudi"):
        assert not pipeline.work.storage.exists(f"{folder}/{transaction.instant}")
    assert pipeline.work.ledger.reserved("ad_events") == []


@pytest.mark.parametrize("told", ["the later", "nothing yet"])
def test_of_two_completions_that_say_the_same_the_earlier_stays(
    spark: SparkSession, pipeline: Scenario, told: str
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    if told == "the later":
        steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    else:
        pipeline.work.launcher.run(Verb.COMMIT, _commit_order(pipeline.work, prepared), {})
    earlier, later = completed_again(pipeline, prepared)
    checksum = later.with_name(f".{later.name}.crc")
    checksum.touch()
    with pytest.raises(TimelineUnreadable, match="completed 2 times"):
        phase(pipeline, prepared)

    assert settled(pipeline.by("run-2")) == ([] if told == "the later" else [Decision.MARK_COMMITTED])
    assert (earlier.exists(), later.exists(), checksum.exists()) == (True, False, False)
    assert pipeline.work.ledger.get(prepared.id).completed == earlier.name.split(".")[0].split("_")[1]
    (note,) = [event for event in pipeline.work.ledger.events(prepared.id) if event.what == "completed once"]
    assert earlier.name in note.detail and later.name in note.detail
    assert_healthy(pipeline, spark)


def test_two_completions_that_differ_are_left_to_a_person_and_both_named(pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    steps.commit(pipeline.by("run-1"), prepared.id, prepared.token)
    timeline = Path(pipeline.work.storage.full(".hoodie/timeline"))
    other = next(file for file in timeline.glob("*.commit") if not file.name.startswith(f"{prepared.instant}_"))
    earlier, later = completed_again(pipeline, prepared, other.read_bytes())
    with pytest.raises(TimelineUnreadable, match="remove the extra file after comparing") as caught:
        settled(pipeline.by("run-2"))
    assert earlier.name in str(caught.value) and later.name in str(caught.value)
    assert earlier.exists() and later.exists()


def completed_again(pipeline: Scenario, transaction: Transaction, content: bytes | None = None) -> tuple[Path, Path]:
    """A second completion of a transaction's instant, a moment before the one that is there; both files."""
    timeline = Path(pipeline.work.storage.full(".hoodie/timeline"))
    (later,) = timeline.glob(f"{transaction.instant}_*.commit")
    completion = int(later.name.split(".")[0].split("_")[1])
    earlier = timeline / f"{transaction.instant}_{completion - 1}.commit"
    earlier.write_bytes(content or later.read_bytes())
    return earlier, later
