"""Clustering beside batches: rows stay as they are, what is prepared survives, what died is undone or completed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import JobFailed, LeaseHeld, TableError
from airflow_provider_slshudi.handover import rewrite_plan
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.client import commit, rewriting, writer
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.services.maintenance import clean
from airflow_provider_slshudi.services.rewrite import Rewritten, cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from tests.scenarios import DyingLauncher, Meanwhile, Scenario
from tests.transaction.checks import assert_exact, phase
from tests.transaction.served import batches, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    return served(scenario)


def root(pipeline: Scenario) -> Path:
    return Path(pipeline.work.storage.full(""))


def base_files(pipeline: Scenario) -> set[Path]:
    return set(root(pipeline).glob("event_date=*/*.parquet"))


def timeline(pipeline: Scenario) -> Timeline:
    return Timeline.load(pipeline.work.storage)


def rows(pipeline: Scenario) -> pa.Table:
    """The snapshot as hudi-rs reads it, but for the names of files."""
    from hudi import HudiTableBuilder

    read = HudiTableBuilder.from_base_uri(pipeline.work.storage.uri).build().read()
    table = pa.Table.from_batches(read).drop_columns(["_hoodie_file_name"])
    return table.sort_by("_hoodie_record_key")


def sorting(pipeline: Scenario, **clustering: Any) -> Scenario:
    described = pipeline.work.pipeline.model_dump(mode="json")
    described["maintenance"]["clustering"] = clustering
    return Scenario(pipeline.by("run-0", pipeline=Pipeline.model_validate(described)), pipeline.client)


@pytest.mark.capability("clustering")
def test_small_files_become_one_with_every_row_as_it_was_while_a_prepared_batch_waits(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 3)
    before, files = rows(pipeline), base_files(pipeline)
    first, second, _ = timeline(pipeline).completed("commit")
    waiting = pipeline.prepare_next(logs)
    prepared = base_files(pipeline) - files

    done = cluster(pipeline.by("maintenance"))
    size = sum(file.stat().st_size for file in files)
    (made,) = base_files(pipeline) - files - prepared
    assert done == Rewritten(done.instant, 3, size, 1, made.stat().st_size)
    assert pq.read_metadata(made).num_rows == logs
    assert rows(pipeline).equals(before)
    assert phase(pipeline, waiting) is Phase.INFLIGHT and base_files(pipeline) == files | prepared | {made}
    assert not pipeline.work.storage.exists(f".hoodie/slshudi/{done.instant}")
    assert cluster(pipeline.by("maintenance")) == Rewritten(None)

    # What a consumer that reads by commits gets is as before: the second batch alone.
    options = {"hoodie.datasource.query.type": "incremental"}
    options |= {"hoodie.datasource.read.begin.instanttime": str(first.completion)}
    options |= {"hoodie.datasource.read.end.instanttime": str(second.completion)}
    read = spark.read.format("hudi").options(**options).load(str(root(pipeline))).select("event_id").collect()
    assert sorted(row[0] for row in read) == sorted(f"event-{number}" for number in range(10, 20))

    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    assert verify(pipeline.work, True).ok
    assert_exact(pipeline, logs + 10)


def test_rows_are_sorted_where_columns_are_named_and_the_rest_of_the_table_stays(
    spark: SparkSession, pipeline: Scenario
) -> None:
    logs = batches(pipeline, 2)
    wanted = sorting(pipeline, sort=["price"])
    before = base_files(pipeline)
    cluster(wanted.work)
    (made,) = base_files(pipeline) - before
    assert pq.read_table(made)["price"].to_pylist() == [number / 4 for number in range(logs)]
    batches(pipeline, 1, first=logs)
    before = base_files(pipeline)
    cluster(sorting(pipeline, sort=["price", "clicks"], order="zorder").work)
    (made,) = base_files(pipeline) - before
    assert pq.read_metadata(made).num_rows == logs + 10
    assert verify(pipeline.work, True).ok


def test_batches_commit_while_files_are_rewritten_and_a_second_service_is_refused(pipeline: Scenario) -> None:
    logs = batches(pipeline, 2)

    def meanwhile() -> None:
        batches(pipeline, 1, first=logs)
        with pytest.raises(LeaseHeld, match="maintenance"):
            cluster(pipeline.by("another"))

    launcher = Meanwhile(pipeline.work.launcher, Verb.CLUSTER, meanwhile)
    assert cluster(pipeline.by("maintenance", launcher=launcher)).files == 2
    assert timeline(pipeline).pending() == [] and verify(pipeline.work, True).ok
    assert cluster(pipeline.by("maintenance")).files == 2
    assert_exact(pipeline, logs + 10)


def test_a_column_that_the_table_gets_meanwhile_stays(spark: SparkSession, pipeline: Scenario) -> None:
    """The newest instant says what the table's columns are, and its files were written before they changed."""
    logs = batches(pipeline, 3)
    described = pipeline.work.pipeline.model_dump(mode="json")
    described["columns"].append({"name": "city"})
    wider = Scenario(pipeline.by("wider", pipeline=Pipeline.model_validate(described)), pipeline.client)

    wider.put(10, first=logs)
    opened = wider.open(wider.by("wider"))

    def widen() -> None:
        work = wider.by("wider")
        for step in (steps.append, steps.record, steps.commit):
            step(work, opened.id, opened.token)

    launcher = Meanwhile(pipeline.work.launcher, Verb.CLUSTER, widen)
    assert cluster(pipeline.by("maintenance", launcher=launcher)).files == 3
    assert spark.read.format("hudi").load(str(root(pipeline))).where("city = 'Ulm'").count() == 10
    assert rows(pipeline)["city"].null_count == logs


@pytest.mark.parametrize("point", [Point.CLUSTER_WRITTEN, Point.CLUSTER_STARTED])
def test_one_whose_driver_is_killed_is_undone_before_its_manifest_and_completed_after_it(
    pipeline: Scenario, point: Point
) -> None:
    logs = batches(pipeline, 2)
    files = base_files(pipeline)
    with pytest.raises(JobFailed):
        cluster(pipeline.by("maintenance", launcher=DyingLauncher(point)))
    (left,) = timeline(pipeline).pending()
    assert left.action == "clustering" and left.phase is Phase.INFLIGHT
    (dead,) = base_files(pipeline) - files
    waiting = pipeline.prepare_next(logs)
    done = cluster(pipeline.by("maintenance"))
    assert done.files == 2 and (done.instant == left.time) == (point is Point.CLUSTER_STARTED)
    assert dead.exists() == (point is Point.CLUSTER_STARTED)
    assert [item.time for item in timeline(pipeline).pending()] == [waiting.instant]
    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    assert verify(pipeline.work, True).ok


def test_a_driver_that_comes_to_life_after_its_clustering_was_undone_leaves_no_file(
    spark: SparkSession, pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches(pipeline, 2)
    files = base_files(pipeline)
    write = rewriting.cluster

    def late(gateway: Gateway, described: Pipeline, instant: str, inflight: Callable[[], None]) -> rewrite_plan.Written:
        written = write(gateway, described, instant, inflight)
        copies = {path: Path(pipeline.work.storage.full(path)).read_bytes() for path in written.paths}
        commit.roll_back(gateway, described, instant)
        for path, content in copies.items():
            Path(pipeline.work.storage.full(path)).write_bytes(content)
        return written

    monkeypatch.setitem(verbs.SESSION, Verb.CLUSTER, replace(verbs._CLUSTERING, writing=late).write)
    with pytest.raises(TableError, match="not on the timeline"):
        cluster(pipeline.by("maintenance"))
    assert base_files(pipeline) == files and timeline(pipeline).pending() == []
    monkeypatch.undo()
    assert cluster(pipeline.by("maintenance")).files == 2 and verify(pipeline.work, True).ok


def test_files_with_other_rows_than_those_they_replace_are_refused(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches(pipeline, 2)
    files = base_files(pipeline)
    monkeypatch.setattr(rewriting, "_rows", lambda storage, paths: 21)
    with pytest.raises(TableError, match="wrote 20 rows where the 2 files that it replaces have 21"):
        cluster(pipeline.by("maintenance"))
    assert base_files(pipeline) == files
    monkeypatch.undo()
    assert cluster(pipeline.by("maintenance")).files == 2 and verify(pipeline.work, True).ok


def test_a_clustering_that_somebody_else_planned_is_left_alone(spark: SparkSession, pipeline: Scenario) -> None:
    logs = batches(pipeline, 2)
    gateway = Gateway.of(spark.sparkContext)
    with writer.client(gateway, pipeline.work.pipeline) as client:
        client.scheduleClustering(gateway.hudi.common.util.Option.empty())
    (theirs,) = timeline(pipeline).pending()
    logs = batches(pipeline, 2, first=logs)
    assert cluster(pipeline.by("maintenance")).files == 2
    assert timeline(pipeline).pending() == [theirs]
    assert verify(pipeline.work, True).rows == logs


def test_files_that_it_replaced_are_kept_from_when_it_was_completed_not_from_when_it_was_planned(
    pipeline: Scenario,
) -> None:
    """A reader that began before it was completed reads them; this pipeline keeps them until one later commit."""
    logs = batches(pipeline, 2)
    launcher = Meanwhile(pipeline.work.launcher, Verb.CLUSTER, lambda: batches(pipeline, 2, first=logs))
    cluster(pipeline.by("maintenance", launcher=launcher))
    assert clean(pipeline.by("maintenance")).files == 0
    batches(pipeline, 1, first=logs + 20)
    assert clean(pipeline.by("maintenance")).files == 2
    assert verify(pipeline.work, True).rows == logs + 30


def test_a_plan_that_was_cut_off_is_taken_off_the_timeline(pipeline: Scenario) -> None:
    batches(pipeline, 2)
    newest = timeline(pipeline).completed("commit")[-1]
    cut_off = f"{int(str(newest.completion)) + 1}"
    (root(pipeline) / f".hoodie/timeline/{cut_off}.clustering.requested").write_bytes(b"")
    assert cluster(pipeline.by("maintenance")).files == 2
    assert timeline(pipeline).pending() == [] and verify(pipeline.work, True).ok
