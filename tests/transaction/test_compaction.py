"""Compaction beside batches: rows stay as they are, what is prepared goes on top, what died is undone or completed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import JobFailed, LeaseHeld
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import Rewritten, cluster, compact
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from tests.scenarios import DyingLauncher, Meanwhile, Scenario
from tests.transaction.checks import phase
from tests.upserts import Change, Model, file_groups_of, put, rows_by_rust, rows_by_spark, write_by_data_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(upserts: Callable[..., Scenario], spark: SparkSession) -> Table:
    made = upserts()
    kept = {"compact_after": 2, "keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    described = made.work.pipeline.model_dump(mode="json")
    # Hudi archives nothing that the metadata table has not compacted.
    described["table"]["options"] = {"hoodie.metadata.compact.max.delta.commits": "1"}
    pipeline = Pipeline.model_validate({**described, "maintenance": kept})
    return Table(replace(made, work=replace(made.work, pipeline=pipeline)), spark)


def size(files: set[Path]) -> int:
    return sum(file.stat().st_size for file in files)


class Table:
    """A Merge-On-Read table with little to wait for, beside what it has to hold."""

    def __init__(self, scenario: Scenario, spark: SparkSession) -> None:
        self.scenario, self._spark, self._at = scenario, spark, 0
        upsert = scenario.work.pipeline.table.upsert
        assert upsert is not None
        self._model = Model(upsert)

    def changes(self) -> list[Change]:
        """New rows, updates and deletes, after all before."""
        self._at += 1
        first = 20 * self._at
        new = [Change(f"c{number}", self._at, "ab"[number % 2], number) for number in range(first, first + 20)]
        old = range(max(20, first - 20), first)
        return [
            *new,
            *(Change(f"c{n}", self._at, "ab"[n % 2], -n, is_deleted=n % 5 == 0) for n in old),
        ]

    def batch(self, run: str = "run-1") -> None:
        """A committed batch."""
        self.scenario.batch(self.put(run))

    def put(self, run: str = "run-1") -> str:
        """Logs that the next batch reads."""
        changes = self.changes()
        put(self.scenario.client, self.scenario.work.pipeline, changes)
        self._model.batch(changes)
        return run

    def by_data_source(self) -> None:
        """A batch by Hudi's own writer."""
        changes = self.changes()
        write_by_data_source(self._spark, self.scenario.work.pipeline, changes)
        self._model.batch(changes)

    def check(self) -> None:
        """Both readers find what the model has, and no partition has more file groups than buckets."""
        storage, expected = self.scenario.work.storage, self._model.table()
        assert rows_by_rust(storage.uri) == rows_by_spark(self._spark, storage.full("")) == expected
        assert all(len(ids) <= 4 for ids in file_groups_of(self.root).values())

    @property
    def root(self) -> Path:
        return Path(self.scenario.work.storage.full(""))

    @property
    def timeline(self) -> Timeline:
        return Timeline.load(self.scenario.work.storage)

    def files(self, pattern: str) -> set[Path]:
        """Data files by their names."""
        return set(self.root.glob(f"region=*/{pattern}"))


@pytest.mark.capability("compaction")
def test_log_files_become_base_files_and_a_prepared_batch_goes_on_top(table: Table) -> None:
    pipeline = table.scenario
    table.batch()
    assert compact(pipeline.by("maintenance")) == Rewritten(None), "one commit is not enough"
    table.batch()
    table.check()
    there = table.files("*.parquet") | table.files(".*.log.*")
    waiting = pipeline.prepare(pipeline.by(table.put("run-waiting")))
    files = table.files("*.parquet")
    done = compact(pipeline.by("maintenance"))
    made = table.files("*.parquet") - files
    assert done == Rewritten(done.instant, len(there), size(there), len(made), size(made))
    assert (len(there), len(made)) == (16, 8) and done.into_bytes < done.bytes
    assert phase(pipeline, waiting) is Phase.INFLIGHT
    assert not pipeline.work.storage.exists(f".hoodie/slshudi/{done.instant}")
    assert compact(pipeline.by("maintenance")) == Rewritten(None)

    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    table.check()
    table.batch()
    again = compact(pipeline.by("maintenance"))
    # Each base file and the logs of two batches on top, that which was prepared before among them.
    assert (again.files, again.into_files) == (24, 8)
    table.check()


def test_batches_commit_while_log_files_are_read_and_a_second_service_is_refused(table: Table) -> None:
    pipeline = table.scenario
    for _ in range(2):
        table.batch()

    def meanwhile() -> None:
        table.batch()
        table.check()
        with pytest.raises(LeaseHeld, match="maintenance"):
            compact(pipeline.by("another"))

    launcher = Meanwhile(pipeline.work.launcher, Verb.COMPACT, meanwhile)
    assert compact(pipeline.by("maintenance", launcher=launcher)).into_files == 8
    assert table.timeline.pending() == []
    table.check()
    table.batch()
    assert compact(pipeline.by("maintenance")).files == 24
    table.check()


@pytest.mark.parametrize("point", [Point.COMPACT_WRITTEN, Point.COMPACT_STARTED])
def test_one_whose_driver_is_killed_is_undone_before_its_manifest_and_completed_after_it(
    table: Table, point: Point
) -> None:
    pipeline = table.scenario
    for _ in range(2):
        table.batch()
    with pytest.raises(JobFailed):
        compact(pipeline.by("maintenance", launcher=DyingLauncher(point)))
    (left,) = table.timeline.pending()
    assert left.action == "compaction" and left.phase is Phase.INFLIGHT
    table.check()
    waiting = pipeline.prepare(pipeline.by(table.put("run-waiting")))
    done = compact(pipeline.by("maintenance"))
    assert (done.instant == left.time) == (point is Point.COMPACT_STARTED)
    assert len(table.files("*.parquet")) == 8 + done.into_files == 16
    assert [item.time for item in table.timeline.pending()] == [waiting.instant]
    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    table.check()


def test_replaced_files_are_cleaned_and_old_instants_archived_while_a_batch_waits(table: Table) -> None:
    pipeline = table.scenario
    deleted = archived = 0
    for _ in range(3):
        for _ in range(2):
            table.batch()
        waiting = pipeline.prepare(pipeline.by(table.put("run-waiting")))
        assert compact(pipeline.by("maintenance")).into_files == 8
        deleted += maintenance.clean(pipeline.by("maintenance")).files
        steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
        archived += maintenance.archive(pipeline.by("maintenance")).instants
        table.check()
        assert metadata.check_metadata(pipeline.by("maintenance")).ok
    assert deleted > 0 and archived > 0
    # Two base files of each bucket at most, and the logs on top of them.
    assert len(table.files("*.parquet")) <= 16


def test_hudis_own_writer_goes_on_after_a_compaction_and_compacts_itself(table: Table) -> None:
    pipeline = table.scenario
    for _ in range(2):
        table.batch()
    compact(pipeline.by("maintenance"))
    for _ in range(3):
        table.by_data_source()
        table.check()
    rebuild(pipeline.by("rebuild"))
    table.batch()
    table.batch()
    compact(pipeline.by("maintenance"))
    table.check()


def test_rows_with_keys_stay_in_the_files_of_their_buckets(table: Table) -> None:
    for _ in range(2):
        table.batch()
    assert cluster(table.scenario.by("maintenance")) == Rewritten(None)


def test_a_plan_that_was_cut_off_is_taken_off_the_timeline(table: Table) -> None:
    for _ in range(2):
        table.batch()
    newest = table.timeline.completed("deltacommit")[-1]
    cut_off = f"{int(str(newest.completion)) + 1}"
    (table.root / f".hoodie/timeline/{cut_off}.compaction.requested").write_bytes(b"")
    assert compact(table.scenario.by("maintenance")).into_files == 8
    assert table.timeline.pending() == []
    table.check()


@pytest.mark.parametrize("point", [Point.ROLLBACK_STARTED, Point.ROLLBACK_COMPLETED])
def test_a_rollback_of_one_that_is_cut_off_itself_is_ended(table: Table, point: Point) -> None:
    pipeline = table.scenario
    for _ in range(2):
        table.batch()
    for where in (Point.COMPACT_WRITTEN, point):
        with pytest.raises(JobFailed):
            compact(pipeline.by("maintenance", launcher=DyingLauncher(where)))
    assert compact(pipeline.by("maintenance")).into_files == 8
    assert table.timeline.pending() == []
    table.check()


def test_log_files_are_read_though_their_commits_are_archived(table: Table) -> None:
    for _ in range(6):
        table.batch()
    assert maintenance.archive(table.scenario.by("maintenance")).instants >= 3
    table.check()
    table.batch()
    table.check()
    assert compact(table.scenario.by("maintenance")).into_files == 8
    table.check()


def test_a_compaction_that_stood_still_through_its_rollback_leaves_no_file(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver, executors included, wakes before it has written a file, and dies as soon as it has."""
    pipeline = table.scenario
    for _ in range(2):
        table.batch()
    files = table.files("*.parquet")

    def meanwhile(point: Point) -> None:
        if point is Point.COMPACT_INFLIGHT:
            (instant,) = table.timeline.pending()
            with pipeline.work.lease() as lease:
                pipeline.work.change(lease, Verb.ROLLBACK, pipeline.work.order(instant=instant.time))
        if point is Point.COMPACT_WRITTEN:
            raise KeyboardInterrupt

    with monkeypatch.context() as points:
        points.setattr(verbs, "reach", meanwhile)
        with pytest.raises((Py4JJavaError, KeyboardInterrupt)):
            compact(pipeline.by("maintenance"))
    assert table.files("*.parquet") == files
    assert compact(pipeline.by("maintenance")).into_files == 8
    table.check()
