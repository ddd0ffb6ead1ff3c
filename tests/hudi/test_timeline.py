"""The timeline read without a JVM says what Hudi wrote, archived instants included."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import FOLDER, Phase
from airflow_provider_slshudi.hudi.timeline import CleanPlan, Timeline
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.conftest import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Opened = Callable[[], str]


def test_phases_are_told_apart(gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened) -> None:
    assert list(Timeline.load(storage)) == []
    inflight = opened()
    requested = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, requested)
    done = opened()
    commit.commit(gateway, pipeline, done, write_files(storage, done, 10), {"note": "ü"})
    timeline = Timeline.load(storage)
    assert {item.time: item.phase for item in timeline} == {
        inflight: Phase.INFLIGHT,
        requested: Phase.REQUESTED,
        done: Phase.COMPLETED,
    }
    assert [item.time for item in timeline.pending()] == [inflight, requested]
    (completed,) = timeline.completed("commit")
    assert completed.completion is not None and completed.completion > done
    assert timeline.extra_metadata(completed)["note"] == "ü"


def test_an_archived_commit_is_still_found(spark: SparkSession, storage: Storage) -> None:
    # Spark's own writer without a metadata table, since Hudi archives nothing that that table has not compacted.
    options = {
        "hoodie.table.name": "archived",
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.datasource.write.commitmeta.key.prefix": "note",
    }
    times: list[str] = []
    for number in range(6):
        rows = spark.range(1).write.format("hudi").options(**options).option("note", str(number)).mode("append")
        rows.save(storage.full(""))
        times.append(max(item.time for item in Timeline.load(storage)))
    timeline = Timeline.load(storage)
    left = {item.time for item in timeline.completed("commit")}
    assert 0 < len(left) < len(times)
    for number, time in enumerate(times):
        archived = timeline.archived(time)
        assert (archived is None) == (time in left)
        assert archived is None or archived[1]["note"] == str(number)
        assert (timeline.extra_of(time) or {})["note"] == str(number)
    assert timeline.archived("20200101000000000") is None
    assert timeline.extra_of("20200101000000000") is None
    assert {commit.time: commit.extra["note"] for commit in timeline.archived_commits()} == {
        time: str(number) for number, time in enumerate(times) if time not in left
    }


def test_an_instant_completed_twice_is_not_believed(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened
) -> None:
    instant = opened()
    commit.commit(gateway, pipeline, instant, write_files(storage, instant, 10), {})
    found = Timeline.load(storage).get(instant)
    assert found is not None
    file = Path(storage.full(found.file))
    file.with_name(f"{instant}_29991231235959999.commit").write_bytes(file.read_bytes())
    with pytest.raises(TimelineUnreadable, match="completed 2 times"):
        Timeline.load(storage).get(instant)


def test_what_cannot_be_read_is_an_error_and_not_an_empty_timeline(
    gateway: Gateway, pipeline: Pipeline, storage: Storage, opened: Opened
) -> None:
    instant = opened()
    commit.commit(gateway, pipeline, instant, write_files(storage, instant, 10), {})
    timeline = Timeline.load(storage)
    found = timeline.get(instant)
    assert found is not None
    Path(storage.full(found.file)).write_bytes(b"no avro")
    with pytest.raises(TimelineUnreadable, match="no whole Avro"):
        timeline.extra_metadata(found)
    Path(storage.full(found.file)).unlink()
    with pytest.raises(TimelineUnreadable, match="was there and is gone"):
        timeline.extra_metadata(found)
    Path(storage.full(FOLDER)).rename(Path(storage.full(".hoodie/elsewhere")))
    with pytest.raises(TimelineUnreadable, match="is not of table version"):
        Timeline.load(storage)


def test_a_storage_travels_to_tasks(storage: Storage) -> None:
    storage.write("a/b", b"content")
    again = pickle.loads(pickle.dumps(storage))  # noqa: S301 - its own
    assert again.read("a/b") == b"content" and again.read("a/c") is None
    assert again.names("a") == ["b"] and again.names("c") is None
    again.delete_folder("a")
    again.delete_folder("a")
    assert not storage.exists("a")


def test_a_pending_rollback_tells_which_instant_it_takes_away(storage: Storage) -> None:
    info = {"name": "info", "type": "record", "fields": [{"name": "commitTime", "type": "string"}]}
    plan = {"name": "plan", "type": "record", "fields": [{"name": "instantToRollback", "type": info}]}
    content = io.BytesIO()
    fastavro.writer(content, fastavro.parse_schema(plan), [{"instantToRollback": {"commitTime": "20260101000000001"}}])
    storage.write(f"{FOLDER}/20260101000000001.inflight", b"")
    assert Timeline.load(storage).rolling_back == {}
    requested = f"{FOLDER}/20260101000000002.rollback.requested"
    storage.write(requested, content.getvalue())
    for phase in (Phase.REQUESTED, Phase.INFLIGHT):
        found = Timeline.load(storage).rolling_back
        assert {time: (item.time, item.phase) for time, item in found.items()} == {
            "20260101000000001": ("20260101000000002", phase)
        }
        storage.write(f"{FOLDER}/20260101000000002.rollback.inflight", b"")
    # A plan that was not written to the end did nothing yet; of one that has begun that is not so.
    storage.write(requested, content.getvalue()[:-20])
    with pytest.raises(TimelineUnreadable, match="does not tell what is being rolled back"):
        _ = Timeline.load(storage).rolling_back
    storage.delete(f"{FOLDER}/20260101000000002.rollback.inflight")
    assert Timeline.load(storage).rolling_back == {}
    storage.delete(requested)
    storage.write(f"{FOLDER}/20260101000000002.rollback.inflight", b"")
    with pytest.raises(TimelineUnreadable, match="was there and is gone"):
        _ = Timeline.load(storage).rolling_back


@pytest.mark.parametrize("completed", [True, False])
def test_a_completed_rollback_takes_nothing_away_any_more(storage: Storage, completed: bool) -> None:
    storage.write(f"{FOLDER}/20260101000000002.rollback.requested", b"")
    storage.write(f"{FOLDER}/20260101000000002.rollback.inflight", b"")
    if completed:
        storage.write(f"{FOLDER}/20260101000000002_20260101000000003.rollback", b"")
        assert Timeline.load(storage).rolling_back == {}
    else:
        with pytest.raises(TimelineUnreadable):
            _ = Timeline.load(storage).rolling_back


@pytest.mark.parametrize("base", ["", "file:", "file://"])
def test_a_planned_clean_tells_which_files_it_deletes_and_none_outside_of_the_table(
    storage: Storage, base: str
) -> None:
    item = {"name": "item", "type": "record", "fields": [{"name": "filePath", "type": ["null", "string"]}]}
    files = {"type": "map", "values": {"type": "array", "items": item}}
    fields = [
        {"name": "filePathsToBeDeletedPerPartition", "type": files},
        {"name": "partitionsToBeDeleted", "type": ["null", {"type": "array", "items": "string"}]},
    ]
    schema = fastavro.parse_schema({"name": "plan", "type": "record", "fields": fields})

    def planned(*paths: str, partitions: list[str] | None = None) -> None:
        content = io.BytesIO()
        plan = {"filePathsToBeDeletedPerPartition": {"a=1": [{"filePath": path} for path in paths]}}
        fastavro.writer(content, schema, [{**plan, "partitionsToBeDeleted": partitions}])
        storage.write(f"{FOLDER}/20260101000000001.clean.requested", content.getvalue())

    assert Timeline.load(storage).pending_clean() is None
    planned(f"{base}{storage.full('a=1/x y%2F.parquet')}")
    storage.write(f"{FOLDER}/20260101000000001.clean.inflight", b"")
    timeline = Timeline.load(storage)
    assert timeline.pending_clean() == "20260101000000001"
    assert timeline.clean_plan("20260101000000001") == CleanPlan(["a=1/x y%2F.parquet"], [])
    planned(partitions=["a=1"])
    assert Timeline.load(storage).clean_plan("20260101000000001") == CleanPlan([], ["a=1"])
    outside = [f"{base}{storage.full('')}-other/x.parquet", f"{base}{storage.full('')}/a=1/../../x.parquet"]
    planned(*outside)
    assert Timeline.load(storage).clean_plan("20260101000000001") == CleanPlan([], [], outside)
    storage.write(f"{FOLDER}/20260101000000001_20260101000000002.clean", b"")
    assert Timeline.load(storage).pending_clean() is None


def test_files_are_deleted_and_counted_once(storage: Storage) -> None:
    paths = [f"a/{number}" for number in range(40)]
    for path in paths[:30]:
        storage.write(path, b"12345")
    assert storage.delete_files(paths) == (30, 150)
    assert storage.delete_files(paths) == (0, 0) and storage.names("a") == []
    assert storage.delete_files([]) == (0, 0)


@pytest.mark.parametrize("version", [None, b"", b"9"])
def test_an_archive_whose_version_is_not_told_is_read_by_its_newest_manifest(
    storage: Storage, version: bytes | None
) -> None:
    archive = f"{FOLDER}/history"
    storage.write(f"{FOLDER}/20260101000000001.inflight", b"")
    assert list(Timeline.load(storage).archived_commits()) == []
    storage.write(f"{archive}/manifest_9", b'{"files": []}')
    storage.write(f"{archive}/manifest_10", b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 1}]}')
    if version is not None:
        storage.write(f"{archive}/_version_", version)
    if version:
        assert list(Timeline.load(storage).archived_commits()) == []
    else:
        with pytest.raises(TimelineUnreadable, match=r"1_2_0\.parquet is gone"):
            list(Timeline.load(storage).archived_commits())
    storage.write(f"{archive}/manifest_9", b'{"files": [')
    storage.write(f"{archive}/_version_", b"9")
    with pytest.raises(TimelineUnreadable, match="manifest_9, which lists the archive's files, is gone or cut off"):
        list(Timeline.load(storage).archived_commits())


def test_a_file_cut_at_any_byte_is_not_whole_and_the_error_names_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path.as_uri())
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "Commit",
            "fields": [{"name": "extraMetadata", "type": {"type": "map", "values": "string"}}],
        }
    )
    written = io.BytesIO()
    fastavro.writer(written, schema, [{"extraMetadata": {"note": "some text"}}])
    content, name = written.getvalue(), "20250101000000000_20250101000001000.commit"
    for length in range(len(content) + 1):
        storage.write(f"{FOLDER}/{name}", content[:length])
        timeline = Timeline.load(storage)
        (instant,) = timeline.completed("commit")
        if length == len(content):
            assert timeline.cut_completions() == [] and timeline.extra_metadata(instant) == {"note": "some text"}
            continue
        assert timeline.cut_completions() == [instant], length
        with pytest.raises(TimelineUnreadable, match=name):
            timeline.extra_metadata(instant)
