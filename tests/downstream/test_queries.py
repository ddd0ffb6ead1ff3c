"""Engines read just the rows of the commits that a consumer was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.downstream.changes import Changes, Commit, CompletePartition, take
from airflow_provider_slshudi.downstream.queries import (
    COMMIT_TIME,
    delta_versions,
    expression,
    iceberg_scans,
    incremental,
    partitions,
    where,
)
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.transaction.settle import register
from tests.mirror.conftest import Mirrored
from tests.scenarios import Scenario
from tests.transaction.quarantined import of_version
from tests.transaction.served import batches, served
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
RUN = Run("consumer", "run-1")


def commit(
    place: int, instant: str, partitions: dict[str, int] | None, transaction: str = "", completed: str = ""
) -> Commit:
    return Commit(place, transaction, "tail", instant, completed or instant, 1, 1, partitions, [], 0)


def given(*commits: Commit) -> Changes:
    return Changes("clicks", "c", "key", 1, len(commits), "nonce", list(commits))


def taken(pipeline: Scenario, most: int = 100) -> Changes:
    """What the consumer `c` is given and confirms."""
    ledger = pipeline.work.ledger
    changes = take(ledger, pipeline.work.pipeline.name, "c", RUN, lambda run: True, most)
    assert changes is not None
    ledger.confirm(changes.pipeline, "c", changes.last, changes.nonce)
    return changes


def test_the_condition_names_instants_and_partitions() -> None:
    changes = given(commit(1, "20260101", {"day=2026-01-01": 2}), commit(2, "20260102", {"day=2026-01-02": 1}))
    assert where(changes) == "_hoodie_commit_time IN ('20260101', '20260102') AND day IN ('2026-01-01', '2026-01-02')"
    assert partitions(changes) == ("day", ["2026-01-01", "2026-01-02"])


@pytest.mark.parametrize("more", [None, {"day=it%27s": 1}, {"day=__HIVE_DEFAULT_PARTITION__": 1}])
def test_of_partitions_that_are_not_known_or_not_plain_it_names_instants_alone(more: dict[str, int] | None) -> None:
    changes = given(commit(1, "20260101", {"day=2026-01-01": 2}), commit(2, "20260102", more))
    assert where(changes) == "_hoodie_commit_time IN ('20260101', '20260102')"
    assert partitions(changes) is None


def test_of_commits_that_went_with_their_table_a_query_finds_nothing_and_is_one() -> None:
    gone, rows = given(), pa.table({COMMIT_TIME: ["20260101"], "n": [1]})
    assert where(gone) == "1 = 0", "Spark refuses an empty list"
    assert rows.filter(expression(gone)).num_rows == 0
    assert incremental(gone, 9) == {}


def test_of_complete_partitions_it_names_their_values() -> None:
    complete = [CompletePartition(1, "2026-01-01-09", 1, 5, 0, 3, 0)]
    changes = Changes("clicks", "c", "key", 1, 1, "nonce", [], complete)
    assert where(changes, "hour") == "hour IN ('2026-01-01-09')"


def test_the_incremental_query_goes_by_completion_times_which_version_6_lacks() -> None:
    late = commit(1, "20260101000001000", None, completed="20260101010000000")
    early = commit(2, "20260101000000000", None, completed="20260101010002000")
    options = incremental(given(late, early), 9)
    assert options["hoodie.datasource.read.begin.instanttime"] == "20260101005959999"
    assert options["hoodie.datasource.read.end.instanttime"] == "20260101010002000"
    assert incremental(given(late, early), 6) == {}
    assert incremental(given(commit(3, "20260101000000000", None), early), 9) == {}, "of the time before it was moved"


def test_the_mirrors_tell_which_rows_are_of_a_commit(mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored()
    instants = []
    for number in range(3):
        mirror.made.append([{"n": number, "day": "a"}])
        instants.append(max(mirror.work.timeline(), key=lambda one: one.time).time)
        mirror.follow()
    changes = given(*(commit(place, instant, None, f"of-{instant}") for place, instant in enumerate(instants[1:], 2)))
    rows = [
        mirror.iceberg.incremental_append_scan(**scan).to_arrow() for scan in iceberg_scans(mirror.iceberg, changes)
    ]
    assert pa.concat_tables(rows)["n"].to_pylist() == [1, 2]

    from deltalake import DeltaTable

    found: list[int] = []
    for version in delta_versions(mirror.delta, changes):
        new, old = (DeltaTable(mirror.made.storage.full(""), version=one).file_uris() for one in (version, version - 1))
        found += by_duckdb(sorted({*new} - {*old}), "n", changes)
    assert found == [1, 2]

    lacking = given(commit(9, "20260901", None, "of-none"))
    with pytest.raises(TableError, match="no snapshot of commit 20260901"):
        list(iceberg_scans(mirror.iceberg, lacking))
    with pytest.raises(TableError, match="no version of commit 20260901"):
        list(delta_versions(mirror.delta, lacking))


def by_duckdb(files: list[str], column: str, changes: Changes) -> list[Any]:
    import duckdb

    query = f"SELECT {column} FROM read_parquet({files}, hive_partitioning = false) WHERE {where(changes)}"  # noqa: S608
    answer = duckdb.sql(query)
    assert answer is not None
    return [value for (value,) in answer.fetchall()]


def read(spark: SparkSession, pipeline: Scenario, changes: Changes) -> list[str]:
    """The events that all ways of reading find, which have to agree: Spark twice, DuckDB, pyarrow."""
    from hudi import HudiTableBuilder

    path, version = pipeline.work.storage.full(""), pipeline.work.pipeline.table.version or 9
    by_options = spark.read.format("hudi").options(**incremental(changes, version)).load(path)
    slices = HudiTableBuilder.from_base_uri(f"file://{path}").build().get_file_slices()
    files = [f"{path}/{one.base_file_relative_path()}" for one in slices]
    columns = ["event_id", COMMIT_TIME]
    rows = pa.concat_tables(pq.read_table(file, columns=columns, partitioning=None) for file in files)
    answers = [
        [row.event_id for row in by_options.where(where(changes)).collect()],
        [row.event_id for row in spark.read.format("hudi").load(path).where(where(changes)).collect()],
        by_duckdb(files, "event_id", changes),
        rows.filter(expression(changes))["event_id"].to_pylist(),
    ]
    assert all(sorted(answer) == sorted(answers[0]) for answer in answers), answers
    return sorted(answers[0])


def events(*spans: tuple[int, int]) -> list[str]:
    return sorted(f"event-{number}" for first, end in spans for number in range(first, end))


@pytest.mark.long
@pytest.mark.parametrize("version", [6, 9])
def test_every_commit_is_read_once_in_whatever_order_they_came_also_after_clustering_and_archival(
    spark: SparkSession,
    scenario: Make,
    version: int,
) -> None:
    pipeline = of_version(served(scenario), version)
    batches(pipeline, 1)
    pipeline.work.ledger.subscribe("ad_events", "c", Feed.COMMITS, 0, 0)
    waiting, newest = pipeline.prepare_next(10), pipeline.prepare_next(20)
    steps.commit(pipeline.by(newest.run_id), newest.id, newest.token)
    assert read(spark, pipeline, taken(pipeline, 1)) == events((0, 10))
    assert read(spark, pipeline, taken(pipeline)) == events((20, 30)), "beside a pending batch"

    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    late = taken(pipeline)
    assert read(spark, pipeline, late) == events((10, 20)), "older than what was given before"
    batches(pipeline, 1, first=30)
    newer = taken(pipeline)
    assert cluster(pipeline.by("cluster")).files
    assert read(spark, pipeline, late) == events((10, 20))
    assert read(spark, pipeline, newer) == events((30, 40))

    batches(pipeline, 4, first=40)
    maintenance.clean(pipeline.by("clean"))
    assert maintenance.archive(pipeline.by("archive")).instants > 0
    assert read(spark, pipeline, late) == events((10, 20))
    assert read(spark, pipeline, newer) == events((30, 40))
    assert read(spark, pipeline, taken(pipeline)) == events((40, 80))


@pytest.mark.long
@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_of_an_upsert_a_row_comes_with_the_commit_that_changed_it_last(
    spark: SparkSession,
    upserts: Make,
    type_: str,
) -> None:
    pipeline = upserts(type_, delete_marker=None)
    register(pipeline.work)
    pipeline.work.ledger.subscribe("customers", "c", Feed.COMMITS, 0, 0)
    for at, numbers in enumerate([(1, 2, 3), (2, 3), (3, 4)]):
        changes = [Change(str(number), at, "eu", 10 * at + number) for number in numbers]
        put(pipeline.client, pipeline.work.pipeline, changes)
        pipeline.batch(f"run-{at}")
    path = pipeline.work.storage.full("")
    found: list[dict[str, Any]] = []
    for _ in range(3):
        each = taken(pipeline, 1)
        rows = spark.read.format("hudi").load(path).where(where(each)).collect()
        found.append({row.id: row.number for row in rows})
    assert found == [{"1": 1}, {"2": 12}, {"3": 23, "4": 24}]
