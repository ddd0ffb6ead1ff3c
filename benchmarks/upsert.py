"""A million updates into a table of twenty million rows, beside Hudi's own data source.

    python benchmarks/upsert.py [--rows N] [--updates N] [--rounds N] [--type T] [--json FILE]    about 30 minutes

Three ways take turns, each in a process of its own on a copy of its table, and read the same Parquet files of updated
rows: Hudi's data source with its default index, the same with its bucket index, and ours on a copy of the latter's
table, from the instant's begin to its commit. A way's time begins when Spark is there and ends when the batch is
committed; its CPU is that of all its processes, Spark's start included. Afterwards Spark reads ours and the bucket
index's table and finds the same rows.

The last line is the ratios of the bars: each way's wall time over ours, as medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from throughput import measured, spread

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import BatchOrder, Unnamed
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.writer import upsert_options
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.hudi.instant_metadata import action as action_of
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.rows.maker import Rows, RowSpec
from airflow_provider_slshudi.spark.driver.reading import Read, ReadSpec, Tally
from airflow_provider_slshudi.spark.driver.upsert import UpsertTask, run, upsert_spec
from airflow_provider_slshudi.spark.runtime import environment, leave, quiet, session_conf
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.processes import adopt_orphans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = {"default": "data source, default index", "bucket": "data source, bucket index", "ours": "slshudi"}
BARS = {"default": 3.0, "bucket": 1.0}
COLUMNS = {
    "id": "string",
    "updated_at": "bigint",
    "name": "string",
    "city": "string",
    "score": "double",
    "number": "bigint",
}
FILES = 8
"""Of updated rows."""


def pipeline_of(table: str, table_type: str, buckets: int) -> Pipeline:
    """A table without partitions."""
    upsert = {"record_key": "id", "ordering_field": "updated_at", "buckets": buckets}
    return Pipeline.model_validate(
        {
            "name": "users",
            "source": {"project": "none", "logstore": "none"},
            "table": {"path": f"file://{table}", "name": "users", "type": table_type, "upsert": upsert},
            "columns": [{"name": name, "type": type_} for name, type_ in COLUMNS.items()],
        }
    )


@dataclass
class _FromFiles:
    """In the place of a reading: rows that are there already."""

    files: list[str]
    names: list[str]

    def rows(self) -> Iterator[Read]:
        """The files' rows, as a pull's would come; a file is a shard."""
        for number, name in enumerate(self.files):
            for batch in pq.ParquetFile(name).iter_batches(65536, columns=self.names):
                table, count = pa.Table.from_batches([batch]), batch.num_rows
                numbers = pa.array(range(count), pa.int64())
                logs = pa.table({"__cursor__": numbers, "__index__": pa.repeat(number, count)})
                pull: Any = SimpleNamespace(shard=number)
                yield Read(Rows(table, table["id"].combine_chunks(), None), logs, pull, 0.0)

    def tally(self) -> Tally:
        """Everything fits."""
        return Tally({}, 0, [])

    def unnamed(self) -> Unnamed:
        """Every key has its column."""
        return Unnamed()

    def done(self) -> list[Any]:
        """Nothing of a shard."""
        return []


@dataclass(frozen=True)
class _Task(UpsertTask):
    """Reads files."""

    files: tuple[str, ...] = ()

    def _reading(self, ranges: list[Range]) -> Any:
        return _FromFiles([self.files[item.begin] for item in ranges], self.spec.columns.names)


def ours(spark: SparkSession, given: dict[str, Any]) -> None:
    """Opens, writes, commits."""
    pipeline = Pipeline.model_validate(given["pipeline"])
    storage, gateway = Storage(pipeline.table.path), Gateway.of(spark.sparkContext)
    action, instant = action_of(pipeline.table), instants.new_instant_time(gateway, pipeline.table.path)
    instants.request(gateway, storage.uri, instant, action)
    instants.to_inflight(gateway, storage.uri, instant, action)
    order = BatchOrder("", 0, instant, {}, [], {})
    batch_files.write_order(storage, order)
    tasks = spark.sparkContext.defaultParallelism
    files = tuple(sorted(str(file) for file in Path(given["updates"]).glob("*.parquet")))
    read: Any = None
    task = _Task(
        ReadSpec(read, pipeline.name, RowSpec.of(pipeline), {}),
        order.attempt(storage),
        upsert_spec(pipeline, instant, Completed.of(Timeline.load(storage))),
        tasks,
        None,
        files,
    )
    work = [[Range(0, number, number + 1) for number in range(first, len(files), tasks)] for first in range(tasks)]
    stats = [stat for result in run(spark.sparkContext, task, work) for stat in result["stats"]]
    commit.commit(gateway, pipeline, instant, stats, {})


def by_data_source(spark: SparkSession, given: dict[str, Any], way: str, operation: str, rows: Any) -> None:
    """Writes rows with Hudi's data source."""
    table = Pipeline.model_validate(given["pipeline"]).table
    by_bucket = upsert_options(table.upsert) if table.upsert is not None and way == "bucket" else {}
    options = {
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.table.type": table.type.upper(),
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "updated_at",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": instants.key_generator(table),
        "hoodie.datasource.write.operation": operation,
        **by_bucket,
    }
    rows.write.format("hudi").options(**options).mode("append").save(table.path)


def make_rows(spark: SparkSession, first: int, count: int, step: int, version: int) -> Any:
    """Rows `first`, `first + step`, ... as of a version."""
    return spark.range(count).selectExpr(
        f"concat('user-', lpad(cast({first} + id * {step} as string), 9, '0')) as id",
        f"cast({1_700_000_000_000 + version} as bigint) as updated_at",
        f"concat('name ', hex(hash(id, {version}))) as name",
        f"concat('city ', cast(pmod(hash(id + {version}), 1000) as string)) as city",
        f"cast(pmod(hash(id, {version}, 1), 100000) / 7 as double) as score",
        f"hash(id, {version}, 2) * cast(1000 as bigint) as number",
    )


def act(way: str, given: dict[str, Any]) -> None:
    """One process's work; leaves its seconds."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    quiet(spark._jvm)
    began, sums = time.monotonic(), dict[str, list[int]]()
    if way == "prepare":
        rows, updates = given["rows"], given["count"]
        changed = make_rows(spark, 3, updates, rows // updates, 1)
        changed.orderBy("name").repartition(FILES).write.parquet(given["updates"])
        for base, pipeline in given["tables"].items():
            by_data_source(spark, {"pipeline": pipeline}, base, "bulk_insert", make_rows(spark, 0, rows, 1, 0))
    elif way == "sums":
        for name, pipeline in given["tables"].items():
            table = spark.read.format("hudi").load(pipeline["table"]["path"])
            found = table.selectExpr("count(*)", f"sum(xxhash64({', '.join(COLUMNS)}) % 1000000007)")
            sums[name] = [int(value) for value in found.collect()[0]]
    elif way == "ours":
        ours(spark, given)
    else:
        by_data_source(spark, given, way, "upsert", spark.read.parquet(given["updates"]))
    Path(given["result"]).write_text(json.dumps({"seconds": time.monotonic() - began, "sums": sums}))
    spark.stop()
    leave(spark._jvm)


class Bench:
    """The tables and what is written into copies of them."""

    def __init__(self, folder: Path, rows: int, updates: int, type_: str, buckets: int) -> None:
        self.folder, self._type, self._buckets = folder, type_, buckets
        tables = {way: self._pipeline(f"base-{way}") for way in ("default", "bucket")}
        self._submit("prepare", {"rows": rows, "count": updates, "tables": tables})

    def write(self, way: str) -> dict[str, float]:
        """Wall seconds of the write and CPU seconds of the whole, on a new copy of the way's table."""
        place = self.folder / way
        shutil.rmtree(place, ignore_errors=True)
        base = "default" if way == "default" else "bucket"
        # Data files are never changed in place: a link is as good as a copy.
        subprocess.run(["cp", "-al", str(self.folder / f"base-{base}"), str(place)], check=True)
        shutil.rmtree(place / ".hoodie")
        shutil.copytree(self.folder / f"base-{base}" / ".hoodie", place / ".hoodie")
        found: dict[str, Any] = {}
        took = measured(lambda: found.update(self._submit(way, {"pipeline": self._pipeline(way)})), os.getpid())
        return {"wall": found["seconds"], "cpu": took["cpu"]}

    def sums(self) -> dict[str, list[int]]:
        """Numbers that two tables share only if their rows are the same."""
        tables = {way: self._pipeline(way) for way in WAYS}
        return dict(self._submit("sums", {"tables": tables})["sums"])

    def _pipeline(self, table: str) -> dict[str, Any]:
        return pipeline_of(str(self.folder / table), self._type, self._buckets).model_dump(mode="json")

    def _submit(self, way: str, more: dict[str, Any]) -> dict[str, Any]:
        order, result = self.folder / "order.json", self.folder / "result.json"
        given = {"updates": str(self.folder / "updates"), "result": str(result), **more}
        order.write_text(json.dumps(given), encoding="utf-8")
        made = {**os.environ, **environment()}
        command = [str(Path(made["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[2]"]
        settings = {**session_conf("local"), "spark.ui.enabled": "false", "spark.driver.memory": "4g"}
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        done = subprocess.run(
            [*command, __file__, "--way", way, "--order", str(order)],
            env=made,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{way} ended with {done.returncode}:\n{(done.stderr + done.stdout)[-6000:]}")
        answer: dict[str, Any] = json.loads(result.read_text())
        return answer


def main() -> int:
    """Measures, prints and writes JSON where asked; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=32)
    parser.add_argument("--type", choices=["merge_on_read", "copy_on_write"], default="merge_on_read")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--order", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        act(given.way, json.loads(given.order.read_text(encoding="utf-8")))
        return 0
    adopt_orphans()
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="slshudi-upserts-") as folder:
        bench = Bench(Path(folder), given.rows, given.updates, given.type, given.buckets)
        print(f"{given.type}, {given.rows:,} rows, {given.updates:,} updates, {given.buckets} buckets", flush=True)
        for number in range(given.rounds):
            took = {way: bench.write(way) for way in (WAYS if number % 2 else reversed(list(WAYS)))}
            rounds.append(took)
            told = ", ".join(f"{way} {found['wall']:.1f} s ({found['cpu']:.1f} CPU)" for way, found in took.items())
            print(f"  round {number + 1}: {told}", flush=True)
        sums = bench.sums()
    if any(found != sums["ours"] for found in sums.values()):
        raise SystemExit(f"the ways leave other rows: {sums}")
    print(f"the same rows in every way: {sums['ours']} (count, sum of hashes)")
    return 0 if report(rounds, given.json) else 1


def report(rounds: list[dict[str, dict[str, float]]], to: Path | None) -> bool:
    """Prints the figures and, last, the ratios; whether all are at their bars."""
    for way, label in WAYS.items():
        walls, cpus = ([took[way][name] for took in rounds] for name in ("wall", "cpu"))
        print(f"  {label:<28} wall s {spread(walls):<28} CPU s {spread(cpus)}")
    ratios = {
        name: {way: [took[way][name] / took["ours"][name] for took in rounds] for way in BARS}
        for name in ("wall", "cpu")
    }
    for way, values in ratios["cpu"].items():
        print(f"  CPU, {WAYS[way]}: {statistics.median(values):.2f} times ours, Spark's start in both")
    if to is not None:
        to.write_text(json.dumps({"rounds": rounds, "ratios": ratios}, indent=1))
    said = [f"{WAYS[way]} {spread(ratios['wall'][way]).strip()} times ours (bar {bar:g})" for way, bar in BARS.items()]
    print("upsert, wall time: " + "; ".join(said))
    return all(statistics.median(ratios["wall"][way]) >= bar for way, bar in BARS.items())


if __name__ == "__main__":
    sys.exit(main())
