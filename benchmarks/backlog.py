"""A backlog drained by one process with several transactions while logs keep coming, beside one batch of the same size.

    python benchmarks/backlog.py [--gb 20] [--batch-gb 4] [--arriving-mb 5] [--rounds 3] [--json FILE] [--svg FILE]

The server replays stored answers, as for `throughput.py`. Each side has a table and a ledger of its own, and had one
small batch before, which tells how large log groups are. A side's figure is raw bytes per CPU second of all its
processes, from the first plan to the last commit; each starts its resident processes anew. The sides take turns. The
drained side ends once less than a batch is left; its lag is noted at first and after each commit, and that of the last
round is plotted. The last line is the ratio of the two figures, as the median over the rounds (bar 0.9).

It measures on a quiet machine alone: what runs beside it takes caches and memory bandwidth, from one side more than
from the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from exactness import FIRST_BATCH_BYTES, Bench
from replay import Replay, replay
from throughput import POOL_PULLS, measured, outlive_children

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.processes import adopt_orphans
from airflow_provider_slshudi.transaction import backlog, plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.soak.plot import Line, Panel, plot

BAR = 0.9
TICK_SECONDS = 1.0
IDLE_SECONDS = 10
Figures = dict[str, float]


class Side:
    """A table with batches of at most so many bytes."""

    def __init__(self, folder: Path, server: Replay, max_bytes: float) -> None:
        bench = Bench(folder, server, resident=True, task_bytes="1GiB")
        described = bench.pipeline("ours").model_dump(mode="json")
        bench.close()
        described["batch"] |= {"max_bytes": int(max_bytes)}
        pipeline = Pipeline.model_validate(described)
        self._engine = open_engine(f"sqlite:///{folder / 'ledger.db'}")
        migrate(self._engine)
        self.server, self.lags = server, list[tuple[float, float]]()
        self.work = Work(
            pipeline,
            Ledger(self._engine),
            SubprocessLauncher("local[2]", resident=True),
            lambda: LogService(server.connection, pipeline.source.project, pipeline.source.logstore),
            Run("bench", "run-1"),
        )

    def batch(self) -> int:
        """One transaction; the raw bytes that it read, 0 where nothing was left."""
        planned = plan.tail(self.work)
        if planned is None:
            return 0
        steps.open_instant(self.work, planned.id, planned.token)
        steps.append(self.work, planned.id, planned.token)
        steps.record(self.work, planned.id, planned.token)
        return steps.commit(self.work, planned.id, planned.token).bytes

    def lag(self) -> float:
        """Raw bytes that the server has and no batch."""
        read = sum(map(len, self.work.ledger.coverage(self.work.pipeline.name)))
        return float(sum(self.server.ends) - read) * self.server.group_bytes

    def first(self) -> None:
        """A small batch, which tells how large log groups are."""
        self.server.grow(FIRST_BATCH_BYTES)
        settle(self.work, lambda run: True)
        self.batch()

    def drain(self) -> int:
        """Batches until less than a full one is left; all their raw bytes."""
        began, total = time.monotonic(), 0
        self.work = replace(self.work, drains=True)
        self.lags.append((0.0, self.lag()))
        while True:
            total += self.batch()
            self.lags.append((time.monotonic() - began, self.lag()))
            if self.lags[-1][1] < self.work.pipeline.batch.max_bytes or not backlog.is_left(self.work):
                return total

    def close(self) -> None:
        """Lets go of the ledger."""
        self._engine.dispose()


def run(server: Replay, folder: Path, size: float, batch: float, arriving: float) -> tuple[Figures, Side]:
    """The figures of a side that has so much to read, in batches of at most so many bytes."""
    server.empty()
    side, over, read = Side(folder, server, batch), threading.Event(), list[int]()
    side.first()
    outlive_children(server.process)
    server.grow(size)

    def arrive() -> None:
        while arriving and not over.wait(TICK_SECONDS):
            server.grow(arriving * TICK_SECONDS)

    putting = threading.Thread(target=arrive, daemon=True)
    putting.start()
    took = measured(lambda: read.append(side.drain()), server.process)
    over.set()
    putting.join()
    side.close()
    return {"GB": sum(read) / 1e9, **took, "MB per CPU s": sum(read) / 1e6 / took["cpu"]}, side


def main() -> None:
    """Measures, prints and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=20, help="GB raw behind (default: %(default)s)")
    parser.add_argument("--batch-gb", type=float, default=4, help="GB raw of a batch (default: %(default)s)")
    parser.add_argument("--arriving-mb", type=float, default=5, help="MB raw a second meanwhile (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="whose median counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--svg", type=Path, help="plot the drained side's lag to this file")
    given = parser.parse_args()
    adopt_orphans()
    rounds, lags = list[dict[str, Figures]](), list[tuple[float, float]]()
    size, batch, arriving = given.gb * 1e9, given.batch_gb * 1e9, given.arriving_mb * 1e6
    with replay(POOL_PULLS) as server, tempfile.TemporaryDirectory(prefix="sls-", dir="/tmp") as folder:
        # Its resident processes are its own, and end soon, so that all of their CPU time is known.
        os.environ |= {"TMPDIR": folder, IDLE: str(IDLE_SECONDS)}
        tempfile.tempdir = folder
        for number in range(given.rounds):
            ways = {"one batch": (100 * size, 0.0), "drained": (batch, arriving)}
            took: dict[str, Figures] = {}
            for name in sorted(ways, reverse=bool(number % 2)):
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    took[name], side = run(server, Path(place), size, *ways[name])
                lags = side.lags if name == "drained" else lags
                figures = ", ".join(f"{key} {value:.2f}" for key, value in took[name].items())
                print(f"round {number + 1}, {name}: {figures}", flush=True)
            rounds.append(took)
    for seconds, lag in lags:
        print(f"  {seconds:7.1f} s: {lag / 1e9:.2f} GB behind")
    ratios = [took["drained"]["MB per CPU s"] / took["one batch"]["MB per CPU s"] for took in rounds]
    if given.json is not None:
        given.json.write_text(json.dumps({"rounds": rounds, "lags": lags, "ratios": ratios}, indent=1))
    if given.svg is not None:
        behind = [(seconds, lag / 1e9) for seconds, lag in lags]
        title = f"{given.gb:g} GB behind while {given.arriving_mb:g} MB a second arrive"
        plot(given.svg, title, "seconds from the first plan", [Panel("GB raw behind", [Line("lag", behind)])])
    told = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"bytes per CPU second: {told} of one batch's, in {len(lags) - 1} transactions (bar {BAR:g})")


if __name__ == "__main__":
    main()
