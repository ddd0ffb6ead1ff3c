"""What endangers a prepared instant, one test or more for each line of the list; docs/design.md says what meets each.

`PROVEN` says where: a name alone is a test of this file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from airflow_provider_slshudi.config.options import PROTOCOL_OPTIONS
from airflow_provider_slshudi.exceptions import (
    ForeignWrite,
    IllegalTransition,
    LedgerAhead,
    ManifestError,
    PipelineConflict,
    TableError,
)
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.client import commit, instants, writer
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LedgerShard, State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.processes import clock
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.resolve import _commit_order
from airflow_provider_slshudi.transaction.settle import register, settle
from tests.hudi.conftest import event_rows, write_files
from tests.scenarios import Scenario
from tests.transaction.checks import NAME, assert_exact, phase
from tests.transaction.states import committed, events, ids, prepared, settled, unproven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOGS = 20

PROVEN: dict[str, tuple[str, ...]] = {
    "EAGER: any other client's startCommit erases it": ("test_an_instant_that_another_client_erased_is_read_again",),
    "LAZY: another client's clean erases it": (
        "test_an_instant_that_another_client_erased_is_read_again",
        "test_no_client_of_ours_clears_failed_writes_and_no_pipeline_may_ask_for_it",
    ),
    "NEVER: it survives, and an older dangling instant can be rolled back after newer commits": (
        "test_our_own_clients_commit_and_clean_leave_a_prepared_instant_alone",
        "test_an_older_dangling_instant_is_rolled_back_after_newer_commits",
    ),
    "commitStats called twice leaves two completed files": (
        "test_every_driver_that_changes_the_timeline_finds_out_that_it_may_not_any_more",
        "transaction/test_two_drivers.py::test_a_committer_whom_no_clock_ends_finds_that_its_successor_has_claimed_the_table",
        "transaction/test_recovery.py::test_of_two_completions_that_say_the_same_the_earlier_stays",
        "test_a_driver_commits_no_instant_that_is_not_inflight",
        "transaction/test_recovery.py::test_committed_and_completed_is_left_alone",
        "hudi/test_timeline.py::test_an_instant_completed_twice_is_not_believed",
    ),
    "commitStats on a rolled-back instant throws after the metadata table's commit": (
        "test_a_driver_commits_no_instant_that_is_not_inflight",
    ),
    "a subset of the stats commits and deletes the other files": (
        "test_a_part_of_the_write_stats_is_never_recorded",
        "transaction/test_recovery.py::test_a_manifest_that_was_changed_after_it_was_recorded_is_not_committed",
    ),
    "streaming writes to the metadata table leave the record index short": (
        "test_no_client_of_ours_clears_failed_writes_and_no_pipeline_may_ask_for_it",
    ),
    "without setOperationType the metadata table's update throws": ("test_every_commit_says_what_it_did",),
    "a second write under the same instant fails": ("test_an_append_run_twice_is_read_anew_under_a_new_instant",),
    "an empty batch: a REQUESTED instant cannot be committed": ("test_a_batch_of_nothing_but_a_gap_is_committed",),
    "a crash after the metadata table's commit and before the data commit": (
        "test_a_crash_between_the_metadata_tables_commit_and_the_tables_own_is_recommitted",
    ),
    "two PREPARED, the newer committed first": ("test_of_two_prepared_instants_the_newer_may_be_committed_first",),
    "a file of a zombie task, written after the commit": (
        "test_a_zombie_task_begins_no_file_after_the_commit_and_one_that_it_writes_is_no_row",
    ),
    "a pending instant blocks archival": (
        "test_a_pending_instant_holds_archival_back_and_an_archived_commit_is_still_found",
    ),
    "a clean, or archival, beside it": (
        "transaction/test_maintain.py::test_replaced_files_are_deleted_while_a_prepared_batch_waits_and_is_committed_afterwards",
        "transaction/test_maintain.py::test_a_prepared_batch_holds_back_what_came_after_it_and_is_not_waited_for",
        "transaction/test_maintain.py::test_an_append_that_failed_is_rolled_back_with_all_its_files_after_services_ran",
    ),
    "a clean of a dropped partition deletes its folder with what a batch wrote there": (
        "transaction/test_maintain.py::test_partitions_that_somebody_dropped_keep_the_files_that_a_batch_writes_there_meanwhile",
    ),
    "a table's upgrade rolls failed writes back": (
        "test_no_client_of_ours_clears_failed_writes_and_no_pipeline_may_ask_for_it",
    ),
    "a missing marker directory silently skips reconciliation": (
        "test_files_that_no_marker_names_any_more_are_no_rows_after_a_rollback",
    ),
    "operators clean up stale instants or roll back by hand": (
        "transaction/test_recovery.py::test_prepared_and_rolled_back_by_somebody_is_read_again",
        "transaction/test_recovery.py::test_open_and_rolled_back_by_somebody_is_aborted",
    ),
    "the table is restored to an earlier instant": (
        "test_a_table_restored_to_a_savepoint_is_noticed_before_the_next_write_and_read_again",
    ),
    "the table is dropped": ("transaction/test_rebuild.py::test_of_a_dropped_table_all_is_read_again",),
    "another client writes to the table": (
        "test_another_clients_write_stops_the_pipeline_until_it_is_known_to_be_meant",
    ),
    "two pipelines, with two ledgers, write to one table": (
        "test_a_second_pipeline_with_a_ledger_of_its_own_is_refused_by_both_names",
    ),
}


def test_every_line_of_the_list_is_proven_by_a_test_that_exists() -> None:
    assert unproven(PROVEN, "transaction/test_dangers.py") == []


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """A pipeline with logs of one shard, none of them read."""
    made = scenario(shards=1)
    made.put(LOGS)
    return made


def base_files(pipeline: Scenario) -> list[Path]:
    return sorted(Path(pipeline.work.storage.full("")).glob("event_date=*/*.parquet"))


@contextmanager
def foreign_client(gateway: Gateway, pipeline: Scenario, **options: str) -> Iterator[Any]:
    """Hudi's write client as somebody else configures it: with its defaults and `options`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PROTOCOL_OPTIONS", options)
        with writer.client(gateway, pipeline.work.pipeline) as client:
            yield client


@pytest.mark.parametrize("policy", ["EAGER", "LAZY"])
def test_an_instant_that_another_client_erased_is_read_again(gateway: Gateway, pipeline: Scenario, policy: str) -> None:
    lost = prepared(pipeline, "run-1")
    options = {"hoodie.clean.failed.writes.policy": policy}
    with foreign_client(gateway, pipeline, **options) as client:
        assert client.getConfig().getFailedWritesCleanPolicy().name() == policy
        if policy == "EAGER":
            client.rollback(client.startCommit("commit"))
        else:
            client.clean()
    assert phase(pipeline, lost) is None and base_files(pipeline) == []
    assert settled(pipeline, "run-2") == [Decision.ABORT]
    assert_exact(pipeline, LOGS)


def test_our_own_clients_commit_and_clean_leave_a_prepared_instant_alone(gateway: Gateway, pipeline: Scenario) -> None:
    kept = prepared(pipeline, "run-1")
    with writer.client(gateway, pipeline.work.pipeline) as client:
        other = client.startCommit("commit")
        client.clean()
        client.rollback(other)
    assert phase(pipeline, kept) is Phase.INFLIGHT
    assert steps.commit(pipeline.by("run-1"), kept.id, kept.token).state is State.COMMITTED
    assert_exact(pipeline, LOGS)


def test_no_client_of_ours_clears_failed_writes_and_no_pipeline_may_ask_for_it(
    gateway: Gateway, pipeline: Scenario
) -> None:
    committed(pipeline, "run-1")
    with writer.client(gateway, pipeline.work.pipeline) as client:
        config = client.getConfig()
        # As Hudi understands them: any mode of several writers would turn NEVER into LAZY.
        assert config.getFailedWritesCleanPolicy().name() == "NEVER"
        assert config.getWriteConcurrencyMode().name() == "SINGLE_WRITER"
        assert not config.isAutoClean() and not config.isAutoArchive()
        for option, value in PROTOCOL_OPTIONS.items():
            assert config.getString(option) == value
    table = pipeline.work.pipeline.table.model_dump(mode="json", exclude_none=True)
    for option in PROTOCOL_OPTIONS:
        with pytest.raises(ValidationError, match=re.escape(option)):
            type(pipeline.work.pipeline.table).model_validate({**table, "options": {option: "true"}})


def test_an_older_dangling_instant_is_rolled_back_after_newer_commits(spark: SparkSession, pipeline: Scenario) -> None:
    register(pipeline.work)
    older = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), older.id, older.token)
    pipeline.put(LOGS, first=LOGS)
    newer = committed(pipeline, "run-2")
    assert str(newer.instant) > str(older.instant)
    assert settled(pipeline, "run-3") == [Decision.ROLL_BACK_AND_ABORT]
    assert ids(spark, pipeline) == events(LOGS, 2 * LOGS)
    assert_exact(pipeline, 2 * LOGS)


@pytest.mark.parametrize("left", ["completed", "rolled back"])
def test_a_driver_commits_no_instant_that_is_not_inflight(gateway: Gateway, pipeline: Scenario, left: str) -> None:
    found = prepared(pipeline, "run-1")
    order = _commit_order(pipeline.work, found)
    if left == "completed":
        pipeline.work.launcher.run(Verb.COMMIT, order, {})
    else:
        commit.roll_back(gateway, pipeline.work.pipeline, str(found.instant))
    folders = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")
    before = [pipeline.work.storage.names(folder) for folder in folders]
    with pytest.raises(TableError, match="only an inflight one can be committed"):
        pipeline.work.launcher.run(Verb.COMMIT, order, {})
    assert [pipeline.work.storage.names(folder) for folder in folders] == before
    assert settled(pipeline, "run-2") == [Decision.MARK_COMMITTED if left == "completed" else Decision.ABORT]
    assert_exact(pipeline, LOGS)


@dataclass(frozen=True)
class Overtaken:
    """Runs jobs; before each of them somebody else gets the lease, and claims the table, or the job's time passes."""

    launcher: Launcher
    how: str

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        if self.how == "claimed":
            fencing.claim(Storage(order.pipeline["table"]["path"]), by="somebody else")
        else:
            order = replace(order, until=clock() - 1)
        self.launcher.run(verb, order, secrets)


@pytest.mark.parametrize("how", ["claimed", "too late"])
def test_every_driver_that_changes_the_timeline_finds_out_that_it_may_not_any_more(
    pipeline: Scenario, how: str
) -> None:
    """A driver that stood still, its task too, and wakes after the lease went to somebody else."""
    found = prepared(pipeline, "run-1")
    work = pipeline.by("run-1", launcher=Overtaken(pipeline.work.launcher, how))
    folders = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline", f".hoodie/.temp/{found.instant}")
    before = [work.storage.names(folder) for folder in folders]
    orders = {
        Verb.COMMIT: _commit_order(work, found),
        Verb.ROLLBACK: work.order(transaction=found.id, instant=found.instant),
        **{verb: work.order() for verb in (Verb.PLAN_CLEAN, Verb.ARCHIVE, Verb.REBUILD_METADATA)},
        **{verb: work.order() for verb in (Verb.PLAN_CLUSTERING, Verb.PLAN_COMPACTION, Verb.CLEAN)},
    }
    for verb, order in orders.items():
        with work.lease() as lease, pytest.raises(TableError, match=r"may not \w+ .*any more|the time to .* was over"):
            work.change(lease, verb, order)
        assert [work.storage.names(folder) for folder in folders] == before, verb
    assert settled(pipeline, "run-2") == [Decision.RECOMMIT]
    assert_exact(pipeline, LOGS)


def test_a_part_of_the_write_stats_is_never_recorded(pipeline: Scenario) -> None:
    pipeline.put(300, first=LOGS)  # of several days, so of several files
    register(pipeline.work)
    opened = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), opened.id, opened.token)
    storage = pipeline.work.storage
    manifest, _ = Attempt(storage, opened.id, str(opened.instant), opened.token).manifest()
    assert len(manifest.stats) > 1
    batch_files.write_manifest(storage, replace(manifest, stats=manifest.stats[1:]))
    with pytest.raises(ManifestError, match=r"rows were read, but files hold"):
        steps.record(pipeline.by("run-1"), opened.id, opened.token)
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, LOGS + 300)


def test_every_commit_says_what_it_did(pipeline: Scenario) -> None:
    done = committed(pipeline, "run-1")
    timeline = Timeline.load(pipeline.work.storage)
    instant = timeline.get(str(done.instant))
    assert instant is not None and timeline.operation(instant) == "BULK_INSERT"
    assert pipeline.work.storage.names(".hoodie/metadata/.hoodie/timeline")


def test_an_append_run_twice_is_read_anew_under_a_new_instant(pipeline: Scenario) -> None:
    register(pipeline.work)
    opened = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), opened.id, opened.token)
    with pytest.raises(IllegalTransition, match="is INFLIGHT, not REQUESTED"):
        steps.append(pipeline.by("run-1"), opened.id, opened.token)
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert base_files(pipeline) == []
    assert_exact(pipeline, LOGS)


def test_a_batch_of_nothing_but_a_gap_is_committed(scenario: Make) -> None:
    made = scenario(shards=1)
    begin = made.work.connect().begin(0)
    source = made.work.pipeline.source.model_copy(update={"on_expired": "skip"})
    skipping = made.work.pipeline.model_copy(update={"source": source})
    pipeline = replace(made, work=replace(made.work, pipeline=skipping))
    register(pipeline.work)
    pipeline.work.ledger.save_shards(NAME, [LedgerShard(0, "readwrite", "00", "ff", begin - 10)])
    done = committed(pipeline, "run-1")
    assert done.rows == 0 and all(item.gap for item in pipeline.work.ledger.ranges(done.id))
    assert phase(pipeline, done) is Phase.COMPLETED and base_files(pipeline) == []
    pipeline.put(LOGS)
    assert pipeline.batch("run-2").rows == LOGS


def test_a_crash_between_the_metadata_tables_commit_and_the_tables_own_is_recommitted(
    spark: SparkSession, pipeline: Scenario, tmp_path: Path
) -> None:
    """The state is made by hand: after a whole commit the completed instant goes and the markers come back."""
    found = prepared(pipeline, "run-1")
    root = Path(pipeline.work.storage.full(""))
    markers = root / ".hoodie/.temp" / str(found.instant)
    shutil.copytree(markers, tmp_path / "markers")
    pipeline.work.launcher.run(Verb.COMMIT, _commit_order(pipeline.work, found), {})
    completed = Timeline.load(pipeline.work.storage).get(str(found.instant))
    assert completed is not None
    (root / completed.file).unlink()
    shutil.copytree(tmp_path / "markers", markers, dirs_exist_ok=True)
    in_metadata = list((root / ".hoodie/metadata/.hoodie/timeline").glob(f"{found.instant}_*.deltacommit"))
    assert len(in_metadata) == 1 and phase(pipeline, found) is Phase.INFLIGHT
    assert ids(spark, pipeline) == []
    assert settled(pipeline, "run-2") == [Decision.RECOMMIT]
    assert ids(spark, pipeline) == events(0, LOGS)
    assert_exact(pipeline, LOGS)


def test_of_two_prepared_instants_the_newer_may_be_committed_first(spark: SparkSession, pipeline: Scenario) -> None:
    tail = prepared(pipeline, "run-1")
    (taken,) = pipeline.work.ledger.ranges(tail.id)
    pipeline.put(LOGS, first=LOGS)
    work = pipeline.by("backfill")
    request = plan.BackfillRequest(cursors={0: (taken.begin, pipeline.work.connect().end(0))})
    planned = plan.backfill(work, request)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    steps.append(work, planned.id, planned.token)
    steps.record(work, planned.id, planned.token)
    newer = steps.commit(work, planned.id, planned.token)
    assert str(newer.instant) > str(tail.instant)
    assert ids(spark, pipeline) == events(LOGS, 2 * LOGS)
    steps.commit(pipeline.by("run-1"), tail.id, tail.token)
    assert ids(spark, pipeline) == events(0, 2 * LOGS)
    since = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": str(newer.completed),
    }
    assert ids(spark, pipeline, **since) == events(0, LOGS)
    assert_exact(pipeline, 2 * LOGS)


def test_a_zombie_task_begins_no_file_after_the_commit_and_one_that_it_writes_is_no_row(
    spark: SparkSession, pipeline: Scenario
) -> None:
    found = prepared(pipeline, "run-1")
    storage, instant = pipeline.work.storage, str(found.instant)
    wanted = Attempt(storage, found.id, instant, found.token).require_wanted
    rows, keys, dates = event_rows(5)
    steps.commit(pipeline.by("run-1"), found.id, found.token)
    (listed,) = base_files(pipeline)
    shutil.copy(listed, listed.with_name(f"{uuid4()}-0_7-0-7_{instant}.parquet"))
    with pytest.raises(ManifestError, match="no order"):
        BaseFileWriter(storage, instant, "8-0-8", 1 << 20, wanted).write(rows, keys, "event_date", dates)
    assert not [file for file in base_files(pipeline) if "_8-0-8_" in file.name]
    assert ids(spark, pipeline) == events(0, LOGS)


def test_a_pending_instant_holds_archival_back_and_an_archived_commit_is_still_found(
    scenario: Make, tmp_path: Path
) -> None:
    """Without the metadata table, since Hudi archives nothing that that table has not compacted."""
    table = {
        "path": f"file://{tmp_path / 'lake' / 'ad_events'}",
        "name": NAME,
        "partition": {"by": "event_time", "column": "event_time"},
        "options": {"hoodie.metadata.enable": "false"},
    }
    kept = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    pipeline = scenario(shards=1, table=table, maintenance=kept)
    pipeline.put(LOGS)
    held = prepared(pipeline, "run-0")
    for number in range(1, 5):
        pipeline.put(10, first=LOGS + 10 * (number - 1))
        committed(pipeline, f"run-{number}")
    assert maintenance.archive(pipeline.by("maintenance")).held_by == held.instant
    assert phase(pipeline, held) is Phase.INFLIGHT
    assert len(Timeline.load(pipeline.work.storage).completed("commit")) == 4
    # It is committed, the ledger is never told, and others archive.
    pipeline.work.launcher.run(Verb.COMMIT, _commit_order(pipeline.work, held), {})
    completed = Timeline.load(pipeline.work.storage).get(str(held.instant))
    assert completed is not None
    maintenance.archive(pipeline.by("maintenance"))
    timeline = Timeline.load(pipeline.work.storage)
    assert timeline.get(str(held.instant)) is None and len(timeline.completed("commit")) < 5
    assert settled(pipeline, "run-5") == [Decision.MARK_COMMITTED]
    assert pipeline.work.ledger.get(held.id).completed == completed.completion
    coverage = pipeline.work.ledger.coverage(NAME)
    assert rebuild(pipeline.work).committed == 5
    assert pipeline.work.ledger.coverage(NAME) == coverage
    assert plan.preview(pipeline.work) == []


def test_files_that_no_marker_names_any_more_are_no_rows_after_a_rollback(
    spark: SparkSession, pipeline: Scenario
) -> None:
    register(pipeline.work)
    opened = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), opened.id, opened.token)
    shutil.rmtree(Path(pipeline.work.storage.full(f".hoodie/.temp/{opened.instant}")))
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, LOGS)
    assert ids(spark, pipeline) == events(0, LOGS + 10)


def test_a_table_restored_to_a_savepoint_is_noticed_before_the_next_write_and_read_again(
    gateway: Gateway, pipeline: Scenario
) -> None:
    kept = committed(pipeline, "run-1")
    with foreign_client(gateway, pipeline) as client:
        client.savepoint(str(kept.instant), "somebody", "before the second batch")
    pipeline.put(LOGS, first=LOGS)
    lost = committed(pipeline, "run-2")
    with foreign_client(gateway, pipeline) as client:
        client.restoreToSavepoint(str(kept.instant))
    with pytest.raises(LedgerAhead, match="slshudi ledger rebuild ad_events") as ahead:
        settled(pipeline, "run-3")
    assert (ahead.value.transaction, ahead.value.instant) == (lost.id, lost.instant)
    assert rebuild(pipeline.work).committed == 1
    assert pipeline.batch("run-4").rows == LOGS
    assert_exact(pipeline, 2 * LOGS)


def test_another_clients_write_stops_the_pipeline_until_it_is_known_to_be_meant(
    gateway: Gateway, spark: SparkSession, pipeline: Scenario
) -> None:
    committed(pipeline, "run-1")
    storage = pipeline.work.storage
    instant = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, instant)
    instants.to_inflight(gateway, storage.uri, instant)
    stats = write_files(storage, instant, 5, first=1000)
    commit.commit(gateway, pipeline.work.pipeline, instant, stats, {})
    with pytest.raises(ForeignWrite, match="slshudi ledger rebuild ad_events") as foreign:
        settled(pipeline, "run-2")
    assert (foreign.value.instant, foreign.value.operation) == (instant, "BULK_INSERT")
    rebuild(pipeline.work)
    pipeline.put(10, first=LOGS)
    assert pipeline.batch("run-3").rows == 10
    assert ids(spark, pipeline) == sorted([*events(0, LOGS + 10), *events(1000, 1005)])


@pytest.mark.parametrize("left", ["pending", "completed"])
def test_a_second_pipeline_with_a_ledger_of_its_own_is_refused_by_both_names(
    pipeline: Scenario, tmp_path: Path, left: str
) -> None:
    first = prepared(pipeline, "run-1")
    if left == "completed":
        steps.commit(pipeline.by("run-1"), first.id, first.token)
    engine = open_engine(f"sqlite:///{tmp_path / 'another-ledger.db'}")
    migrate(engine)
    named = pipeline.work.pipeline.model_copy(update={"name": "clicks"})
    other: Work = pipeline.by("run-1", pipeline=named, ledger=Ledger(engine))
    with pytest.raises(PipelineConflict, match=r"ad_events.*clicks") as conflict:
        settle(other, lambda run: True)
    assert (conflict.value.pipeline, conflict.value.other) == ("clicks", NAME)
    engine.dispose()
    settled(pipeline, "run-2")
    assert_exact(pipeline, LOGS)
