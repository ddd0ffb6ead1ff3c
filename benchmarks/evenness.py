"""Even work and files: a batch of which one shard carries 80 %, beside the same bytes spread evenly.

    python benchmarks/evenness.py [--size 4] [--rounds 5] [--json FILE]

Both are whole batches by the protocol, in turns, from a server on this machine that replays stored answers, into tables
of their own. Of the files it is told how many bytes are in files between half and one and a half of the target size,
and how many files a batch of 1,000 logs leaves in its one partition. The last line is what the bars are about.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from exactness import Bench
from replay import LOGS_A_GROUP, SHARDS, Replay, replay

HOT, MOST_RATIO, LEAST_SHARE = 0.8, 1.15, 0.9
POOL_PULLS = 96


def batch(server: Replay, raw_bytes: float, hot: float) -> dict[str, Any]:
    """One batch into a new table: seconds in all and of reading and writing, and sizes of its files by partition."""
    server.empty()
    with tempfile.TemporaryDirectory(prefix="slshudi-even-") as folder:
        bench = Bench(Path(folder), server, task_bytes="1GiB")
        try:
            took = bench.ours("batch", server.grow(raw_bytes, hot))
            target = bench.pipeline("ours").batch.target_file_bytes
        finally:
            bench.close()
        files: dict[str, list[int]] = {}
        for file in (Path(folder) / "ours").glob("event_date=*/*.parquet"):
            files.setdefault(file.parent.name, []).append(file.stat().st_size)
    return {"all": took["all"], "write": took["write"], "target": target, "files": files}


def near_target(found: dict[str, Any]) -> float:
    """The share of the bytes that are in files between half and one and a half of the target size."""
    sizes, target = [size for part in found["files"].values() for size in part], found["target"]
    share: float = sum(size for size in sizes if target / 2 <= size <= 1.5 * target) / sum(sizes)
    return share


def spread(values: list[float]) -> str:
    """Median and span."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Measures and prints; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=4, help="GB raw of a batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="whose median counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    shares = {"even": 1 / SHARDS, "hot": HOT}
    with replay(POOL_PULLS) as server:
        for number in range(given.rounds):
            turns = list(shares) if number % 2 else list(reversed(shares))
            rounds.append({name: batch(server, given.size * 1e9, shares[name]) for name in turns})
            told = ", ".join(f"{name} {rounds[-1][name]['all']:.1f} s" for name in turns)
            print(f"  round {number + 1}: {told}", flush=True)
        # A group a shard is the least that the server has.
        small = batch(server, LOGS_A_GROUP * SHARDS, 1 / SHARDS)
    if given.json is not None:
        given.json.write_text(json.dumps({"rounds": rounds, "small": small}, indent=1), encoding="utf-8")
    ratios = [took["hot"]["all"] / took["even"]["all"] for took in rounds]
    near = [near_target(took[name]) for took in rounds for name in shares]
    most = max(len(part) for part in small["files"].values())
    print(f"  reading and writing: {spread([took['hot']['write'] / took['even']['write'] for took in rounds])} times")
    print(f"  files of a batch: {[len(part) for part in rounds[0]['hot']['files'].values()]} by partition")
    print(
        f"evenness: one shard with {HOT:.0%} takes {spread(ratios)} times the wall time (bar {MOST_RATIO}); at least "
        f"{min(near):.0%} of the bytes in files near the target (bar {LEAST_SHARE:.0%}); a small batch has {most} "
        "file a partition"
    )
    return 0 if statistics.median(ratios) <= MOST_RATIO and min(near) >= LEAST_SHARE and most == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
