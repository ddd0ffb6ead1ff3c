"""Memory of an upsert over the size of a batch whose rows all have one key: peaks of Spark's Python workers.

    python benchmarks/hot_key.py [--sizes 1 2 4 8] [--merge event_time partial] [--json FILE]

Each batch is the job of an upsert, as a driver runs it on two cores: tasks that read make rows of about 1 KiB, Spark's
shuffle moves them, and tasks that write leave the files of a new table. The peaks are those that the kernel keeps of
each process (VmHWM), Arrow's and Parquet's memory included. The last line is what the bar is about.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from memory import FLAT, LOOK_SECONDS, MOST_WORKER_BYTES, peak
from watch import Watch

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import BatchOrder, Unnamed
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import Rows, RowSpec
from airflow_provider_slshudi.spark.driver.reading import Read, ReadSpec, Tally
from airflow_provider_slshudi.spark.driver.upsert import WRITE_BYTES, UpsertTask, run, upsert_spec
from airflow_provider_slshudi.spark.runtime import DAEMON, environment, session_conf
from airflow_provider_slshudi.storage.files import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext

GIB = 1 << 30
PULL_ROWS, ROW_BYTES = 5_000, 1_024
INSTANT = "20260101000000000"
MERGES: dict[str, dict[str, Any]] = {
    "event_time": {"ordering_field": "updated_at"},
    "commit_time": {},
    "partial": {"ordering_field": "updated_at", "partial_update": True},
}


@dataclass
class _Made:
    """In the place of a reading: pulls of rows of one key, whose ordering values rise."""

    ranges: list[Range]

    def rows(self) -> Iterator[Read]:
        """A pull for each cursor."""
        noise = np.random.default_rng(1).integers(97, 123, PULL_ROWS * ROW_BYTES, np.uint8).tobytes()
        offsets = pa.py_buffer(np.arange(PULL_ROWS + 1, dtype=np.int32) * ROW_BYTES)
        note = pa.Array.from_buffers(pa.string(), PULL_ROWS, [None, offsets, pa.py_buffer(noise)])
        keys, index = pa.repeat("hot", PULL_ROWS), pa.array(np.arange(PULL_ROWS, dtype=np.int32))
        for item in self.ranges:
            for cursor in range(item.begin, item.end):
                at = pa.array(np.arange(PULL_ROWS) + cursor * PULL_ROWS)
                number = pa.array(at.to_numpy(), mask=at.to_numpy() % 3 > 0)
                rows = pa.table({"id": keys, "updated_at": at, "number": number, "note": note})
                logs = pa.table({"__cursor__": pa.repeat(cursor, PULL_ROWS), "__index__": index})
                pull: Any = SimpleNamespace(shard=item.shard)
                yield Read(Rows(rows, keys, None), logs, pull, 0.0)

    def tally(self) -> Tally:
        """Everything fits."""
        return Tally({}, 0, [])

    def unnamed(self) -> Unnamed:
        """Every key has its column."""
        return Unnamed()

    def done(self) -> list[Any]:
        """Nothing of a shard."""
        return []


class _Task(UpsertTask):
    """Makes its rows."""

    def _reading(self, ranges: list[Range]) -> Any:
        return _Made(ranges)


def add_peak(peaks: dict[int, int], process: psutil.Process) -> None:
    """Raises the peak of a Python worker."""
    if DAEMON in process.cmdline():
        peaks[process.pid] = max(peaks.get(process.pid, 0), peak(process.pid))


def upsert(spark: SparkContext, folder: Path, merge: dict[str, Any], size: int) -> None:
    """Runs the job, and makes sure that the table has one row, the last one."""
    columns = [{"name": "id"}, {"name": "updated_at", "type": "bigint"}, {"name": "number", "type": "bigint"}]
    pipeline = Pipeline.model_validate(
        {
            "name": "hot",
            "source": {"project": "none", "logstore": "none"},
            "table": {
                "path": f"file://{folder}",
                "name": "hot",
                "type": "copy_on_write",
                "upsert": {"record_key": "id", "buckets": 8, **merge},
            },
            "columns": [*columns, {"name": "note"}],
        }
    )
    storage, order = Storage(pipeline.table.path), BatchOrder("", 0, INSTANT, {}, [], {})
    fencing.admit(storage, INSTANT)
    batch_files.write_order(storage, order)
    read: Any = None
    task = _Task(
        ReadSpec(read, pipeline.name, RowSpec.of(pipeline), {}),
        order.attempt(storage),
        upsert_spec(pipeline, INSTANT, Completed(frozenset(), "")),
        max(2, size // WRITE_BYTES),
        None,
    )
    pulls = size // (PULL_ROWS * ROW_BYTES)
    # Two shards, each cut in two: rows of a shard come from two tasks, and those of a task from two shards.
    cuts = [Range(shard, begin * pulls // 4, (begin + 1) * pulls // 4) for begin in range(2) for shard in range(2)]
    results = run(spark, task, [cuts[:2], cuts[2:]])
    (stat,) = [stat for result in results for stat in result["stats"]]
    (row,) = pq.read_table(folder / stat["path"], partitioning=None).select(["id", "updated_at", "number"]).to_pylist()
    newest = cuts[-1].end * PULL_ROWS - 1
    expected = newest - newest % 3 if merge.get("partial_update") else None if newest % 3 else newest
    if row != {"id": "hot", "updated_at": newest, "number": expected}:
        raise SystemExit(f"the table has {row}, not {newest} and {expected}")


def main() -> int:
    """Measures and prints; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 2, 4, 8], help="GiB of rows")
    parser.add_argument("--merge", nargs="+", choices=list(MERGES), default=["event_time", "partial"])
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    os.environ.update(environment())
    from pyspark import SparkConf, SparkContext

    found: dict[str, dict[float, int]] = {merge: {} for merge in given.merge}
    for merge in given.merge:
        for size in given.sizes:
            with tempfile.TemporaryDirectory(prefix="slshudi-hot-") as folder:
                conf = {**session_conf("local"), "spark.ui.enabled": "false", "spark.local.dir": f"{folder}/spark"}
                spark = SparkContext("local[2]", "hot", conf=SparkConf().setAll(list(conf.items())))
                peaks: dict[int, int] = {}
                began = time.monotonic()
                with Watch(partial(add_peak, peaks), LOOK_SECONDS):
                    upsert(spark, Path(folder) / "table", MERGES[merge], int(size * GIB))
                spark.stop()
            found[merge][size] = max(peaks.values())
            took = time.monotonic() - began
            print(f"  {merge}, {size:g} GiB on one key: a worker takes {found[merge][size] / 1e6:.0f} MB, {took:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    worker = max(size for peaks_ in found.values() for size in peaks_.values())
    grown = {merge: peaks_[max(peaks_)] / peaks_[min(peaks_)] for merge, peaks_ in found.items()}
    print(
        f"hot key: a worker takes at most {worker / 1e6:.0f} MB (bar {MOST_WORKER_BYTES / 1e6:.0f}); over "
        f"{min(given.sizes):g} to {max(given.sizes):g} GiB: "
        + ", ".join(f"{merge} x {by:.2f}" for merge, by in grown.items())
    )
    return 0 if worker <= MOST_WORKER_BYTES and max(grown.values()) <= FLAT else 1


if __name__ == "__main__":
    sys.exit(main())
