"""What a filter on a sorted column reads of twenty million rows.

    python benchmarks/skipping.py [--rows N] [--json FILE]    about 5 minutes

Files of random numbers are committed, then clustered by the number, as `maintenance.clustering.sort` says. A query asks
for a thousandth of the numbers, with Hudi's data skipping and without.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import commit, instants, rewriting
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import arrow_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR = 0.9
"""Of the files that a query skips."""
FILE_ROWS = 500_000
RANGE = 1 << 40


@dataclass(frozen=True)
class Scan:
    """What a query found and read."""

    rows: int
    files: int
    bytes: int
    seconds: float


def pipeline_of(table: Path) -> Pipeline:
    """A table sorted by a number."""
    return Pipeline.model_validate(
        {
            "name": "numbers",
            "source": {"project": "none", "logstore": "none"},
            "table": {"path": f"file://{table}", "name": "numbers"},
            "columns": [{"name": "number", "type": "bigint"}, {"name": "price", "type": "double"}, {"name": "told"}],
            "maintenance": {"clustering": {"sort": ["number"], "small_file": "15MiB", "target_file": "16MiB"}},
        }
    )


def fill(gateway: Gateway, pipeline: Pipeline, rows: int) -> None:
    """Commits files of random rows."""
    storage, random = Storage(pipeline.table.path), np.random.default_rng(7)
    instants.create_table(gateway, pipeline)
    instant = instants.new_instant_time(gateway, storage.uri)
    instants.request(gateway, storage.uri, instant)
    instants.to_inflight(gateway, storage.uri, instant)
    stats = []
    for first in range(0, rows, FILE_ROWS):
        count = min(FILE_ROWS, rows - first)
        numbers = random.integers(0, RANGE, count)
        data = {"number": numbers, "price": random.random(count), "told": [f"user-{n:x}" for n in numbers.tolist()]}
        keys = pa.array([f"0-{first + n}-0" for n in range(count)])
        with BaseFileWriter(storage, instant, f"0-0-{first // FILE_ROWS}", 1 << 30, lambda: None) as writer:
            writer.write(pa.table(data, schema=arrow_schema(pipeline)), keys, None, None)
            stats += writer.close()
        print(f"{first + count:,} rows written", file=sys.stderr, flush=True)
    commit.commit(gateway, pipeline, instant, stats, {})


def cluster(gateway: Gateway, pipeline: Pipeline) -> None:
    """Makes sorted files of them."""
    rewriting.plan_clustering(gateway, pipeline)
    (pending,) = Timeline.load(Storage(pipeline.table.path)).pending()
    written = rewriting.cluster(gateway, pipeline, pending.time, lambda: None)
    rewriting.complete_clustering(gateway, pipeline, pending.time, written.metadata, lambda: None)


def scan(spark: SparkSession, pipeline: Pipeline, skipping: bool) -> Scan:
    """Reads a thousandth of the numbers."""
    begin = RANGE // 3
    table = spark.read.format("hudi").option("hoodie.enable.data.skipping", str(skipping).lower())
    frame = table.load(pipeline.table.path).where(f"number >= {begin} and number < {begin + RANGE // 1000}")
    before, began = _read(spark), time.monotonic()
    rows = len(frame.collect())
    seconds = time.monotonic() - began
    files = _metrics(frame._jdf.queryExecution().executedPlan())["numFiles"]
    return Scan(rows, files, _read(spark) - before, seconds)


def _read(spark: SparkSession) -> int:
    """Bytes that tasks have read so far."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return sum(executors.apply(number).totalInputBytes() for number in range(executors.size()))


def _metrics(plan: Any) -> dict[str, int]:
    """What Spark counted in a plan."""
    found, metrics, children = dict[str, int](), plan.metrics().iterator(), plan.children()
    while metrics.hasNext():
        metric = metrics.next()
        found[metric._1()] = metric._2().value()
    for number in range(children.size()):
        found |= _metrics(children.apply(number))
    return found


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--json", type=Path, help="keep all figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = pipeline_of(Path(folder) / "table")
        spark = start_spark()
        gateway = Gateway.of(spark.sparkContext)
        fill(gateway, pipeline, arguments.rows)
        cluster(gateway, pipeline)
        files = len(committed_files(gateway, pipeline))
        scan(spark, pipeline, True)  # so that neither side compiles
        found = {how: scan(spark, pipeline, how == "skipping") for how in ("skipping", "not skipping")}
    for how, one in found.items():
        print(f"{how}: {one.files} of {files} files, {one.bytes / 1e6:.1f} MB, {one.seconds:.2f} s, {one.rows} rows")
    skipped = 1 - found["skipping"].files / files
    print(f"{skipped:.3f} of the files skipped (bar {BAR})")
    if arguments.json:
        figures = {"rows": arguments.rows, "files": files, **{how: asdict(one) for how, one in found.items()}}
        arguments.json.write_text(json.dumps(figures))
    same = found["skipping"].rows == found["not skipping"].rows
    return 0 if skipped >= BAR and same else 1


if __name__ == "__main__":
    sys.exit(main())
