"""Cleaning and archival beside batches: what is prepared survives, counts stay exact, what died is carried on."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.exceptions import ForeignWrite, JobFailed, LeaseHeld, LedgerAhead, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT, fencing
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.client import writer
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.layout import FOLDER, Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.maintenance import Archived, Cleaned
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import context, steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.checks import assert_exact, phase
from tests.transaction.served import batches, cluster, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    return served(scenario)


def base_files(pipeline: Scenario) -> set[str]:
    root = Path(pipeline.work.storage.full(""))
    return {str(file.relative_to(root)) for file in root.glob("event_date=*/*.parquet")}


def timeline_of(pipeline: Scenario) -> Timeline:
    return Timeline.load(pipeline.work.storage)


def settled(pipeline: Scenario, run_id: str) -> list[Decision]:
    return [item.decision for item in settle(pipeline.by(run_id), lambda run: True)]


def with_new_ledger(pipeline: Scenario, folder: Path, name: str = "new") -> Scenario:
    """The pipeline after its ledger was lost."""
    engine = open_engine(f"sqlite:///{folder / name}.db")
    migrate(engine)
    return replace(pipeline, work=replace(pipeline.work, ledger=Ledger(engine)))


def test_files_of_a_clustering_are_committed_ones_when_that_was_archived(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    cluster(spark, pipeline)
    rewritten = [instant.time for instant in timeline_of(pipeline).completed("replacecommit")]
    logs = batches(pipeline, 4, first=logs)
    maintenance.clean(pipeline.by("maintenance"))
    maintenance.archive(pipeline.by("maintenance"))
    assert timeline_of(pipeline).get(rewritten[0]) is None
    files = committed_files(Gateway.of(spark.sparkContext), pipeline.work.pipeline)
    assert rewritten[0] in {file.instant for file in files}
    held = sum(pq.read_metadata(pipeline.work.storage.full(file.name)).num_rows for file in files)
    assert held == logs


@pytest.mark.capability("cleaning")
def test_replaced_files_are_deleted_while_a_prepared_batch_waits_and_is_committed_afterwards(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    replaced = base_files(pipeline)
    sizes = sum(Path(pipeline.work.storage.full(file)).stat().st_size for file in replaced)
    cluster(spark, pipeline)
    logs = batches(pipeline, 2, first=logs)
    pipeline.put(10, first=logs)
    waiting = pipeline.prepare(pipeline.by("run-waiting"))
    kept = base_files(pipeline) - replaced

    done = maintenance.clean(pipeline.by("maintenance"))
    assert (done.files, done.bytes) == (len(replaced), sizes)
    assert base_files(pipeline) == kept
    assert [instant.time for instant in timeline_of(pipeline).completed("clean")] == [done.instant]
    assert phase(pipeline, waiting) is Phase.INFLIGHT and verify(pipeline.work).ok
    assert maintenance.clean(pipeline.by("maintenance")) == Cleaned(None, 0, 0)

    assert steps.commit(pipeline.by("run-waiting"), waiting.id, waiting.token).state is State.COMMITTED
    assert verify(pipeline.work).ok
    assert_exact(pipeline, logs + 10)


def test_a_prepared_batch_holds_back_what_came_after_it_and_is_not_waited_for(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    pipeline.put(10, first=logs)
    waiting = pipeline.prepare(pipeline.by("run-waiting"))
    cluster(spark, pipeline)
    logs += 10
    for run_id in ("run-a", "run-b", "run-c"):
        pipeline.put(10, first=logs)
        done = pipeline.prepare(pipeline.by(run_id))
        steps.commit(pipeline.by(run_id), done.id, done.token)
        logs += 10
    there = base_files(pipeline)
    assert maintenance.clean(pipeline.by("maintenance")).files == 0
    held = maintenance.archive(pipeline.by("maintenance"))
    assert (held.held_by, held.commits) == (waiting.instant, 6)
    assert base_files(pipeline) == there and phase(pipeline, waiting) is Phase.INFLIGHT

    assert settled(pipeline, "run-next") == [Decision.RECOMMIT]
    batches(pipeline, 2, first=logs)
    assert maintenance.clean(pipeline.by("maintenance")).files > 0
    after = maintenance.archive(pipeline.by("maintenance"))
    assert after.held_by is None and after.instants > 0 and after.commits < held.commits
    assert verify(pipeline.work).ok


def test_an_append_that_failed_is_rolled_back_with_all_its_files_after_services_ran(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    cluster(spark, pipeline)
    logs = batches(pipeline, 3, first=logs)
    pipeline.put(10, first=logs)
    before = base_files(pipeline)
    opened = pipeline.open(pipeline.by("run-failed"))
    steps.append(pipeline.by("run-failed"), opened.id, opened.token)
    assert maintenance.clean(pipeline.by("maintenance")).files > 0
    maintenance.archive(pipeline.by("maintenance"))
    assert phase(pipeline, opened) is Phase.INFLIGHT and base_files(pipeline) - before
    assert settled(pipeline, "run-next") == [Decision.ROLL_BACK_AND_ABORT]
    assert base_files(pipeline) < before
    assert pipeline.batch("run-last").rows == 10 and verify(pipeline.work).ok


def test_after_archival_the_ledger_is_rebuilt_and_nothing_is_read_twice(pipeline: Scenario, tmp_path: Path) -> None:
    from hudi import HudiTableBuilder

    logs = batches(pipeline, 6)
    done = maintenance.archive(pipeline.by("maintenance"))
    assert (done.instants, done.commits, done.held_by) == (4, 2, None)
    assert maintenance.archive(pipeline.by("maintenance")) == Archived(0, 2, None)
    assert settled(pipeline, "run-next") == []
    assert verify(pipeline.work).ok
    by_rust = HudiTableBuilder.from_base_uri(pipeline.work.storage.uri).build().read()
    assert sum(found.num_rows for found in by_rust) == logs
    again = with_new_ledger(pipeline, tmp_path)
    assert rebuild(again.work).committed == 6
    assert again.work.ledger.coverage("ad_events") == pipeline.work.ledger.coverage("ad_events")
    batches(again, 1, first=logs)
    assert verify(again.work).ok


def test_archival_deletes_old_notes_of_instants_that_are_not_pending(pipeline: Scenario) -> None:
    batches(pipeline, 2)
    storage, waiting = pipeline.work.storage, pipeline.prepare_next(20)
    owner = storage.read(f"{fencing.folder(str(waiting.instant))}/owner.json") or b""
    young = f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}"[:17]
    for instant in ("20200101000000000", young):
        storage.write(f"{fencing.folder(instant)}/owner.json", owner)
    maintenance.archive(pipeline.by("archive"))
    left = [name for name in storage.folders(ROOT) if name.isdigit()]
    assert sorted(left) == sorted([str(waiting.instant), young])
    assert leftovers.sweep_notes(storage, pipeline.work.timeline(), "3") == [young]
    steps.commit(pipeline.by("run-waiting-20"), waiting.id, waiting.token)
    assert_exact(pipeline, 30)


@pytest.mark.parametrize("left", ["no version file", "an empty version file", "instants in both"])
def test_an_archival_that_was_cut_off_loses_no_commit_and_the_next_one_counts_none_twice(
    pipeline: Scenario, tmp_path: Path, left: str
) -> None:
    """The states are made by hand, from what archival left when it was through."""
    logs = batches(pipeline, 6)
    root = Path(pipeline.work.storage.full(FOLDER))
    shutil.copytree(root, tmp_path / "before", ignore=shutil.ignore_patterns("history"))
    assert maintenance.archive(pipeline.by("maintenance")).instants > 0
    if left == "instants in both":
        shutil.copytree(tmp_path / "before", root, dirs_exist_ok=True)
    elif left == "no version file":
        (root / "history/_version_").unlink()
    else:
        (root / "history/_version_").write_bytes(b"")
    assert rebuild(with_new_ledger(pipeline, tmp_path, "first").work).committed == 6
    logs = batches(pipeline, 4, first=logs)
    assert maintenance.archive(pipeline.by("maintenance")).commits == 2
    again = with_new_ledger(pipeline, tmp_path, "second")
    assert rebuild(again.work).committed == 10
    batches(again, 1, first=logs)
    assert verify(again.work).ok


@pytest.mark.parametrize("point", [Point.CLEAN_PLANNED, Point.CLEAN_STARTED, Point.CLEAN_COMPLETED])
def test_a_clean_whose_driver_is_killed_is_carried_on_by_the_next(
    spark: SparkSession, pipeline: Scenario, point: Point
) -> None:
    logs = batches(pipeline, 2)
    replaced = base_files(pipeline)
    cluster(spark, pipeline)
    logs = batches(pipeline, 2, first=logs)
    with pytest.raises(JobFailed):
        maintenance.clean(pipeline.by("maintenance", launcher=DyingLauncher(point)))
    begun = timeline_of(pipeline).pending_clean()
    assert (begun is None) == (point is Point.CLEAN_COMPLETED)
    logs = batches(pipeline, 1, first=logs)  # which do not wait for the clean that is pending
    done = maintenance.clean(pipeline.by("maintenance"))
    assert begun is None or done.instant == begun
    assert timeline_of(pipeline).pending() == [] and not base_files(pipeline) & replaced
    assert verify(pipeline.work).ok
    assert_exact(pipeline, logs)


def test_a_clean_that_died_between_the_metadata_tables_commit_and_its_own_is_carried_on(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    cluster(spark, pipeline)
    logs = batches(pipeline, 2, first=logs)
    done = maintenance.clean(pipeline.by("maintenance"))
    root = Path(pipeline.work.storage.full(""))
    (completed,) = (root / FOLDER).glob(f"{done.instant}_*.clean")
    completed.unlink()
    assert list((root / ".hoodie/metadata" / FOLDER).glob(f"{done.instant}*_*.deltacommit"))
    assert timeline_of(pipeline).pending_clean() == done.instant
    assert maintenance.clean(pipeline.by("maintenance")) == Cleaned(done.instant, 0, 0)
    assert timeline_of(pipeline).pending() == [] and verify(pipeline.work).ok
    assert spark.read.format("hudi").load(pipeline.work.storage.full("")).count() == logs
    assert_exact(pipeline, logs)


def test_partitions_that_somebody_dropped_keep_the_files_that_a_batch_writes_there_meanwhile(
    spark: SparkSession, pipeline: Scenario
) -> None:
    batches(pipeline, 1)
    dropped = base_files(pipeline)
    (folder,) = {file.partition("/")[0] for file in dropped}
    options = {
        "hoodie.table.name": "ad_events",
        "hoodie.datasource.write.operation": "delete_partition",
        "hoodie.datasource.write.partitions.to.delete": folder,
        "hoodie.clean.failed.writes.policy": "NEVER",
        "hoodie.clean.automatic": "false",
    }
    table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    table.limit(0).write.format("hudi").options(**options).mode("append").save(pipeline.work.storage.full(""))
    with pytest.raises(ForeignWrite, match="DELETE_PARTITION"):
        maintenance.clean(pipeline.by("maintenance"))
    rebuild(pipeline.work)
    # Logs of other days, so that nothing but what is prepared will be in the folder.
    for number in (1, 2):
        pipeline.put(10, first=144 * number)
        pipeline.batch(f"run-{number}")
    pipeline.work.launcher.run(Verb.PLAN_CLEAN, pipeline.work.order(), {})
    pipeline.put(10, first=432)  # of the dropped day
    waiting = pipeline.prepare(pipeline.by("run-waiting"))
    kept = base_files(pipeline) - dropped
    assert any(file.startswith(folder) for file in kept)
    assert maintenance.clean(pipeline.by("maintenance")).files == len(dropped)
    assert base_files(pipeline) == kept
    steps.commit(pipeline.by("run-waiting"), waiting.id, waiting.token)
    assert spark.read.format("hudi").load(pipeline.work.storage.full("")).count() == 30


def test_a_clean_that_somebody_else_planned_is_carried_out_unless_it_would_delete_whole_folders(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    cluster(spark, pipeline)
    logs = batches(pipeline, 2, first=logs)
    pipeline.work.launcher.run(Verb.PLAN_CLEAN, pipeline.work.order(), {})
    planned = timeline_of(pipeline).pending_clean()
    file = Path(pipeline.work.storage.full(f"{FOLDER}/{planned}.clean.requested"))
    ours, there = file.read_bytes(), base_files(pipeline)

    def plan(**changes: object) -> None:
        reader, changed = fastavro.reader(io.BytesIO(ours)), io.BytesIO()
        record = next(iter(reader))
        assert isinstance(record, dict)
        fastavro.writer(changed, reader.writer_schema, [{**record, **changes}])
        file.write_bytes(changed.getvalue())

    outside = Path(pipeline.work.storage.full("")).parent / "another" / next(iter(there)).rpartition("/")[2]
    outside.parent.mkdir()
    outside.touch()
    leads_out = f"{pipeline.work.storage.uri}/event_date=2026-01-01/../../another/{outside.name}"
    for path in ("/etc/hosts", leads_out):
        plan(filePathsToBeDeletedPerPartition={"event_date": [{"filePath": path, "isBootstrapBaseFile": False}]})
        with pytest.raises(ForeignWrite, match=rf"clean {planned} names files that are not in the table's .*{FOLDER}"):
            maintenance.clean(pipeline.by("maintenance"))
    assert outside.exists() and base_files(pipeline) == there
    plan(partitionsToBeDeleted=["event_date=2026-01-01"])
    with pytest.raises(ForeignWrite, match=rf"pending clean {planned} would delete the whole folders event_date="):
        maintenance.clean(pipeline.by("maintenance"))
    assert base_files(pipeline) == there
    file.write_bytes(ours)
    assert maintenance.clean(pipeline.by("maintenance")).files > 0
    assert_exact(pipeline, logs)


def test_a_clean_that_was_planned_before_a_restore_deletes_nothing(spark: SparkSession, pipeline: Scenario) -> None:
    batches(pipeline, 2)
    kept = base_files(pipeline)
    with writer.client(Gateway.of(spark.sparkContext), pipeline.work.pipeline) as client:
        newest = timeline_of(pipeline).completed("commit")[-1]
        client.savepoint(newest.time, "somebody", "before the files were replaced")
        savepoint = newest.time
    cluster(spark, pipeline)
    batches(pipeline, 2, first=20)
    for file in Path(pipeline.work.storage.full(FOLDER)).glob("*.savepoint*"):
        file.rename(file.with_name(f"kept-{file.name}"))  # A plan made before there was a savepoint.
    pipeline.work.launcher.run(Verb.PLAN_CLEAN, pipeline.work.order(), {})
    planned = timeline_of(pipeline).pending_clean()
    assert planned is not None and set(timeline_of(pipeline).clean_plan(planned).files) == kept
    for file in Path(pipeline.work.storage.full(FOLDER)).glob("kept-*"):
        file.rename(file.with_name(file.name.removeprefix("kept-")))
    with writer.client(Gateway.of(spark.sparkContext), pipeline.work.pipeline) as client:
        client.restoreToSavepoint(savepoint)
    with pytest.raises(LedgerAhead):
        maintenance.clean(pipeline.by("maintenance"))
    rebuild(pipeline.work)
    if timeline_of(pipeline).pending_clean() is not None:
        with pytest.raises(ForeignWrite, match="planned before the table was restored"):
            maintenance.clean(pipeline.by("maintenance"))
    assert base_files(pipeline) >= kept


def test_services_do_nothing_without_a_table_nor_where_a_person_has_to_look(pipeline: Scenario) -> None:
    assert maintenance.clean(pipeline.by("maintenance")) == Cleaned(None, 0, 0)
    assert maintenance.archive(pipeline.by("maintenance")) == Archived(0, 0, None)
    assert not pipeline.work.storage.exists("")
    batches(pipeline, 1)
    shutil.rmtree(pipeline.work.storage.full(""))
    for service in (maintenance.clean, maintenance.archive):
        with pytest.raises(TimelineUnreadable, match="See whether it is mounted"):
            service(pipeline.by("maintenance"))


@pytest.mark.parametrize("service", [maintenance.clean, maintenance.archive])
def test_a_service_starts_nothing_while_somebody_else_decides(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch, service: Callable[[context.Work], object]
) -> None:
    batches(pipeline, 6)
    before = list(timeline_of(pipeline))
    monkeypatch.setattr(context, "LEASE_WAIT_SECONDS", 0.3)
    with pipeline.by("run-other").lease(), pytest.raises(LeaseHeld, match="tail/run-other decides"):
        service(pipeline.by("maintenance"))
    assert list(timeline_of(pipeline)) == before
    service(pipeline.by("maintenance"))
    assert list(timeline_of(pipeline)) != before


def test_counts_are_exact_where_services_run_while_batches_commit(spark: SparkSession, pipeline: Scenario) -> None:
    logs = batches(pipeline, 3)
    cluster(spark, pipeline)
    over, cleaned, archived, failed = threading.Event(), list[Cleaned](), list[Archived](), list[Exception]()

    def serve() -> None:
        # Without a pause the two hand the lease to each other for longer than a batch waits for it.
        while not over.wait(0.3):
            try:
                cleaned.append(maintenance.clean(pipeline.by("maintenance")))
                archived.append(maintenance.archive(pipeline.by("maintenance")))
            except LeaseHeld:
                continue  # on a busy machine the others decide for longer than this one waits, and it tries again
            except Exception as error:
                failed.append(error)

    others = [threading.Thread(target=serve) for _ in range(2)]
    for other in others:
        other.start()
    try:
        logs = batches(pipeline, 8, first=logs)
    finally:
        over.set()
        for other in others:
            other.join()
    assert failed == []
    assert sum(item.files for item in cleaned) > 0 and sum(item.instants for item in archived) > 0
    assert verify(pipeline.work).ok
    batches(pipeline, 1, first=logs)
    proof = verify(pipeline.work, True)
    assert proof.ok and proof.rows == logs + 10
