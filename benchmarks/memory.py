"""Memory of a batch over the size of the range that one task reads: peaks of the Python worker and of the driver.

    python benchmarks/memory.py [--sizes 0.5 1 2.5 5] [--json FILE]

Each batch is the whole protocol on ranges from a server on this machine that replays stored answers, read by one task.
The peaks are those that the kernel keeps of each process (VmHWM), Arrow's and Parquet's memory included; the driver is
a JVM and a Python process. The last line is what the bar is about.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import psutil
from exactness import Bench
from replay import replay
from watch import Watch

from airflow_provider_slshudi.spark.runtime import DAEMON

MOST_WORKER_BYTES = 500e6
FLAT = 1.15
"""The largest range may take so many times the memory of the smallest."""
POOL_PULLS = 96
LOOK_SECONDS = 0.05


def add_peak(peaks: dict[str, int], process: psutil.Process) -> None:
    """Raises the peak of the process's kind; a process's own never falls, so the last look counts."""
    kind = _kind(process)
    if kind:
        peaks[kind] = max(peaks.get(kind, 0), peak(process.pid))


def _kind(process: psutil.Process) -> str:
    """`worker`, `driver` or `driver JVM` of the append."""
    line = process.cmdline()
    above = process.parent()
    if DAEMON in line:
        return "worker" if above is not None and DAEMON in above.cmdline() else ""
    if not any(part.endswith("driver/__main__.py") for part in line) or "append" not in line:
        return ""
    return "driver JVM" if line[0].endswith("java") else "driver"


def peak(pid: int) -> int:
    """The most memory that a process took; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def main() -> int:
    """Measures and prints; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.5, 1, 2.5, 5], help="GB raw")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    found: dict[float, dict[str, int]] = {}
    with replay(POOL_PULLS) as server:
        for size in given.sizes:
            server.empty()
            with tempfile.TemporaryDirectory(prefix="slshudi-memory-") as folder:
                bench = Bench(Path(folder), server, task_bytes="100GB")
                found[size] = {}
                try:
                    with Watch(partial(add_peak, found[size]), LOOK_SECONDS):
                        bench.ours(f"{size:g} GB", server.grow(size * 1e9))
                finally:
                    bench.close()
            told = ", ".join(f"{kind} {size_ / 1e6:.0f} MB" for kind, size_ in sorted(found[size].items()))
            print(f"  {size:g} GB raw read by one task: {told}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    first, last = found[min(found)], found[max(found)]
    grown = {kind: last[kind] / first[kind] for kind in first}
    worker = max(peaks_["worker"] for peaks_ in found.values())
    print(
        f"memory: a worker takes at most {worker / 1e6:.0f} MB (bar {MOST_WORKER_BYTES / 1e6:.0f}); over "
        f"{min(found):g} to {max(found):g} GB raw: " + ", ".join(f"{kind} x {by:.2f}" for kind, by in grown.items())
    )
    return 0 if worker <= MOST_WORKER_BYTES and max(grown.values()) <= FLAT else 1


if __name__ == "__main__":
    sys.exit(main())
