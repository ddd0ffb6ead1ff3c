"""What exactness costs: a batch by the protocol, beside one process that writes the same ranges and commits at once.

    python benchmarks/exactness.py [--rounds 5] [--sizes 0.1 1 5] [--ledger URL] [--json FILE]

Both sides read the same ranges from a server on this machine that replays stored answers, with the same tasks, into
tables of their own that hold a small batch already, and take turns (A B, B A, ...). The protocol's steps are called as
the tasks of a DAG run call them, but in this one process: what Airflow needs to start tasks is not counted.

Printed for each size, as medians over the rounds with their span:
  difference   wall time of our batch minus that of the bare one: reading and writing included, so noise of 5 GB too
  own          the same outside of reading and writing, which both sides do alike: everything else of our batch minus
               everything else of the bare one. These are the protocol's own seconds, the figure of the last line
  and every step's seconds, for ours and for the bare process.
The protocol's own seconds do not depend on how long a batch reads, which the sizes show; their share of a batch of one
minute and of five is therefore computed from the largest of the three medians.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from replay import GROUPS_A_PULL, LOGS_A_GROUP, POOL_PULLS, Replay, replay

from airflow_provider_slshudi.cli.demo.run import DAGS
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.spark.runtime import control_conf, environment, make_archive
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle

STEPS = ("settle", "plan", "open", "append", "record", "commit")
FIRST_BATCH_BYTES = 2_000_000
# Longer than any pause between two of our batches here.
RESIDENT_SECONDS = "180"
MINUTE_SHARE, FIVE_MINUTES_SHARE = 0.03, 0.01
Figures = dict[str, float]


class Bench:
    """Two tables and a ledger in one directory, and the server that both sides read; `lake` has the tables elsewhere,
    and `master` has appends run elsewhere."""

    def __init__(
        self,
        folder: Path,
        server: Replay,
        ledger_url: str = "",
        resident: bool = False,
        task_bytes: str = "1MiB",
        lake: str = "",
        master: str = "local[2]",
    ) -> None:
        self._folder, self._server, self._resident, self._task_bytes = folder, server, resident, task_bytes
        self._lake, self._master = lake or f"file://{folder}", master
        self._engine = open_engine(ledger_url or f"sqlite:///{folder / 'ledger.db'}")
        migrate(self._engine)
        self._ledger = Ledger(self._engine)
        self._name = f"exactness-{uuid.uuid4().hex[:8]}"

    def ours(self, run: str, ranges: list[list[int]]) -> Figures:
        """One batch by the protocol; seconds by step, of reading and writing, and in all; and its rows."""
        pipeline = self.pipeline("ours")
        work = Work(
            pipeline,
            self._ledger,
            SubprocessLauncher(self._master, resident=self._resident),
            lambda: LogService(self._server.connection, pipeline.source.project, pipeline.source.logstore),
            Run("bench", run),
        )
        took: Figures = {}
        began = last = time.monotonic()

        def step(name: str) -> None:
            nonlocal last
            now = time.monotonic()
            took[name], last = now - last, now

        settle(work, lambda run: True)
        step("settle")
        planned = plan.tail(work)
        if planned is None:
            raise SystemExit("nothing was planned")
        step("plan")
        id_, token = planned.id, planned.token
        steps.open_instant(work, id_, token)
        step("open")
        steps.append(work, id_, token)
        step("append")
        steps.record(work, id_, token)
        step("record")
        done = steps.commit(work, id_, token)
        step("commit")
        took["all"] = last - began
        read = [[item.shard, item.begin, item.end] for item in self._ledger.ranges(id_)]
        if read != ranges or done.manifest is None:
            raise SystemExit(f"the protocol read {read}, the bare process was given {ranges}")
        rows = sum(item.rows for item in self._ledger.totals(id_))
        return {**took, "write": float(done.manifest["seconds"]), "rows": rows}

    def bare(self, ranges: list[list[int]]) -> Figures:
        """The same by the bare process."""
        pipeline = self.pipeline("bare")
        density = {str(shard): self._server.group_bytes for shard, _, _ in ranges}
        order = self._folder / "order.json"
        order.write_text(
            json.dumps({"pipeline": pipeline.model_dump(mode="json"), "ranges": ranges, "density": density})
        )
        began = time.monotonic()
        variables = {**os.environ, **environment(), **self._server.connection.to_env()}
        command = [str(Path(variables["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[2]"]
        for key, value in control_conf().items():
            command += ["--conf", f"{key}={value}"]
        command += [str(Path(__file__).with_name("bare_append.py")), str(order)]
        done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        whole = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"the bare process ended with {done.returncode}:\n{done.stderr[-4000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        found.pop("instant")
        return {**found, "start and end": whole - found["open"] - found["write"] - found["commit"], "all": whole}

    def pipeline(self, side: str) -> Pipeline:
        """The demo's pipeline into the table of a side, read as fast as it can, by two tasks from `task_bytes` on."""
        example = load_pipeline(DAGS / "pipelines" / "ad_events.yaml").model_dump(mode="json")
        example["name"] = self._name
        example["table"]["path"] = f"{self._lake}/{side}"
        example["source"] |= {"read_bytes_per_second": "100GB", "reads_per_second": 1e6, "start": "begin"}
        example["batch"] |= {"max_bytes": "100GB", "task_bytes": self._task_bytes}
        return Pipeline.model_validate(example)

    def close(self) -> None:
        """Lets go of the ledger."""
        self._engine.dispose()


def measure(server: Replay, size: float, given: argparse.Namespace) -> list[dict[str, Figures]]:
    """The figures of both sides in each round of a size in GB raw."""
    keep: Path | None = given.keep
    found: list[dict[str, Figures]] = []
    server.empty()
    with tempfile.TemporaryDirectory(prefix="slshudi-exactness-", dir=keep) as made:
        bench = Bench(Path(made), server, given.ledger, not given.one_shot)
        try:
            for number in range(given.rounds + 1):
                ranges = server.grow(size * 1e9 if number else FIRST_BATCH_BYTES)
                run = f"{size:g} GB, {number}"
                sides = {"ours": lambda: bench.ours(run, ranges), "bare": lambda: bench.bare(ranges)}  # noqa: B023
                turns = list(sides) if number % 2 else list(reversed(sides))
                took = {side: sides[side]() for side in turns}
                if took["ours"]["rows"] != took["bare"]["rows"]:
                    raise SystemExit(f"{run}: rows differ: {took}")
                if number:
                    found.append(took)
                    print(f"  {run}: " + ", ".join(f"{side} {took[side]['all']:.2f} s" for side in turns), flush=True)
            if keep is not None:
                for side in ("ours", "bare"):
                    shutil.copytree(Path(made) / side, keep / f"{size:g}-{side}")
        finally:
            bench.close()
    return found


def difference(took: dict[str, Figures]) -> float:
    """Seconds that our batch took longer, as a clock shows them."""
    return took["ours"]["all"] - took["bare"]["all"]


def own(took: dict[str, Figures]) -> float:
    """The same without reading and writing."""
    return difference(took) - (took["ours"]["write"] - took["bare"]["write"])


def summary(size: float, found: list[dict[str, Figures]]) -> dict[str, Any]:
    """Prints a size's figures and gives their medians."""
    ours, bare = [took["ours"] for took in found], [took["bare"] for took in found]
    print(f"{size:g} GB raw a batch, {ours[0]['rows']:,.0f} rows, {len(found)} rounds: median (least to most), seconds")
    lines: dict[str, list[float]] = {
        "difference": [difference(took) for took in found],
        "own": [own(took) for took in found],
    }
    for name in ("all", "write", *STEPS):
        lines[f"ours {name}"] = [figures[name] for figures in ours]
    for name in ("all", "write", "start and end", "open", "commit"):
        lines[f"bare {name}"] = [figures[name] for figures in bare]
    for name, values in lines.items():
        print(f"  {name:<20}{spread(values)}")
    return {name: statistics.median(values) for name, values in lines.items()}


def spread(values: Iterable[float]) -> str:
    """Median and span."""
    listed = sorted(values)
    return f"{statistics.median(listed):7.2f} ({listed[0]:.2f} to {listed[-1]:.2f})"


def main(arguments: list[str]) -> int:
    """Prints all figures, the protocol's own seconds last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median counts (default: %(default)s)")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.1, 1, 5], help="GB raw (default: 0.1 1 5)")
    parser.add_argument("--ledger", default="", help="SQLAlchemy URL of a ledger, else SQLite files of its own")
    parser.add_argument("--one-shot", action="store_true", help="open and commit in JVMs of their own, none resident")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--keep", type=Path, help="an existing folder in which the tables are left")
    given = parser.parse_args(arguments)
    make_archive()
    os.environ.setdefault(IDLE, RESIDENT_SECONDS)
    pulls = min(POOL_PULLS, math.ceil(max(given.sizes) * 1e9 / (GROUPS_A_PULL * LOGS_A_GROUP * 600)))
    figures: dict[str, Any] = {}
    with replay(max(4, pulls)) as server:
        for size in given.sizes:
            found = measure(server, size, given)
            figures[f"{size:g}"] = {"median": summary(size, found), "rounds": found}
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
    seconds = {size: item["median"]["own"] for size, item in figures.items()}
    most = max(seconds.values())
    listed = ", ".join(f"{size} GB {value:.1f}" for size, value in seconds.items())
    print(
        f"exactness: {most:.1f} s a batch ({listed}): {most / 60:.1%} of a one-minute batch, "
        f"{most / 300:.1%} of a five-minute one"
    )
    return 0 if most <= min(60 * MINUTE_SHARE, 300 * FIVE_MINUTES_SHARE) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
