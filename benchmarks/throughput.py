"""Throughput beside other ways: raw protobuf bytes per CPU second, from the log service into the table.

    python benchmarks/throughput.py [--sizes 1 2 4] [--rounds 6] [--json FILE]     about 25 minutes on two cores

The ways are those of `peers.py` and ours, the whole protocol with all its steps. They read the same ranges from a
server on this machine that replays stored answers, take turns, and each writes into a place of its own that is new. A
way's figure is the slope over the sizes, so that what a batch costs whatever its size is left out: CPU seconds of all
its processes (drivers, JVMs, Python workers) per GB raw, and its wall time per GB. The server's own CPU is told apart.
Before anything is measured, a small batch is written in every way and its rows are compared, value by value.

The last line is the ratios of the bars: ours over each way's bytes per CPU second, as medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from exactness import Bench
from peers import submit
from replay import Replay, replay
from watch import Watch

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.schema import table_columns
from airflow_provider_slshudi.system.processes import adopt_orphans

WAYS = {
    "sdk": "SDK dicts, Hudi bulk insert",
    "hudi": "our decoding, Hudi row writer",
    "parquet": "our decoding, Spark Parquet",
    "limit": "bare loop without Spark",
    "ours": "slshudi",
}
SLOW = ("sdk", "hudi", "parquet")
SLOW_EVERY = 3
"""The slow ways are far from their bars and take part in every third round only."""
BARS = {"sdk": 6.5, "hudi": 3.5, "parquet": 2.0, "limit": 0.85}
POOL_PULLS = 96
CHECKED_BYTES = 60e6
LOOK_SECONDS = 0.2
"""How much of a process's last CPU may be missed, whatever the size of its batch: no matter for a slope."""
MEASURES = ("cpu", "wall", "server")
Spent = dict[str, float]


class Throughput:
    """The server, and the ways to empty it."""

    def __init__(self, server: Replay, folder: Path) -> None:
        self._server, self._folder = server, folder

    def write(self, way: str, raw_bytes: float, check: Callable[[Pipeline], None] | None = None) -> Spent:
        """Writes so many bytes into a new place; gives GB raw and what it took in seconds."""
        self._server.empty()
        ranges = self._server.grow(raw_bytes)
        with tempfile.TemporaryDirectory(dir=self._folder) as made:
            bench = Bench(Path(made), self._server)
            pipeline = bench.pipeline(way)
            run = (lambda: bench.ours(way, ranges)) if way == "ours" else (lambda: self._peer(way, pipeline, ranges))
            try:
                took = measured(run, self._server.process)
            finally:
                bench.close()
            if check is not None:
                check(pipeline)
        groups = sum(end - begin for _, begin, end in ranges)
        return {"GB": groups * self._server.group_bytes / 1e9, **took}

    def _peer(self, way: str, pipeline: Pipeline, ranges: list[list[int]]) -> None:
        order = {
            "pipeline": pipeline.model_dump(mode="json"),
            "ranges": ranges,
            "group_bytes": self._server.group_bytes,
        }
        submit(way, order, self._folder, self._server.connection.to_env())


def measured(run: Callable[[], Any], server: int) -> Spent:
    """CPU seconds of all processes that `run` starts, of this one while it runs, and of the server; wall seconds.

    Each process is looked at until it is gone: Spark's Python workers are nobody's to wait for, so that no parent and
    no accounting of children knows what they took.
    """
    took: dict[psutil.Process, float] = {}

    def look(process: psutil.Process) -> None:
        if process.pid != server:
            took[process] = _cpu(process)

    this = psutil.Process()
    before, serving, began = _cpu(this), _cpu(psutil.Process(server)), time.monotonic()
    with Watch(look, LOOK_SECONDS) as watch:
        run()
        wall = time.monotonic() - began
        outlive_children(server)
    own = _cpu(this) - before - watch.cpu
    return {"cpu": own + sum(took.values()), "wall": wall, "server": _cpu(psutil.Process(server)) - serving}


def outlive_children(server: int) -> None:
    """Waits until none is there but the server; what lost its parent is a child of this process (`adopt_orphans`)."""
    while left := [child for child in psutil.Process().children() if child.pid != server]:
        psutil.wait_procs(left, timeout=60)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def rows_of(pipeline: Pipeline) -> pa.Table:
    """The rows that a way left, in the order of their event ids, as the table's columns and types say."""
    schema = pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in table_columns(pipeline)])
    root = Path(pipeline.table.path.removeprefix("file://"))
    tables = []
    for file in sorted(root.rglob("*.parquet")):
        if ".hoodie" in file.relative_to(root).parts:
            continue
        table = pq.ParquetFile(file).read()
        if "event_date" not in table.column_names:
            date = file.parent.name.partition("=")[2]
            table = table.append_column("event_date", pa.array([date] * len(table)))
        tables.append(table.select(schema.names).cast(schema))
    return pa.concat_tables(tables).sort_by("event_id")


def compare(bench: Throughput) -> int:
    """Writes a small batch in every way but the limit; ends the run where two have other rows. Gives the rows."""
    found: dict[str, pa.Table] = {}
    for way in WAYS:
        if way != "limit":
            bench.write(way, CHECKED_BYTES, lambda pipeline: found.update({way: rows_of(pipeline)}))  # noqa: B023
    for way, table in found.items():
        for name in table.column_names:
            if _plain(table[name]) != _plain(found["ours"][name]):
                raise SystemExit(f"column {name}: {WAYS[way]} gives other values than {WAYS['ours']}")
    return len(found["ours"])


def _plain(column: pa.ChunkedArray) -> list[Any]:
    values = column.to_pylist()
    # A map has no order.
    return [sorted(value) if isinstance(value, list) else value for value in values]


def slope(runs: list[Spent], name: str) -> float:
    """What each further GB takes."""
    return float(np.polyfit([run["GB"] for run in runs], [run[name] for run in runs], 1)[0])


def spread(values: list[float]) -> str:
    """Median and span."""
    return f"{statistics.median(values):7.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measures, prints and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 2, 4], help="GB raw (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="whose median counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    if len(given.sizes) < 2:
        parser.error("a slope needs two sizes")
    adopt_orphans()
    rounds: list[dict[str, list[Spent]]] = []
    with replay(POOL_PULLS) as server, tempfile.TemporaryDirectory(prefix="slshudi-throughput-") as folder:
        bench = Throughput(server, Path(folder))
        print(f"{compare(bench):,} rows are the same in every way", flush=True)
        for number in range(given.rounds):
            ways = [way for way in WAYS if number % SLOW_EVERY == 0 or way not in SLOW]
            took: dict[str, list[Spent]] = {way: [] for way in ways}
            for size in given.sizes:
                for way in ways if number % 2 else reversed(ways):
                    took[way].append(bench.write(way, size * 1e9))
                told = ", ".join(f"{way} {runs[-1]['cpu']:.1f} s" for way, runs in took.items())
                print(f"  round {number + 1}, {size:g} GB raw, CPU: {told}", flush=True)
            rounds.append(took)
    report(rounds, given.json)


def report(rounds: list[dict[str, list[Spent]]], to: Path | None) -> None:
    """Prints the slopes and, last, the ratios."""
    slopes = {name: [{way: slope(took[way], name) for way in took} for took in rounds] for name in MEASURES}
    per_gb = {
        name: {way: [found[way] for found in all_ if way in found] for way in WAYS} for name, all_ in slopes.items()
    }
    ratios = {
        name: {way: [found[way] / found["ours"] for found in slopes[name] if way in found] for way in BARS}
        for name in ("cpu", "wall")
    }
    print(f"per GB raw, slope over {len(rounds[0]['ours'])} sizes, {len(rounds)} rounds: median (least to most)")
    print(f"  {'':<32}{'CPU s':<26}{'wall s':<26}the server's CPU s")
    for way, label in WAYS.items():
        print(f"  {label:<32}" + "".join(f"{spread(per_gb[name][way]):<26}" for name in MEASURES))
    for way, values in ratios["wall"].items():
        print(f"  wall time, {WAYS[way]}: {spread(values)} times ours")
    if to is not None:
        to.write_text(json.dumps({"rounds": rounds, "per GB": per_gb, "ratios": ratios}, indent=1))
    said = [f"{spread(ratios['cpu'][way]).strip()} x {WAYS[way]} (bar {bar:g})" for way, bar in BARS.items()]
    print("bytes per CPU second: " + "; ".join(said))


if __name__ == "__main__":
    main()
