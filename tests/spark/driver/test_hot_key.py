"""An upsert whose rows all have one key: its tasks take the same memory however many rows there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_slshudi.hudi.files import spill

MIB = 1 << 20
_TASK = """
import sys
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.spark.driver.reading import Read, ReadSpec, Tally
from airflow_provider_slshudi.spark.driver.upsert import UpsertTask, upsert_spec
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import BatchOrder
from airflow_provider_slshudi.handover.batch_files import Unnamed
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import Rows, RowSpec
from airflow_provider_slshudi.storage.files import Storage
from tests.pipelines import customers

folder, pulls, count, instant = Path(sys.argv[1]), int(sys.argv[2]), 5_000, "20260101000000000"
merging = {"delete_marker": None, "partial_update": True} if sys.argv[3] == "partial" else {}
names = pa.array([f"{number:04d}" * 256 for number in range(count)])
nulls = {"is_deleted": pa.nulls(count, pa.bool_()), "score": pa.nulls(count, pa.float64())}
same = {**nulls, "id": pa.repeat("hot", count), "region": pa.repeat("a", count), "name": names}

class Made:
    def rows(self):
        for cursor in range(pulls):
            at = pa.array(np.arange(count) + cursor * count)
            rows = pa.table({**same, "updated_at": at, "number": at})
            logs = pa.table({"__cursor__": pa.repeat(cursor, count), "__index__": pa.array(range(count), pa.int32())})
            partitions = same["region"].dictionary_encode()
            yield Read(Rows(rows, same["id"], partitions), logs, SimpleNamespace(shard=0), 0.0)
    def tally(self):
        return Tally({}, 0, [])
    def unnamed(self):
        return Unnamed()
    def done(self):
        return []

class Task(UpsertTask):
    def _reading(self, ranges):
        return Made()

pipeline = customers(folder, "copy_on_write", **merging)
storage, order = Storage(pipeline.table.path), BatchOrder("t1", 1, instant, {}, [], {})
fencing.admit(storage, instant)
batch_files.write_order(storage, order)
spec = upsert_spec(pipeline, instant, Completed(frozenset(), ""))
task = Task(ReadSpec(None, "customers", RowSpec.of(pipeline), {}), order.attempt(storage), spec, 1, "region")
(done,) = task.write((content for _, content in task.send([Range(0, 0, 1)])), "0-0-0")
(stat,) = done["stats"]
(row,) = pq.read_table(folder / stat["path"], partitioning=None).to_pylist()
assert done["rows"] == row["number"] + 1 == row["updated_at"] + 1 == pulls * count, row
# Not ru_maxrss, which begins with what the process that started this one has.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.parametrize("merging", ["event time", "partial"])
def test_a_key_that_changes_often_takes_no_memory(tmp_path: Path, merging: str) -> None:
    """300 and 900 MB of rows, read, packed and written by one process."""
    small, large = (peak_of(tmp_path / str(pulls), pulls, merging) for pulls in (60, 180))
    assert large < 600 * MIB, f"{small >> 20} and {large >> 20} MiB"
    assert large < small + 60 * MIB, f"{small >> 20} and {large >> 20} MiB"


def peak_of(table: Path, pulls: int, merging: str) -> int:
    table.mkdir()
    command = [sys.executable, "-c", _TASK, str(table), str(pulls), merging]
    environment = {**os.environ, spill.LOCAL_DIRS: str(table.parent)}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
