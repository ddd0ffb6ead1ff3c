"""The fixed cost of a batch: 1,000 logs by a DAG run, beside one spark-submit that appends the same rows with Hudi.

    python benchmarks/fixed_cost.py [--rounds 7] [--logs 1000] [--json FILE]

Ours is the whole way under a real Airflow (scheduler, API server, tasks as processes): from the moment a run of the
tail DAG is triggered over REST until the ledger says COMMITTED, all seven steps' tasks included. The other side is
`peers.py rows`: one plain `spark-submit` that reads the rows of that very batch from a Parquet file and appends them
to a table of its own with Hudi's data source (bulk insert, row writer), until it ends. Both tables hold a batch
already, and both sides take turns. The other table is put back to its first batch each time: by the ninth append or so
the metadata table is compacted, which Hudi 1.2.0's data source may not survive (ArrayIndexOutOfBoundsException in
column_stats). The last line is the ratio of wall times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from aliyun.log import LogItem, PutLogsRequest
from peers import submit

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.demo.airflow import LocalAirflow
from airflow_provider_slshudi.demo.events import ad_events
from airflow_provider_slshudi.demo.example import DAGS, PIPELINE, write_example
from airflow_provider_slshudi.demo.put import sdk_client
from airflow_provider_slshudi.demo.run import variables_of, work_of
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.processes import adopt_orphans
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.spark.resident import IDLE

BAR = 1.0
SHARDS = 2
RUN_SECONDS = 180.0
TAIL = f"{PIPELINE}_tail"


class Batches:
    """An Airflow with the example's pipeline, and the logs that it is given."""

    def __init__(self, airflow: LocalAirflow, work: Work, server: LocalSls, folder: Path) -> None:
        self._airflow, self._work, self._folder = airflow, work, folder
        self._client, source = sdk_client(server.connection()), work.pipeline.source
        self._project, self._logstore = source.project, str(source.logstore)
        self._client.create_project(self._project, "benchmark")
        self._client.create_logstore(self._project, self._logstore, ttl=7, shard_count=SHARDS)
        self._events = ad_events(1, int(time.time() * 1000))

    def ours(self, logs: int) -> tuple[dict[str, float], Transaction]:
        """One DAG run; seconds in all and by step, and its transaction."""
        contents = list(itertools.islice(self._events, logs))
        items = [LogItem(int(time.time()), contents=pairs) for pairs in contents]
        self._client.put_logs(PutLogsRequest(self._project, self._logstore, "ad_events", "10.0.0.1", items))
        before = {item.id for item in self._committed()}
        began = time.monotonic()
        run = self._airflow.trigger(TAIL)
        while not (new := [item for item in self._committed() if item.id not in before]):
            if time.monotonic() > began + RUN_SECONDS:
                raise SystemExit(f"{run} committed nothing: {self._airflow.tasks(TAIL, run)}")
            time.sleep(0.02)
        whole = time.monotonic() - began
        if self._airflow.wait_for_run(TAIL, run) != "success" or new[0].rows != logs:
            raise SystemExit(f"{run}: {self._airflow.tasks(TAIL, run)}, {new[0]}")
        return {"all": whole, **self._steps(run)}, new[0]

    def other(self, transaction: Transaction) -> float:
        """The same rows by the other side; its seconds."""
        rows = self._folder / "rows.parquet"
        instant, table = transaction.instant, self._folder / "lake" / PIPELINE
        (file,) = table.glob(f"event_date=*/*_{instant}.parquet")
        pq.write_table(pq.ParquetFile(file).read().drop_columns(list(META_COLUMNS)), rows)
        pipeline = other_table(self._work.pipeline, self._folder)
        other, first = self._folder / "other", self._folder / "other-first"
        if first.exists():
            shutil.rmtree(other)
            shutil.copytree(first, other)
        began = time.monotonic()
        submit("rows", {"pipeline": pipeline.model_dump(mode="json"), "rows": str(rows)}, self._folder, {})
        took = time.monotonic() - began
        if not first.exists():
            shutil.copytree(other, first)
        return took

    def _committed(self) -> list[Transaction]:
        return self._work.ledger.last(PIPELINE, 100_000, State.COMMITTED)

    def _steps(self, run: str) -> dict[str, float]:
        """Seconds from each task's start to its end; and from the run's start until the first, and between them."""
        found = self._airflow.get(f"dags/{TAIL}/dagRuns/{run}/taskInstances")["task_instances"]
        spans = {
            task["task_id"].rpartition(".")[2]: (_time(task["start_date"]), _time(task["end_date"])) for task in found
        }
        took = {name: end - start for name, (start, end) in sorted(spans.items(), key=lambda item: item[1])}
        first, last = min(start for start, _ in spans.values()), max(end for _, end in spans.values())
        return {**took, "between tasks": last - first - sum(took.values())}


def other_table(pipeline: Pipeline, folder: Path) -> Pipeline:
    """The pipeline with a table of the other side's own."""
    described: dict[str, Any] = pipeline.model_dump(mode="json")
    described["table"]["path"] = f"file://{folder / 'other'}"
    return Pipeline.model_validate(described)


def _time(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def measure(rounds: int, logs: int, folder: Path) -> list[dict[str, Any]]:
    """The figures of each round; one before the first is not counted."""
    found: list[dict[str, Any]] = []
    with LocalSls(folder / "sls") as server:
        pipeline = write_example(DAGS, folder / "pipelines", f"file://{folder / 'lake' / PIPELINE}", "365d")
        work = work_of(pipeline, folder, server.connection())
        # A resident process of this run's own, as a worker host has one.
        variables = {**variables_of(folder, server.connection()), IDLE: "600", "TMPDIR": str(folder)}
        with LocalAirflow(folder / "airflow", DAGS, variables) as airflow:
            airflow.wait_for_dag(TAIL)
            batches = Batches(airflow, work, server, folder)
            airflow.pause(TAIL, False)
            for number in range(rounds + 1):
                ours, transaction = batches.ours(logs)
                other = batches.other(transaction)
                if number:
                    found.append({"ours": ours, "other": other})
                    print(f"  round {number}: ours {ours['all']:.1f} s, spark-submit {other:.1f} s", flush=True)
    return found


def spread(values: list[float]) -> str:
    """Median and span."""
    return f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Measures, prints, and writes JSON where asked; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="whose median counts (default: %(default)s)")
    parser.add_argument("--logs", type=int, default=1000, help="of a batch (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="slshudi-fixed-", ignore_cleanup_errors=True) as folder:
        try:
            found = measure(given.rounds, given.logs, Path(folder))
        finally:
            for process in psutil.Process().children(recursive=True):
                process.kill()
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for name in found[0]["ours"]:
        print(f"  ours, {name:<15}{spread([took['ours'][name] for took in found])} s")
    print(f"  spark-submit         {spread([took['other'] for took in found])} s")
    ratios = [took["ours"]["all"] / took["other"] for took in found]
    print(f"fixed cost: {spread(ratios).strip()} times one spark-submit's wall time (bar {BAR:g})")
    return 0 if statistics.median(ratios) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
