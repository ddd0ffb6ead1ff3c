"""The work of one Spark task, without Spark: ranges of a real server into base files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder, Unnamed
from airflow_provider_slshudi.hudi.files import basefile
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.pytest_plugin import local_sls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.convert import ColumnSpec
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.rows.partitions import PartitionSpec
from airflow_provider_slshudi.sls.pace import Limits
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.driver import append
from airflow_provider_slshudi.spark.driver.append import AppendTask, TaskResult, partitions_to_keep
from airflow_provider_slshudi.spark.driver.reading import ReadSpec
from airflow_provider_slshudi.storage.files import Storage
from tests.local.sdk import PROJECT, by_ip, make_logstore, put
from tests.pipelines import ad_events

__all__ = ["local_sls"]

INSTANT = "20260101000000000"


@pytest.fixture(scope="module")
def ranges(local_sls: LocalSls) -> tuple[LogService, list[Range]]:
    """A logstore of one shard with 60 log groups; its cursors in three ranges that do not touch."""
    client = by_ip(local_sls.connection())
    logstore = make_logstore(client, "one-task")
    for number in range(60):
        put(client, logstore, [b"%d" % number])
    service = LogService(local_sls.connection(), PROJECT, logstore)
    begin = service.begin(0)
    return service, [Range(0, begin + first, begin + last) for first, last in ((0, 10), (20, 50), (55, 60))]


@pytest.fixture
def task(tmp_path: Path, ranges: tuple[LogService, list[Range]]) -> AppendTask:
    pipeline = ad_events(tmp_path / "table", table={"path": f"file://{tmp_path / 'table'}", "name": "events"})
    storage = Storage(pipeline.table.path)
    fencing.admit(storage, INSTANT)
    batch_files.write_order(storage, BatchOrder("t1", 1, INSTANT, {}, [], {}))
    limits = {0: Limits(1e9, 1e3)}
    service, _ = ranges
    read = ReadSpec(lambda: service, "events", RowSpec.of(pipeline), limits)
    return AppendTask(read, Attempt(storage, "t1", INSTANT, 1), None, 1 << 20)


def test_the_writer_is_told_how_much_is_done(
    task: AppendTask, ranges: tuple[LogService, list[Range]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    write = BaseFileWriter.write

    def listen(writer: BaseFileWriter, *given: object) -> None:
        told.append(given[4])  # type: ignore[arg-type]
        write(writer, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(BaseFileWriter, "write", listen)
    result = task(ranges[1], "0-0-0")
    assert told == sorted(told) and told[-1] == 1
    assert {10 / 45, 40 / 45} <= set(told)
    assert [done.rows for done in result.ranges] == [10, 30, 5]
    assert result.tally.requests == 3, "a pull for each range"
    ((stat,),) = result.stats
    with pq.ParquetFile(task.attempt.storage.full(stat["path"])) as file:
        assert file.metadata.num_rows == stat["numWrites"] == 45


def test_a_task_tells_keys_that_no_column_names_whether_or_not_another_keeps_them(
    task: AppendTask, ranges: tuple[LogService, list[Range]]
) -> None:
    assert task(ranges[1], "0-0-0").unnamed.logs["value"] == 45
    without = replace(task, read=replace(task.read, rows=replace(task.read.rows, rest_column=None, shows=True)))
    found = without(ranges[1], "0-0-1").unnamed
    assert found.looked == 45 and found.logs["value"] == 45
    assert found.examples["value"][0] in {str(number) for number in range(60)}


def test_a_task_tells_fields_that_a_struct_does_not_name_whatever_keeps_other_keys(
    task: AppendTask, ranges: tuple[LogService, list[Range]]
) -> None:
    service, logstore = ranges[0], ranges[0].logstore
    begin = service.end(0)
    client = by_ip(service.connection)
    put(client, logstore, [b'{"roleArn": "r"}', b'{"bucketName": "b", "roleArn": "r"}'])
    struct = ColumnSpec("event", "struct<roleArn:string>", "value")
    reading = replace(task, read=replace(task.read, rows=replace(task.read.rows, columns=(struct,), shows=True)))
    assert task.read.rows.rest_column is not None
    found = reading([Range(0, begin, service.end(0))], "0-0-2").unnamed
    assert found == Unnamed(2, {"value $.bucketName": 1}, {"value $.bucketName": ["b"]})


def test_a_task_with_more_partitions_than_a_commit_takes_files_counts_them_and_writes_those_that_are_kept(
    task: AppendTask, ranges: tuple[LogService, list[Range]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(basefile, "MOST_FILES", 30)
    monkeypatch.setattr(append, "MOST_FILES", 30)
    rows = replace(
        task.read.rows, columns=(ColumnSpec("value", "string", "value"),), partition=PartitionSpec("value", "value")
    )
    task = replace(task, read=replace(task.read, rows=rows), partition_name="value")
    result = task(ranges[1], "0-0-3")
    assert (result.stats, len(result.spread), set(result.spread.values())) == ([], 45, {1})
    assert not [path for path, _ in task.attempt.storage.walk() if path.endswith(".parquet")]

    written = TaskResult([[{"partitionPath": "value=5", "numWrites": 7}]], [], result.tally, None, Unnamed())
    kept = partitions_to_keep([result, written])
    assert kept is not None and "value=5" in kept and len(kept) == 27
    assert partitions_to_keep([written] * 30) is None

    again = replace(task, read=replace(task.read, rows=replace(rows, kept=kept)))(ranges[1], "0-1-4")
    stats = {stat["partitionPath"]: stat["numWrites"] for stat in again.stats[0]}
    assert stats == {**dict.fromkeys(kept, 1), "value=__HIVE_DEFAULT_PARTITION__": 18}
    assert again.tally.misfits == {"value": 18}


def test_a_task_whose_order_was_withdrawn_reads_one_pull_and_ends(
    task: AppendTask, ranges: tuple[LogService, list[Range]]
) -> None:
    task.attempt.storage.delete_folder(".hoodie/slshudi")
    with pytest.raises(ManifestError, match="no order"):
        task(ranges[1], "0-0-0")
    assert not list(Path(task.attempt.storage.full("")).rglob("*.parquet*"))
