"""What other projects learnt the hard way: each of their failures, and the test that it does not happen here.

`PROVEN` names their issue and our tests: a name alone is a test of this file, whose docstring names the issue too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

from airflow_provider_slshudi.exceptions import CommitStateUnknown, Fenced, JobFailed, ManifestError
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt, Manifest
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.models import transactions
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.spark.launch import Launcher, submission
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import register, settle
from tests.scenarios import Scenario
from tests.transaction.checks import NAME, assert_exact, phase
from tests.transaction.states import committed, events, ids, prepared, settled, unproven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = 20

PROVEN: dict[str, tuple[str, ...]] = {
    "Hudi #19357: two coordinators at once": (
        "ledger/test_concurrency.py::test_one_decides_at_a_time",
        "transaction/test_recovery.py::test_a_run_whose_transaction_was_taken_over_is_refused_at_every_step",
    ),
    "Hudi #19024: recommit under optimistic concurrency": ("test_a_recommit_stands_beside_a_clustering",),
    "Hudi #18051: source ahead of the table": (
        "test_ranges_of_a_batch_that_never_came_are_nobodys",
        "transaction/test_recovery.py::test_prepared_and_rolled_back_by_somebody_is_read_again",
    ),
    "Hudi #19215: a half-filled buffer saved": ("test_a_manifest_of_a_range_not_read_to_its_end_is_refused",),
    "Hudi #9101: commit fine, cleaning threw, the retry doubled": (
        "test_a_job_that_fails_after_its_commit_is_not_taken_for_a_commit_that_failed",
        "transaction/test_recovery.py::test_a_commit_whose_driver_dies_right_after_it_is_seen_to_have_happened",
    ),
    "Hudi PR #10119: the same instant twice": (
        "ledger/test_transactions.py::test_an_instant_belongs_to_one_transaction",
        "transaction/test_recovery.py::test_a_second_instant_of_one_transaction_is_rolled_back",
    ),
    "Hudi PR #5950: an instant reused while it is rolled back": (
        "test_an_append_that_comes_after_its_instants_rollback_writes_nothing",
    ),
    "Hudi #18903: the heartbeat's thread is dead": (
        "test_a_transaction_that_lost_its_heartbeat_is_fenced_not_doubled",
    ),
    "Hudi #14200: a rollback leaves files": (
        "hudi/test_append_and_commit.py::test_a_rollback_deletes_exactly_the_files_of_its_instant",
        "transaction/test_recovery.py::test_a_driver_killed_while_it_appends_is_rolled_back_with_its_files",
    ),
    "Hudi #284, #18049: a stage retried, speculation": (
        "test_no_append_speculates_whatever_the_pipeline_asks_for",
        "hudi/test_append_and_commit.py::test_a_failed_attempts_file_does_not_survive_the_commit",
    ),
    "Hudi #5400, #5823: offsets expired and silently sought anew": (
        "transaction/test_end_to_end.py::test_logs_that_expired_unread_stop_the_pipeline_or_are_recorded_as_a_gap",
        "sls/test_reader.py::test_expired_log_groups_are_named",
        "planning/test_batch.py::test_expired_data_fails_and_names_what_is_lost",
    ),
    "Hudi PR #4485, #17848: checkpoint lost to clustering or archival": (
        "test_a_clustering_as_the_newest_commit_hides_no_offset",
        "transaction/test_readers.py::test_snapshot_incremental_time_travel_and_clustering",
        "transaction/test_dangers.py::test_a_pending_instant_holds_archival_back_and_an_archived_commit_is_still_found",
    ),
    "Hudi #19301: the metadata table fails in a loop of restarts": (
        "test_a_commit_that_fails_again_and_again_neither_loses_nor_doubles",
    ),
    "Iceberg #17340: the same files in two commits": ("test_a_file_listed_twice_is_refused",),
    "SLS Python SDK #117: duplicates on handover": (
        "sls/test_reader.py::test_a_range_is_read_whole_whatever_its_bounds",
        "planning/test_batch.py::test_batch_after_batch_reads_everything_once",
    ),
    "SLS Python SDK #95: children of a split shard never read": ("test_split_and_merged_shards_are_read_to_their_end",),
    "SLS Python SDK #126: an empty read-only shard never finished": (
        "test_split_and_merged_shards_are_read_to_their_end",
        "sls/test_reader.py::test_a_closed_shard_is_read_to_the_end_that_was_pinned",
    ),
    "SLS Flink connector PR #51: a merge breaks the assignment": (
        "test_split_and_merged_shards_are_read_to_their_end",
    ),
    "Airflow #42553: one attempt declared a zombie again and again": (
        "test_an_attempt_declared_dead_again_and_again_commits_once",
    ),
    "Paimon PR #3474: a cleared task starts under a new identity": (
        "test_a_run_that_is_cleared_decides_its_own_former_batch_first",
    ),
}


def test_every_case_is_proven_by_a_test_that_exists() -> None:
    assert unproven(PROVEN, "transaction/test_lessons.py") == []


@pytest.fixture
def pipeline(scenario: Callable[..., Scenario]) -> Scenario:
    """A pipeline with logs of one shard, none of them read."""
    made = scenario(shards=1)
    made.put(LOGS)
    register(made.work)
    return made


def appended(pipeline: Scenario) -> Transaction:
    """A batch that was written and not recorded."""
    opened = pipeline.open(pipeline.by("run-1"))
    steps.append(pipeline.by("run-1"), opened.id, opened.token)
    return opened


def change_manifest(pipeline: Scenario, transaction: Transaction, change: Callable[[Manifest], Manifest]) -> None:
    storage = pipeline.work.storage
    manifest, _ = Attempt(storage, transaction.id, str(transaction.instant), transaction.token).manifest()
    batch_files.write_manifest(storage, change(manifest))


class Failing:
    """Says of every job that it failed, before it began or, with a launcher to run it, after it was done."""

    def __init__(self, launcher: Launcher | None = None) -> None:
        self._launcher = launcher

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        if self._launcher is not None:
            self._launcher.run(verb, order, secrets)
        raise JobFailed("cleaning failed", verb=verb.value)


def test_a_recommit_stands_beside_a_clustering(spark: SparkSession, pipeline: Scenario) -> None:
    """Apache Hudi #19024."""
    committed(pipeline, "run-1")
    pipeline.put(LOGS, first=LOGS)
    left = prepared(pipeline, "run-2")
    spark.sql(f"call run_clustering(path => '{pipeline.work.storage.full('')}')").collect()
    assert Timeline.load(pipeline.work.storage).completed("replacecommit")
    assert phase(pipeline, left) is Phase.INFLIGHT
    assert settled(pipeline, "run-3") == [Decision.RECOMMIT]
    assert ids(spark, pipeline) == events(0, 2 * LOGS)
    assert_exact(pipeline, 2 * LOGS)


def test_a_clustering_as_the_newest_commit_hides_no_offset(spark: SparkSession, pipeline: Scenario) -> None:
    """Apache Hudi PR #4485, #17848."""
    committed(pipeline, "run-1")
    spark.sql(f"call run_clustering(path => '{pipeline.work.storage.full('')}')").collect()
    newest = list(Timeline.load(pipeline.work.storage))[-1]
    assert newest.action == "replacecommit"
    assert settled(pipeline, "run-2") == [] and plan.preview(pipeline.work) == []
    assert_exact(pipeline, LOGS)


def test_ranges_of_a_batch_that_never_came_are_nobodys(pipeline: Scenario) -> None:
    """Apache Hudi #18051."""
    before = plan.preview(pipeline.work)
    left = appended(pipeline)
    assert pipeline.work.ledger.coverage(NAME) == [] and pipeline.work.ledger.reserved(NAME) == before
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert pipeline.work.ledger.get(left.id).state is State.ABORTED
    assert plan.preview(pipeline.work) == before
    assert_exact(pipeline, LOGS)


def test_a_manifest_of_a_range_not_read_to_its_end_is_refused(pipeline: Scenario) -> None:
    """Apache Hudi #19215."""
    left = appended(pipeline)

    def cut(manifest: Manifest) -> Manifest:
        # Rows and files still add up: only the range tells.
        last = manifest.ranges[-1]
        return replace(manifest, ranges=[*manifest.ranges[:-1], replace(last, end=last.end - 1)])

    change_manifest(pipeline, left, cut)
    with pytest.raises(ManifestError, match=r"range .* was read as"):
        steps.record(pipeline.by("run-1"), left.id, left.token)
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, LOGS)


def test_a_file_listed_twice_is_refused(pipeline: Scenario) -> None:
    """Apache Iceberg #17340."""
    left = appended(pipeline)

    def double(manifest: Manifest) -> Manifest:
        # Together both have the rows of the one.
        first, *rest = manifest.stats
        half = int(first["numWrites"]) // 2
        halves = [{**first, "numWrites": half}, {**first, "numWrites": int(first["numWrites"]) - half}]
        return replace(manifest, stats=[*halves, *rest])

    change_manifest(pipeline, left, double)
    with pytest.raises(ManifestError, match="a file is listed twice"):
        steps.record(pipeline.by("run-1"), left.id, left.token)
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, LOGS)


def test_a_job_that_fails_after_its_commit_is_not_taken_for_a_commit_that_failed(pipeline: Scenario) -> None:
    """Apache Hudi #9101."""
    left = prepared(pipeline, "run-1")
    work = pipeline.by("run-1", launcher=Failing(pipeline.work.launcher))
    assert steps.commit(work, left.id, left.token).state is State.COMMITTED
    assert_exact(pipeline, LOGS)


def test_an_append_that_comes_after_its_instants_rollback_writes_nothing(pipeline: Scenario) -> None:
    """Apache Hudi PR #5950."""
    opened = pipeline.open(pipeline.by("run-1"))
    late = pipeline.work.order(transaction=opened.id, token=opened.token, instant=str(opened.instant))
    assert settled(pipeline, "run-2") == [Decision.ROLL_BACK_AND_ABORT]
    with pytest.raises(ManifestError, match="no order"):
        pipeline.work.launcher.run(Verb.APPEND, late, pipeline.work.connect().connection.to_env())
    assert phase(pipeline, opened) is None
    assert_exact(pipeline, LOGS)


def test_a_transaction_that_lost_its_heartbeat_is_fenced_not_doubled(pipeline: Scenario) -> None:
    """Apache Hudi #18903."""
    silent = appended(pipeline)
    long_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    with pipeline.work.ledger._engine.begin() as connection:
        connection.execute(update(transactions).values(heartbeat=long_ago))
    # Airflow cannot tell of the run, so silence decides; the run is in fact alive.
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: None)] == [Decision.ROLL_BACK_AND_ABORT]
    with pytest.raises(Fenced, match="changed hands"):
        steps.record(pipeline.by("run-1"), silent.id, silent.token)
    assert_exact(pipeline, LOGS)


def test_no_append_speculates_whatever_the_pipeline_asks_for(pipeline: Scenario) -> None:
    """Apache Hudi #284, #18049."""
    spark = pipeline.work.pipeline.spark.model_copy(update={"conf": {"spark.speculation": "true"}})
    asked = pipeline.by("run-1", pipeline=pipeline.work.pipeline.model_copy(update={"spark": spark}))
    assert submission(Verb.APPEND, asked.order(), "local[2]").conf["spark.speculation"] == "false"


def test_a_commit_that_fails_again_and_again_neither_loses_nor_doubles(spark: SparkSession, pipeline: Scenario) -> None:
    """Apache Hudi #19301."""
    committed(pipeline, "run-1")
    pipeline.put(LOGS, first=LOGS)
    left = prepared(pipeline, "run-2")
    for run_id in ("run-3", "run-4"):
        with pytest.raises(CommitStateUnknown, match="the next settle recommits it"):
            settle(pipeline.by(run_id, launcher=Failing()), lambda run: True)
        assert pipeline.work.ledger.get(left.id).state is State.PREPARED
        assert phase(pipeline, left) is Phase.INFLIGHT
    # Even without a metadata table that can be read: Hudi makes it anew.
    folder = Path(pipeline.work.storage.full(".hoodie/metadata/.hoodie/timeline"))
    shutil.rmtree(folder)
    folder.write_text("not a folder")
    assert settled(pipeline, "run-5") == [Decision.RECOMMIT]
    assert ids(spark, pipeline) == events(0, 2 * LOGS)
    assert_exact(pipeline, 2 * LOGS)


def test_split_and_merged_shards_are_read_to_their_end(pipeline: Scenario) -> None:
    """SLS Python SDK #95 and #126, SLS Flink connector PR #51."""
    source, client = pipeline.work.pipeline.source, pipeline.client
    client.split_shard(source.project, source.logstore, 0, "8" + "0" * 31)
    pipeline.put(LOGS, first=LOGS)
    # The closed parent and both children in one batch.
    first = pipeline.batch("run-1")
    assert {item.shard for item in pipeline.work.ledger.ranges(first.id)} == {0, 1, 2} and first.rows == 2 * LOGS
    # Closed while nothing of theirs is unread.
    client.merge_shard(source.project, source.logstore, 1)
    assert plan.preview(pipeline.work) == []
    pipeline.put(LOGS, first=2 * LOGS)
    second = pipeline.batch("run-2")
    assert {item.shard for item in pipeline.work.ledger.ranges(second.id)} == {3} and second.rows == LOGS
    assert plan.preview(pipeline.work) == []
    # A child that never received anything and is closed again holds nothing back.
    client.split_shard(source.project, source.logstore, 3, "8" + "0" * 31)
    client.merge_shard(source.project, source.logstore, 4)
    assert plan.preview(pipeline.work) == []
    assert_exact(pipeline, 3 * LOGS)


def test_an_attempt_declared_dead_again_and_again_commits_once(pipeline: Scenario) -> None:
    """Apache Airflow #42553."""
    left = prepared(pipeline, "run-1")
    ledger = pipeline.work.ledger
    tokens = [left.token, *(ledger.take_over(left.id).token for _ in range(3))]
    assert tokens == sorted(set(tokens))
    for token in tokens[:-1]:
        with pytest.raises(Fenced):
            steps.commit(pipeline.by("run-1"), left.id, token)
    assert steps.commit(pipeline.by("run-1"), left.id, tokens[-1]).state is State.COMMITTED
    assert settled(pipeline, "run-2") == []
    assert_exact(pipeline, LOGS)


def test_a_run_that_is_cleared_decides_its_own_former_batch_first(pipeline: Scenario) -> None:
    """Apache Paimon PR #3474."""
    former = prepared(pipeline, "run-1")
    pipeline.put(LOGS, first=LOGS)
    # The same run once more, from its first task on; Airflow says that it is running.
    cleared = pipeline.by("run-1")
    assert [item.decision for item in settle(cleared, lambda run: False)] == [Decision.RECOMMIT]
    latter = pipeline.prepare(cleared)
    assert latter.id != former.id and latter.rows == LOGS
    with pytest.raises(Fenced):
        steps.commit(cleared, former.id, former.token)
    steps.commit(cleared, latter.id, latter.token)
    assert_exact(pipeline, 2 * LOGS)
