"""The fixed cost of a batch: 1,000 logs by a DAG run, beside one spark-submit that appends the same rows with Hudi.

    python benchmarks/fixed_cost.py [--rounds 7] [--logs 1000] [--json FILE]

Ours is the whole way under a real Airflow (scheduler, API server, tasks as processes): from the moment a run of the
tail DAG is triggered over REST until the ledger says COMMITTED, all seven steps' tasks included. The other side is
`peers.py rows`: one plain `spark-submit` that reads the rows of that very batch from a Parquet file and appends them
to a table of its own with Hudi's data source (bulk insert, row writer), until it ends. Both tables hold a batch
already, and both sides take turns. The other table is put back to its first batch each time: by the ninth append or so
the metadata table is compacted, which Hudi 1.2.0's data source may not survive (ArrayIndexOutOfBoundsException in
column_stats).

CPU is that of all processes until the run is over, less what they take while nothing happens; the log service's is left
out. A run with nothing new stands beside a run of Airflow's own: as many tasks that do nothing, and as many skipped.
The last lines are the ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from aliyun.log import LogItem, PutLogsRequest
from peers import submit
from usage import Idle, used

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.cli.demo.put import ad_events, sdk_client
from airflow_provider_slshudi.cli.demo.run import DAGS, PIPELINE, variables_of, work_of, write_example
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.processes import adopt_orphans
from airflow_provider_slshudi.transaction.context import Work

WALL_BAR, CPU_BAR, EMPTY_BAR = 0.35, 0.2, 0.5
IDLE_SECONDS = 20.0
REST_SECONDS = 1.0
"""After a run, for its last processes to end."""
SHARDS = 2
RUN_SECONDS = 180.0
TAIL, PLAIN = f"{PIPELINE}_tail", "plain"
PLAIN_DAG = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import chain, dag, task

@dag(schedule=None)
def plain():
    @task
    def first():
        return None

    @task.short_circuit
    def second():
        return False

    chain(first(), second(), *[EmptyOperator(task_id=f"skipped_{number}") for number in range(5)])

plain()
"""
"""An empty run of the tail is a task, one that skips the rest, and five that are skipped."""
Cpu = dict[str, float]


class Batches:
    """An Airflow with the example's pipeline, and the logs that it is given."""

    def __init__(self, airflow: LocalAirflow, work: Work, server: LocalSls, folder: Path) -> None:
        self._airflow, self._work, self._folder, self._server = airflow, work, folder, server.pid
        self._client, source = sdk_client(server.connection()), work.pipeline.source
        self._project, self._logstore = source.project, str(source.logstore)
        self._client.create_project(self._project, "benchmark")
        self._client.create_logstore(self._project, self._logstore, ttl=7, shard_count=SHARDS)
        self._events = ad_events(1, int(time.time() * 1000))

    def ours(self, logs: int) -> tuple[dict[str, float], Transaction]:
        """One DAG run over new logs; seconds in all and by step, and its transaction."""
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

    def cpu(self, run: Callable[[], Any]) -> tuple[Any, Counter[str], float]:
        """What `run` gives, CPU seconds by kind of process until shortly after it, and the seconds of that."""
        before, began = used(self._server), time.monotonic()
        given = run()
        time.sleep(REST_SECONDS)
        spent = used(self._server)
        spent.subtract(before)
        return given, spent, time.monotonic() - began

    def runs(self, dag: str) -> float:
        """A run of a DAG that finds nothing to do; its seconds."""
        began = time.monotonic()
        run = self._airflow.trigger(dag)
        if self._airflow.wait_for_run(dag, run) != "success":
            raise SystemExit(f"{run}: {self._airflow.tasks(dag, run)}")
        return time.monotonic() - began

    def other(self, transaction: Transaction) -> tuple[float, float]:
        """The same rows by the other side; its seconds, and its CPU seconds."""
        rows = self._folder / "rows.parquet"
        instant, table = transaction.instant, self._folder / "lake" / PIPELINE
        (file,) = table.glob(f"event_date=*/*_{instant}.parquet")
        pq.write_table(pq.ParquetFile(file).read().drop_columns(list(META_COLUMNS)), rows)
        pipeline = other_table(self._work.pipeline, self._folder)
        other, first = self._folder / "other", self._folder / "other-first"
        if first.exists():
            shutil.rmtree(other)
            shutil.copytree(first, other)
        began, before = time.monotonic(), _of_ended()
        submit("rows", {"pipeline": pipeline.model_dump(mode="json"), "rows": str(rows)}, self._folder, {})
        took, cpu = time.monotonic() - began, _of_ended() - before
        if not first.exists():
            shutil.copytree(other, first)
        return took, cpu

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


def _of_ended() -> float:
    """CPU seconds of processes that this one has waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _time(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def measure(rounds: int, logs: int, folder: Path) -> dict[str, list[Any]]:
    """What each round took; one before the first is not counted."""
    found: dict[str, list[Any]] = {name: [] for name in ("ours", "cpu", "other", "other cpu", "empty", "plain")}
    dags = Path(shutil.copytree(DAGS, folder / "dags"))
    (dags / "plain.py").write_text(PLAIN_DAG, encoding="utf-8")
    with LocalSls(folder / "sls") as server:
        pipeline = write_example(DAGS, folder / "pipelines", f"file://{folder / 'lake' / PIPELINE}", "365d")
        work = work_of(pipeline, folder, server.connection())
        # A resident process of this run's own, as a worker host has one.
        variables = {**variables_of(folder, server.connection()), IDLE: "600", "TMPDIR": str(folder)}
        with LocalAirflow(folder / "airflow", dags, variables) as airflow:
            for dag in (TAIL, PLAIN):
                airflow.wait_for_dag(dag)
            batches = Batches(airflow, work, server, folder)
            for dag in (TAIL, PLAIN):
                airflow.pause(dag, False)
            for _ in range(2):
                # The first learns how large log groups are, and starts Spark for that.
                batches.ours(logs)
            idle = Idle(server.pid, IDLE_SECONDS)
            for number in range(rounds + 1):
                (ours, transaction), spent, seconds = batches.cpu(lambda: batches.ours(logs))
                other, other_cpu = batches.other(transaction)
                took = {"ours": ours, "cpu": idle.off(spent, seconds), "other": other, "other cpu": other_cpu}
                for name, dag in (("empty", TAIL), ("plain", PLAIN)):
                    wall, spent, seconds = batches.cpu(lambda dag=dag: batches.runs(dag))  # type: ignore[misc]
                    took[name] = {"all": wall, "cpu": idle.off(spent, seconds)}
                if number:
                    for name, value in took.items():
                        found[name].append(value)
                    print(f"  round {number}: {told(took)}", flush=True)
    return found | {"idle": [idle.rates]}


def told(took: dict[str, Any]) -> str:
    """A round in a line."""
    ours, other = f"{took['ours']['all']:.1f} s, CPU {total(took['cpu']):.1f} s", f"{took['other']:.1f} s"
    runs = (
        f"{name} run {took[name]['all']:.1f} s, CPU {total(took[name]['cpu']):.2f} s" for name in ("empty", "plain")
    )
    return f"ours {ours}; spark-submit {other}, CPU {took['other cpu']:.1f} s; {', '.join(runs)}"


def total(cpu: Cpu) -> float:
    """CPU seconds of all kinds of processes."""
    return sum(cpu.values())


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
    return report(found)


def report(found: dict[str, list[Any]]) -> int:
    """Prints all figures, and says whether a bar is missed."""
    for name in found["ours"][0]:
        print(f"  ours, {name:<21}{spread([took[name] for took in found['ours']])} s")
    print(f"  spark-submit               {spread(found['other'])} s")
    for what, rounds in (
        ("a batch", found["cpu"]),
        ("an empty run", [took["cpu"] for took in found["empty"]]),
        ("a plain run", [took["cpu"] for took in found["plain"]]),
    ):
        for kind in sorted({kind for cpu in rounds for kind in cpu}):
            print(f"  CPU of {what}, {kind:<24}{spread([cpu.get(kind, 0.0) for cpu in rounds])} s")
        print(f"  CPU of {what}, {'all':<24}{spread([total(cpu) for cpu in rounds])} s")
    print(f"  CPU of spark-submit        {spread(found['other cpu'])} s")
    print("  CPU while idle, a minute:", {kind: round(rate * 60, 2) for kind, rate in found["idle"][0].items()})
    wall = [ours["all"] / other for ours, other in zip(found["ours"], found["other"], strict=True)]
    cpu = [total(ours) / other for ours, other in zip(found["cpu"], found["other cpu"], strict=True)]
    over = [
        total(mine["cpu"]) - total(plain["cpu"]) for mine, plain in zip(found["empty"], found["plain"], strict=True)
    ]
    print(f"an empty run: {spread(over).strip()} CPU s over a plain one of Airflow's (bar {EMPTY_BAR:g})")
    print(f"CPU: {spread(cpu).strip()} times one spark-submit's (bar {CPU_BAR:g})")
    print(f"fixed cost: {spread(wall).strip()} times one spark-submit's wall time (bar {WALL_BAR:g})")
    met = [statistics.median(values) <= bar for values, bar in ((wall, WALL_BAR), (cpu, CPU_BAR), (over, EMPTY_BAR))]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
