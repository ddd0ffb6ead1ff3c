"""Logs that do not fit go into a table of their own, in the same transaction: both tables have a batch, or neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from aliyun.log import LogItem, PutLogsRequest
from sqlalchemy import delete

from airflow_provider_slshudi.exceptions import CommitStateUnknown, JobFailed, TableMismatch, TooManyMisfits
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.services.maintenance import archive, clean
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from airflow_provider_slshudi.transaction.tables import TransactionTables
from tests.pipelines import ad_events
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.quarantined import LOGS, aside, assert_each_once, changed, rows_of
from tests.transaction.served import batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """A hundred logs wait, of which each tenth says `clicks: none`."""
    made = scenario(misfits="quarantine")
    made.put(LOGS)
    return made


@pytest.mark.capability("quarantine")
def test_a_log_that_does_not_fit_is_in_the_quarantine_as_it_was_given(pipeline: Scenario, spark: SparkSession) -> None:
    item = LogItem(1_700_000_999, contents=[("event_id", "odd"), ("ts", "0"), ("clicks", b"\xff"), ("k", "v")])
    request = PutLogsRequest("ads", pipeline.work.pipeline.source.logstore, "ads", "10.0.0.1", [item])
    request.set_log_tags([("host", "web-1")])
    pipeline.client.put_logs(request)
    batch = pipeline.batch("run-1")
    assert batch.rows == LOGS + 1
    assert batch.manifest is not None
    assert (batch.manifest["quarantined"], batch.manifest["misfits"]) == (11, {"clicks": 11})
    assert_each_once(pipeline, LOGS + 1, 11)
    (row,) = [row for row in rows_of(pipeline.work.pipeline.quarantine_path) if row["value"] == b"\xff"]
    told = ("column_name", "type_wanted", "reason", "pipeline", "transaction_id", "topic", "source")
    assert [row[name] for name in told] == [
        *("clicks", "bigint", "not_utf8", "ad_events"),
        *(batch.id, b"ads", b"10.0.0.1"),
    ]
    assert row["_hoodie_record_key"] == f"{row['shard']}-{row['cursor']}-{row['log_index']}"
    assert row["_hoodie_commit_time"] == batch.instant
    assert row["log_time"].timestamp() == 1_700_000_999
    assert row["planned"].timestamp() == int(batch.created.timestamp())
    contents = {pair["key"]: pair["value"] for pair in row["contents"]}
    assert contents == {b"event_id": b"odd", b"ts": b"0", b"clicks": b"\xff", b"k": b"v", b"__tag__:host": b"web-1"}
    read = spark.read.format("hudi").load(pipeline.work.pipeline.quarantine_path)
    assert read.where("cast(value as string) = 'none'").count() == 10
    assert read.selectExpr("explode(contents) as p").where("cast(p.key as string) = 'city'").count() == 10


def test_a_batch_whose_logs_all_fit_leaves_the_quarantine_alone(scenario: Make) -> None:
    pipeline = scenario(misfits="quarantine")
    pipeline.put(9, first=1)
    batch = pipeline.batch("run-1")
    assert batch.manifest is not None and batch.manifest["quarantined"] is None
    assert list(aside(pipeline)) == []


def test_more_misfits_than_allowed_fail_the_batch_before_anything_is_committed(scenario: Make) -> None:
    pipeline = scenario(misfits="quarantine", max_misfits=0.09)
    pipeline.put(LOGS)
    work = pipeline.by("run-1")
    opened = pipeline.open(work)
    steps.append(work, opened.id, opened.token)
    with pytest.raises(TooManyMisfits, match=r"10 of 100 logs .* \(clicks: 10\)") as refused:
        steps.record(work, opened.id, opened.token)
    assert (refused.value.misfits, refused.value.logs, refused.value.share) == (10, 100, 0.09)
    settle(pipeline.by("run-2"), lambda run: True)
    assert pipeline.work.ledger.get(opened.id).state is State.ABORTED
    assert aside(pipeline).pending() == Timeline.load(work.storage).pending() == []
    assert not list(Path(Storage(work.pipeline.quarantine_path).full("")).glob("*.parquet"))
    assert changed(pipeline, max_misfits=0.1).batch("run-3").state is State.COMMITTED
    assert_each_once(pipeline, LOGS, 10)


def test_nullified_logs_count_for_the_bound_too(scenario: Make) -> None:
    pipeline = scenario(max_misfits=0.09)
    pipeline.put(LOGS)
    with pytest.raises(TooManyMisfits, match="10 of 100 logs"):
        pipeline.batch("run-1")


def prepared(pipeline: Scenario) -> Transaction:
    return pipeline.prepare(pipeline.by("run-1"))


def test_who_rolled_the_main_instant_back_leaves_the_quarantines_to_settle(
    pipeline: Scenario, spark: SparkSession
) -> None:
    from airflow_provider_slshudi.hudi.client import commit
    from airflow_provider_slshudi.hudi.client.gateway import Gateway

    batch = prepared(pipeline)
    found = aside(pipeline).get(str(batch.instant))
    assert found is not None and found.phase is Phase.INFLIGHT
    commit.roll_back(Gateway.of(spark.sparkContext), pipeline.work.pipeline, str(batch.instant))
    settle(pipeline.by("run-2"), lambda run: True)
    assert aside(pipeline).get(str(batch.instant)) is None
    assert pipeline.batch("run-3").state is State.COMMITTED
    assert_each_once(pipeline, LOGS, 10)


def test_a_quarantined_batch_that_somebody_took_away_is_for_a_person(pipeline: Scenario, spark: SparkSession) -> None:
    from airflow_provider_slshudi.hudi import beside as quarantine
    from airflow_provider_slshudi.hudi.client import commit
    from airflow_provider_slshudi.hudi.client.gateway import Gateway

    batch = prepared(pipeline)
    made = quarantine.table_of(pipeline.work.pipeline)
    commit.roll_back(Gateway.of(spark.sparkContext), made, str(batch.instant))
    for act in (
        lambda: steps.commit(pipeline.by("run-1"), batch.id, batch.token),
        lambda: settle(pipeline.by("run-2"), lambda run: True),
    ):
        with pytest.raises(TableMismatch, match="slshudi abandon"):
            act()
    abandon(pipeline.by("abandon"), batch.id, "its part in the quarantine was rolled back")
    assert pipeline.batch("run-3").rows == batch.rows


def test_of_a_committed_batch_whose_quarantined_logs_somebody_took_away_both_tables_are_to_be_restored(
    pipeline: Scenario, spark: SparkSession
) -> None:
    from airflow_provider_slshudi.hudi import beside as quarantine
    from airflow_provider_slshudi.hudi.client import commit
    from airflow_provider_slshudi.hudi.client.gateway import Gateway

    batch = prepared(pipeline)
    with pytest.raises(CommitStateUnknown):
        steps.commit(pipeline.by("run-1", launcher=DyingLauncher(Point.COMMIT_COMPLETED)), batch.id, batch.token)
    made = quarantine.table_of(pipeline.work.pipeline)
    commit.roll_back(Gateway.of(spark.sparkContext), made, str(batch.instant))
    with pytest.raises(TableMismatch, match="Restore both tables"):
        settle(pipeline.by("run-2"), lambda run: True)


def test_an_instant_that_a_given_up_driver_left_in_the_quarantine_is_rolled_back(
    pipeline: Scenario, spark: SparkSession
) -> None:
    from airflow_provider_slshudi.hudi.beside import Beside
    from airflow_provider_slshudi.hudi.client import beside
    from airflow_provider_slshudi.hudi.client.gateway import Gateway

    opened = pipeline.open(pipeline.by("run-1"))
    settle(pipeline.by("run-2"), lambda run: True)
    table = Beside.quarantine(pipeline.work.pipeline)
    beside.open_instant(Gateway.of(spark.sparkContext), table, str(opened.instant))
    assert aside(pipeline).pending()
    settle(pipeline.by("run-3"), lambda run: True)
    assert aside(pipeline).pending() == []


def test_nobody_sees_a_batch_in_the_quarantine_before_it_is_committed(pipeline: Scenario, spark: SparkSession) -> None:
    """Also where a batch that was planned later is committed first, which the quarantine's readers go by."""
    early = pipeline.open(pipeline.by("run-1"))
    pipeline.put(10, first=LOGS)
    assert pipeline.prepare(pipeline.by("run-2")).rows == 10
    steps.append(pipeline.by("run-1"), early.id, early.token)
    late = pipeline.work.ledger.live("ad_events")[-1]
    steps.commit(pipeline.by("run-2"), late.id, late.token)
    path = pipeline.work.pipeline.quarantine_path
    assert len(list(Path(Storage(path).full("")).glob("*.parquet"))) >= 2
    assert [row["_hoodie_commit_time"] for row in rows_of(path)] == [late.instant]
    assert spark.read.format("hudi").load(path).count() == 1
    steps.record(pipeline.by("run-1"), early.id, early.token)
    steps.commit(pipeline.by("run-1"), early.id, early.token)
    assert_each_once(pipeline, LOGS + 10, 11)
    assert spark.read.format("hudi").load(path).count() == 11


def test_late_logs_go_to_the_quarantine_and_verify_knows(scenario: Make) -> None:
    bounds = {"late": "36500d", "future": "1h", "rule": "quarantine"}
    partition = {"by": "event_time", "column": "event_time", "bounds": bounds}
    pipeline = scenario()
    table = {**pipeline.work.pipeline.table.model_dump(mode="json"), "partition": partition}
    pipeline = changed(pipeline, table=table)
    pipeline.put(10)
    far = [("event_id", "far"), ("ts", str(4_000_000_000_000)), ("clicks", "7")]
    item = LogItem(1_700_000_500, contents=far)
    source = pipeline.work.pipeline.source
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", [item]))
    batch = pipeline.batch("run-1")
    (row,) = rows_of(pipeline.work.pipeline.quarantine_path)
    assert (row["column_name"], row["reason"], row["value"]) == ("event_time", "future", b"4000000000000")
    assert_each_once(pipeline, 11, 1)
    proof = verify(pipeline.work, source=True)
    assert proof.ok and proof.totals.quarantined == 1 and proof.totals.compared == 2
    assert batch.manifest is not None and batch.manifest["misfits"] == {"clicks": 1, "event_time": 1}


@pytest.mark.parametrize("point", [Point.APPEND_WRITTEN, Point.COMMIT_COMPLETED])
def test_a_rebuilt_ledger_settles_what_the_quarantine_has_pending(pipeline: Scenario, point: Point) -> None:
    """A ledger that was lost while a driver was between the two tables."""
    work = pipeline.by("run-1")
    dying = replace(work, launcher=DyingLauncher(point))
    opened = pipeline.open(work)
    if point is Point.APPEND_WRITTEN:
        with pytest.raises(JobFailed):
            steps.append(dying, opened.id, opened.token)
    else:
        steps.append(work, opened.id, opened.token)
        steps.record(work, opened.id, opened.token)
        with pytest.raises(CommitStateUnknown, match=r"not yet in .*_quarantine beside it;"):
            steps.commit(dying, opened.id, opened.token)
        # Neither what the main table has of it already nor what the quarantine lacks counts yet.
        between = verify(pipeline.work)
        assert between.ok and between.rows == 0
    assert [instant.time for instant in aside(pipeline).pending()] == [opened.instant]
    with pipeline.work.ledger._engine.begin() as connection:
        for table in reversed(models.metadata.sorted_tables):
            connection.execute(delete(table))
    rebuilt = rebuild(work)
    assert rebuilt.committed == (point is Point.COMMIT_COMPLETED)
    assert aside(pipeline).pending() == []
    if point is Point.APPEND_WRITTEN:
        pipeline.batch("run-2")
    assert_each_once(pipeline, LOGS, 10)
    assert verify(pipeline.work).ok


def test_the_quarantine_is_archived_but_not_past_what_may_yet_come_to_it(scenario: Make) -> None:
    kept = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    pipeline = scenario(misfits="quarantine", maintenance=kept)
    table = pipeline.work.pipeline.table.model_dump(mode="json")
    pipeline = changed(pipeline, table={**table, "options": {"hoodie.metadata.compact.max.delta.commits": "1"}})
    pipeline.put(10)
    early = pipeline.open(pipeline.by("run-0"))
    for number in range(1, 6):
        pipeline.put(10, first=10 * number)
        beside = pipeline.prepare(pipeline.by(f"run-{number}"))
        steps.commit(pipeline.by(f"run-{number}"), beside.id, beside.token)
    archive(pipeline.work)
    assert len(aside(pipeline).completed("commit")) == 5, "the first batch may yet have misfits"
    work = pipeline.by("run-0")
    steps.append(work, early.id, early.token)
    steps.record(work, early.id, early.token)
    steps.commit(work, early.id, early.token)
    archive(pipeline.work)
    assert len(aside(pipeline).completed("commit")) <= 3
    clean(pipeline.work)
    pipeline.put(10, first=60)
    pipeline.batch("run-6")
    assert_each_once(pipeline, 70, 7)
    assert verify(pipeline.work).ok


@pytest.mark.parametrize("table", ["file:///lake/events", "hdfs://node/lake/events", "s3a://lake/events"])
def test_former_quarantines_on_a_mount_are_asked_before_a_step_reads_them(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Storage, "require_answer", lambda self, _: asked.append(self.uri))
    monkeypatch.setattr(Storage, "read", lambda *_: b"1 file:///mnt/former\nfile:///mnt/older")
    work = Mock(storage=Storage(table), pipeline=ad_events(table))
    TransactionTables.of(work).require_answer(1.0)
    former = [] if table.startswith("s3a:") else ["file:///mnt/former", "file:///mnt/older"]
    assert asked[0] == table and sorted(asked[1:]) == sorted([*former, f"{table}_quarantine"])


def test_services_of_a_quarantine_do_without_the_columns_that_the_table_is_sorted_by(
    scenario: Callable[..., Scenario],
) -> None:
    pipeline = scenario(shards=1, misfits="quarantine", maintenance={"clustering": {"sort": ["clicks"]}})
    batches(pipeline, 1)
    assert metadata.rebuild_metadata(pipeline.by("rebuild"))[1].ok
    clean(pipeline.by("clean"))
    archive(pipeline.by("archive"))
