"""A logstore that gets logs at a fixed rate, under a real Airflow: how fresh its table is, and what that takes.

    python benchmarks/sustained.py [--logs 1000 | --mb 20] [--minutes 15] [--plot FILE] [--json FILE]

The logs are ad events of about 600 bytes, put into shards in turn by the SDK's client as groups that were made before.
Freshness is the time from the service's acknowledgement of a log group until a reader finds it in the table: the
timeline, listed ten times a second, has a completed commit with the group's cursor in its ranges. The pipeline is a
fleet of one with `@continuous`; `--tail` measures its tail instead, whose batch is six tasks and not two. Before
anything counts, logs come for a minute and three batches are committed.
At the end the rows are counted as the demo's proof counts them. The last line is median and 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rate import Putter, Rate
from usage import JVM, memory, thirds, used

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.cli.demo.figures import prove
from airflow_provider_slshudi.cli.demo.put import sdk_client
from airflow_provider_slshudi.cli.demo.run import DAGS, PIPELINE, variables_of, work_of, write_example
from airflow_provider_slshudi.hudi.instant_metadata import ranges_of
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.processes import adopt_orphans
from airflow_provider_slshudi.transaction.context import Work
from tests.soak.plot import Line, Panel, plot

SHARDS = 4
WARM_SECONDS, LEFT_SECONDS = 60.0, 600.0
LOOK_SECONDS, SAMPLE_SECONDS = 0.1, 5.0
FLEET = f"""
from airflow_provider_slshudi.dag.factories import fleet_dag

dag = fleet_dag(["{PIPELINE}"], schedule="@continuous")
"""
TAIL = f"""
from airflow_provider_slshudi.dag.factories import tail_dag

dag = tail_dag("{PIPELINE}")
"""
BARS = {"logs": (5.0, 12.0), "mb": (float("inf"), 30.0)}
"""Seconds of freshness, median and 99th percentile, that a rate in logs and one in MB is held to."""


@dataclass
class Seen:
    """What was looked at together, `at` seconds after the counting began; `cores` is what the machine used since the
    look before, less the log service and this process."""

    at: float
    lag: float
    cores: float
    memory: Counter[str]
    files: int
    commits: int


@dataclass
class Stream:
    """Puts groups in a thread, and knows of each when it was acknowledged and when a reader first found it."""

    work: Work
    server: LocalSls
    rate: Rate
    fresh: list[tuple[float, float]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        source, given = self.work.pipeline.source, self.server.connection()
        client, where = sdk_client(given), (source.project, str(source.logstore))
        client.create_project(source.project, "benchmark")
        client.create_logstore(*where, ttl=7, shard_count=SHARDS)
        self._waiting = [deque[tuple[int, float]]() for _ in range(SHARDS)]
        self._known: set[str] = set()
        self.putter = Putter(given, *where, SHARDS, self.rate, self._acknowledged)

    def start(self) -> None:
        """Begins to put."""
        self._first = [self.work.connect().end(shard) for shard in range(SHARDS)]
        self.putter.start()

    @property
    def unread(self) -> int:
        """Groups that no reader finds yet."""
        return sum(map(len, self._waiting))

    @property
    def lag(self) -> float:
        """Seconds since the acknowledgement of the oldest group that no reader finds."""
        now = time.monotonic()
        return max((now - waiting[0][1] for waiting in self._waiting if waiting), default=0.0)

    def look(self) -> None:
        """Notes which groups a reader of the table finds by now."""
        timeline = Timeline.load(self.work.storage)
        now = time.monotonic()
        for instant in timeline.completed("commit"):
            if instant.time in self._known:
                continue
            self._known.add(instant.time)
            for range_, *_ in ranges_of(timeline.extra_metadata(instant)):
                waiting = self._waiting[range_.shard]
                while waiting and waiting[0][0] < range_.end:
                    self.fresh.append((now, now - waiting.popleft()[1]))

    def commits(self) -> int:
        """How many were found."""
        return len(self._known)

    def _acknowledged(self, shard: int, number: int) -> None:
        self._waiting[shard].append((self._first[shard] + number, time.monotonic()))


class Samples:
    """CPU, memory and files, sampled while a stream goes on."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._began = stream, time.monotonic()
        self.kinds = used(stream.server.pid)
        self._before, self._last = self._taken(), self._began

    def take(self) -> None:
        """One more, if it is time."""
        now = time.monotonic()
        if now < self._last + SAMPLE_SECONDS:
            return
        taken = self._taken()
        cores = (taken - self._before) / (now - self._last)
        self._before, self._last = taken, now
        folder = Path(self._stream.work.storage.uri.removeprefix("file://"))
        files = sum(1 for _ in folder.rglob("*.parquet"))
        stream, taken_by = self._stream, Counter[str]()
        for kind, size in memory(stream.server.pid).items():
            taken_by["JVM" if JVM in kind else "Python"] += size
        stream.seen.append(Seen(now - self._began, stream.lag, cores, taken_by, files, stream.commits()))
        print(
            f"  {now - self._began:5.0f} s: {stream.lag:5.1f} s behind, {stream.commits()} commits, "
            f"{cores:.2f} cores, {sum(taken_by.values()):,.0f} MB",
            flush=True,
        )

    def by_kind(self) -> dict[str, float]:
        """Cores by kind of process since this began; a process that nobody waits for is missing once it has ended."""
        spent, seconds = used(self._stream.server.pid), time.monotonic() - self._began
        return {kind: (spent[kind] - self.kinds[kind]) / seconds for kind in sorted(spent)}

    def _taken(self) -> float:
        """CPU seconds of the machine until now, without the log service's and this process's."""
        of_machine, others = psutil.cpu_times(), (psutil.Process(self._stream.server.pid), psutil.Process())
        taken = of_machine.user + of_machine.nice + of_machine.system
        return float(taken - sum(sum(process.cpu_times()[:2]) for process in others))


def until(what: str, seen: Callable[[], bool], stream: Stream, seconds: float) -> None:
    """Looks until something is so; ends the run if it does not come."""
    deadline = time.monotonic() + seconds
    while not seen():
        stream.putter.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}; {stream.unread} groups unread")
        stream.look()
        time.sleep(LOOK_SECONDS)


def measure(rate: Rate, minutes: float, folder: Path, is_tail: bool) -> tuple[Stream, dict[str, float], bool]:
    """The stream as it was seen, cores by kind of process, and whether each log is in the table once."""
    dag = f"{PIPELINE}_tail" if is_tail else "fleet"
    dags = folder / "dags"
    dags.mkdir()
    (dags / "dag.py").write_text(TAIL if is_tail else FLEET, encoding="utf-8")
    with LocalSls(folder / "sls") as server:
        pipeline = write_example(DAGS, folder / "pipelines", f"file://{folder / 'lake' / PIPELINE}", "@continuous")
        work = work_of(pipeline, folder, server.connection())
        variables = {**variables_of(folder, server.connection()), IDLE: "600", "TMPDIR": str(folder)}
        stream = Stream(work, server, rate)
        with LocalAirflow(folder / "airflow", dags, variables) as airflow:
            airflow.wait_for_dag(dag)
            airflow.pause(dag, False)
            stream.start()
            warm = time.monotonic() + WARM_SECONDS
            until("the first batches", lambda: time.monotonic() > warm and stream.commits() > 2, stream, LEFT_SECONDS)
            stream.fresh.clear()
            samples, end = Samples(stream), time.monotonic() + minutes * 60
            while time.monotonic() < end:
                stream.putter.check()
                stream.look()
                samples.take()
                time.sleep(LOOK_SECONDS)
            kinds = samples.by_kind()
            stream.putter.stop()
            until("all that was put", lambda: not stream.unread, stream, LEFT_SECONDS)
            airflow.pause(dag, True)
        proof = prove(work, stream.putter.put * rate.logs)
        print(f"  {proof}")
        return stream, kinds, proof.holds


def draw(path: Path, title: str, seen: list[Seen]) -> None:
    """Everything over time."""

    def line(name: str, of: Callable[[Seen], float]) -> Line:
        return Line(name, [(item.at / 60, of(item)) for item in seen])

    panels = [
        Panel("Oldest log that no reader finds, s", [line("lag", lambda item: item.lag)]),
        Panel("CPU, cores", [line("the machine, without the log service", lambda item: item.cores)]),
        Panel(
            "Memory, MB",
            [
                line("JVM", lambda item: item.memory["JVM"]),
                line("Python", lambda item: item.memory["Python"]),
            ],
        ),
        Panel("Base files", [line("files", lambda item: float(item.files))]),
    ]
    plot(path, title, "minutes", panels)


def quantile(values: list[float], part: float) -> float:
    """The value that so many are not above."""
    return values[min(len(values) - 1, int(len(values) * part))]


def report(stream: Stream, kinds: dict[str, float], told: str, bars: tuple[float, float]) -> bool:
    """Prints all figures; whether the bars are met."""
    for kind, cores in kinds.items():
        print(f"  cores, {kind:<28}{cores:6.2f}")
    cores = sum(item.cores for item in stream.seen) / len(stream.seen)
    print(f"  cores, {'all':<28}{cores:6.2f} of {psutil.cpu_count()}")
    first, last = thirds([sum(item.memory.values()) for item in stream.seen])
    print(f"  memory: {first:,.0f} MB in the first third, {last:,.0f} MB in the last")
    minutes = (stream.seen[-1].at - stream.seen[0].at) / 60
    print(f"  {(stream.seen[-1].commits - stream.seen[0].commits) / minutes:.1f} commits a minute")
    print(f"  puts were up to {stream.putter.late:.1f} s late")
    done = sorted(seconds for _, seconds in stream.fresh)
    half, most = quantile(done, 0.5), quantile(done, 0.99)
    print(
        f"{told}: freshness median {half:.1f} s (bar {bars[0]:g}), 99 % within {most:.1f} s (bar {bars[1]:g}), "
        f"worst {done[-1]:.1f} s"
    )
    return half <= bars[0] and most <= bars[1]


def main() -> int:
    """Measures and prints; 1 where a bar is missed or a log is not in the table once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rates = parser.add_mutually_exclusive_group()
    rates.add_argument("--logs", type=float, default=1000.0, help="a second (default: %(default)s)")
    rates.add_argument("--mb", type=float, help="raw, a second")
    parser.add_argument("--tail", action="store_true", help="measure the pipeline's tail")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--plot", type=Path, help="draw what was seen, as SVG")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    adopt_orphans()
    rate = Rate.of(given.logs) if given.mb is None else Rate.of_mb(given.mb)
    told = f"{rate.a_second * rate.logs:,.0f} logs/s, {rate.a_second * rate.size / 1e6:.2f} MB/s"
    print(f"{told}: {rate.a_second:.1f} groups of {rate.logs} logs a second into {SHARDS} shards", flush=True)
    with tempfile.TemporaryDirectory(prefix="slshudi-sustained-", ignore_cleanup_errors=True) as folder:
        try:
            stream, kinds, exact = measure(rate, given.minutes, Path(folder), given.tail)
        finally:
            for process in psutil.Process().children(recursive=True):
                process.kill()
    if given.plot is not None:
        draw(given.plot, told, stream.seen)
    if given.json is not None:
        found: dict[str, Any] = {"fresh": stream.fresh, "seen": [vars(item) for item in stream.seen], "cores": kinds}
        given.json.write_text(json.dumps(found), encoding="utf-8")
    met = report(stream, kinds, told, BARS["logs" if given.mb is None else "mb"])
    return 0 if met and exact else 1


if __name__ == "__main__":
    sys.exit(main())
