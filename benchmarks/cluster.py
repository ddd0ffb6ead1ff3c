"""Throughput on a Spark cluster beside local mode: the same ranges into the same S3 store, by as many cores.

    python benchmarks/cluster.py [--sizes 1 4] [--rounds 3]     about ten minutes on two cores

A master and two workers of one core each, as processes, stand for machines; local mode has two cores. Both read from a
server on this machine that replays stored answers, run the whole protocol with its ledger in PostgreSQL, take turns,
and write tables of their own. A side's figure is the slope over the sizes: seconds per GB raw, without what a batch
takes whatever its size, which is told apart.

The last line is the ratio of the bar: bytes per second and core on the cluster over those of local mode, as the median
of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from exactness import Bench, spread
from replay import Replay, replay

from airflow_provider_slshudi.storage.files import Storage
from tests.databases import postgres
from tests.machine import variables
from tests.services import s3_store, spark_cluster

BAR = 0.8
BUCKET = "lake"
WORKERS = 2
POOL_PULLS = 96
Took = dict[str, list[float]]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 4], help="GB raw (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="whose median counts (default: %(default)s)")
    given = parser.parse_args()
    if len(given.sizes) < 2:
        parser.error("a slope needs two sizes")
    with ExitStack() as stack:
        server = stack.enter_context(replay(POOL_PULLS))
        ledger, store = stack.enter_context(postgres()), stack.enter_context(s3_store(BUCKET))
        stack.enter_context(variables(store))
        cluster = stack.enter_context(spark_cluster({**store, "JAVA_TOOL_OPTIONS": ""}, WORKERS, cores=1))
        # Drivers of local mode have no use for the cluster's settings, and do not mind them.
        stack.enter_context(variables({"SPARK_CONF_DIR": str(cluster.settings), "SPARK_LOCAL_IP": "127.0.0.1"}))
        masters = {"local mode": "local[2]", "cluster": cluster.master}
        rounds = [turn(number, masters, server, ledger, given.sizes) for number in range(given.rounds)]
    report(given.sizes, rounds)


def turn(number: int, masters: dict[str, str], server: Replay, ledger: str, sizes: list[float]) -> dict[str, Took]:
    """Seconds of the append, and of the whole batch, of each side and size."""
    sides = list(masters) if number % 2 else list(reversed(masters))
    took: dict[str, Took] = {side: {"append": [], "all": []} for side in masters}
    for size in sizes:
        for side in sides:
            server.empty()
            ranges = server.grow(size * 1e9)
            with tempfile.TemporaryDirectory(prefix="slshudi-cluster-") as folder:
                place = f"s3a://{BUCKET}/{Path(folder).name}"
                bench = Bench(Path(folder), server, ledger, True, lake=place, master=masters[side])
                try:
                    figures = bench.ours(side, ranges)
                finally:
                    bench.close()
                table = Storage(place)
                table.filesystem.delete_dir(table.full(""))
            for name, seconds in took[side].items():
                seconds.append(figures[name])
        told = ", ".join(f"{side} {took[side]['all'][-1]:.1f} s" for side in sides)
        print(f"  round {number + 1}, {size:g} GB raw: {told}", flush=True)
    return took


def report(sizes: list[float], rounds: list[dict[str, Took]]) -> None:
    """Prints the slopes, what is the same for every size, and the ratio."""
    lines = {
        side: [np.polyfit(sizes, took[side]["append"], 1) for took in rounds] for side in ("local mode", "cluster")
    }
    for side, found in lines.items():
        print(f"  {side}: {spread(line[0] for line in found)} s per GB, {spread(line[1] for line in found)} s a batch")
    ratios = [float(here[0] / there[0]) for here, there in zip(lines["local mode"], lines["cluster"], strict=True)]
    print(
        f"cluster: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times the bytes per second "
        f"and core of local mode (bar {BAR:g}), {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
