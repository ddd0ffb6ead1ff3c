"""A fleet of small pipelines under a real Airflow: how fresh each is, what that costs, and whether each log is there.

    python benchmarks/fleet.py [--pipelines 100] [--news 10] [--minutes 20] [--troubled] [--plot FILE] [--json FILE]

Each minute `--news` of the pipelines, in turn, get 100 logs at moments spread over the minute. Freshness is the time
from the service's acknowledgement until the ledger says that the batch with the last of these logs is COMMITTED, looked
at twice a second. Every pipeline has had two batches before. `--troubled` puts three more beside them, which do not
count: one whose table is broken, one whose key is refused, and one with a hot shard. At the end hudi-rs counts the rows
of each table, the sessions end because they are idle, and nothing is left once Airflow has stopped.
The last line is the 99th percentile of freshness.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml
from aliyun.log import LogItem, PutLogsRequest
from rate import Putter, Rate
from troubled import BROKEN, HOT, HOT_MB, REFUSED, REFUSED_CONNECTION, break_table, refused, rows_of
from usage import JVM, Idle, memory, thirds, used

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.cli.demo.put import ad_events, sdk_client
from airflow_provider_slshudi.cli.demo.run import DAGS, PIPELINE, variables_of
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.soak.plot import Line, Panel, plot

BAR_SECONDS = 120.0
LOGS = 100
PROJECT = "ads"
WARM_SECONDS = 1_800.0
IDLE_SECONDS = 20.0
SESSION_IDLE_SECONDS = 120
LOOK_SECONDS, SAMPLE_SECONDS = 0.5, 10.0
DAG = """
from airflow_provider_slshudi.dag.factories import fleet_dag

dag = fleet_dag("pipelines")
"""


@dataclass
class Fleet:
    """The pipelines, what was put for each, and when."""

    server: LocalSls
    ledger: Ledger
    folder: Path
    names: list[str]
    is_troubled: bool
    put_: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    fresh: dict[str, list[float]] = field(default_factory=dict)
    memory: list[tuple[float, Counter[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client = sdk_client(self.server.connection())
        self._client.create_project(PROJECT, "benchmark")
        self._events = ad_events(1, int(time.time() * 1000))
        described = yaml.safe_load((DAGS / "pipelines" / f"{PIPELINE}.yaml").read_text(encoding="utf-8"))
        (self.folder / "dags" / "pipelines").mkdir(parents=True)
        (self.folder / "dags" / "fleet.py").write_text(DAG, encoding="utf-8")
        for name in [*self.names, *((BROKEN, REFUSED, HOT) if self.is_troubled else ())]:
            self._client.create_logstore(PROJECT, self._logstore(name), ttl=7, shard_count=1)
            described |= {"name": name, "table": {**described["table"], "path": f"file://{self.table(name)}"}}
            connection = REFUSED_CONNECTION if name == REFUSED else "sls_default"
            described["source"] |= {"connection": connection, "project": PROJECT, "logstore": self._logstore(name)}
            file = self.folder / "dags" / "pipelines" / f"{name}.yaml"
            file.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")

    def sample(self) -> None:
        """Notes the memory that all take, if it is time."""
        now = time.monotonic()
        if not self.memory or now >= self.memory[-1][0] + SAMPLE_SECONDS:
            self.memory.append((now, memory(self.server.pid)))

    def hot(self) -> Putter:
        """Who puts for the pipeline with the hot shard."""
        return Putter(self.server.connection(), PROJECT, self._logstore(HOT), 1, Rate.of_mb(HOT_MB))

    def table(self, name: str) -> Path:
        """The folder of a table."""
        return self.folder / "lake" / name

    def put(self, name: str) -> None:
        """Puts logs for a pipeline, and waits for them from then on, unless it cannot read them."""
        items = [LogItem(int(time.time()), contents=pairs) for pairs in itertools.islice(self._events, LOGS)]
        self._client.put_logs(PutLogsRequest(PROJECT, self._logstore(name), "ad_events", "10.0.0.1", items))
        self.put_[name] += LOGS
        if name == REFUSED or (name == BROKEN and self.put_[name] > LOGS):
            return
        self.waiting.setdefault(name, []).append((self.put_[name], time.monotonic()))

    def look(self) -> None:
        """Notes of whom all that was put is committed."""
        for name, wanted in [*self.waiting.items()]:
            rows = sum(item.rows or 0 for item in self.ledger.last(name, 10_000, State.COMMITTED))
            now = time.monotonic()
            self.fresh.setdefault(name, []).extend(now - at for count, at in wanted if count <= rows)
            self.waiting[name] = [(count, at) for count, at in wanted if count > rows]
            if not self.waiting[name]:
                del self.waiting[name]

    def until_read(self, seconds: float) -> None:
        """Waits until all that was put is committed."""
        deadline = time.monotonic() + seconds
        while self.waiting:
            if time.monotonic() > deadline:
                raise SystemExit(f"after {seconds:.0f} s not read: {sorted(self.waiting)}")
            time.sleep(LOOK_SECONDS)
            self.look()

    def until_rows(self, name: str) -> None:
        """Waits until the ledger says that all rows of a pipeline are committed."""
        self.waiting.setdefault(name, []).append((self.put_[name], time.monotonic()))
        self.until_read(600)
        del self.fresh[name]

    def differs(self) -> list[str]:
        """Pipelines whose tables do not hold each log once."""
        from hudi import HudiTableBuilder

        found = []
        for name in self.names:
            table = HudiTableBuilder.from_base_uri(f"file://{self.table(name)}").build()
            ids = [value for batch in table.read() for value in batch.column("event_id").to_pylist()]
            if len(ids) != self.put_[name] or len(set(ids)) != len(ids):
                found.append(f"{name}: {len(ids)} rows, {len(set(ids))} logs, {self.put_[name]} put")
        if self.is_troubled and (rows := rows_of(self.table(HOT))) != self.put_[HOT]:
            found.append(f"{HOT}: {rows} rows, {self.put_[HOT]} put")
        return found

    def _logstore(self, name: str) -> str:
        return f"logs-of-{name}"


@contextmanager
def running(pipelines: int, is_troubled: bool, folder: Path) -> Iterator[tuple[Fleet, LocalAirflow]]:
    """Everything started, and two batches of each pipeline committed."""
    with LocalSls(folder / "sls") as server:
        variables = {
            **variables_of(folder, server.connection()),
            IDLE: str(SESSION_IDLE_SECONDS),
            "TMPDIR": str(folder),
        }
        variables |= refused(server.connection())
        described = json.loads(variables["AIRFLOW_CONN_SLSHUDI_LEDGER"])
        engine = open_engine(f"sqlite:///{described['schema']}")
        migrate(engine)
        fleet = Fleet(server, Ledger(engine), folder, [f"p{number:03}" for number in range(pipelines)], is_troubled)
        variables.pop("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", None)
        with LocalAirflow(folder / "airflow", folder / "dags", variables) as airflow:
            airflow.wait_for_dag("fleet")
            airflow.pause("fleet", False)
            for _ in range(2):
                for name in fleet.names:
                    fleet.put(name)
                fleet.until_read(WARM_SECONDS)
            if is_troubled:
                fleet.put(BROKEN)
                fleet.until_read(WARM_SECONDS)
                break_table(fleet.table(BROKEN))
            fleet.fresh.clear()
            yield fleet, airflow
        engine.dispose()


def measure(fleet: Fleet, news: int, minutes: int) -> None:
    """Puts news of so many pipelines each minute, in turn."""
    turns, hot = itertools.cycle(fleet.names), fleet.hot()
    if fleet.is_troubled:
        hot.start()
    began = time.monotonic()
    for number in range(news * minutes):
        while time.monotonic() < began + number * 60 / news:
            time.sleep(min(LOOK_SECONDS, max(began + number * 60 / news - time.monotonic(), 0)))
            fleet.look()
            fleet.sample()
        fleet.put(next(turns))
        if number % news == news - 1:
            done = sorted(seconds for all_ in fleet.fresh.values() for seconds in all_)
            late = f"worst {done[-1]:.0f} s" if done else ""
            took = sum(fleet.memory[-1][1].values()) if fleet.memory else 0
            print(f"  minute {number // news + 1}: {len(done)} fresh, {late}; {took:,.0f} MB", flush=True)
            if fleet.is_troubled:
                fleet.put(BROKEN)
                fleet.put(REFUSED)
    if fleet.is_troubled:
        hot.stop()
        fleet.put_[HOT] = hot.put * hot.rate.logs
        fleet.until_rows(HOT)
    fleet.until_read(600)


def until_ended(fleet: Fleet) -> float:
    """Seconds until no session is left of those that nobody uses."""
    began = time.monotonic()
    while any(JVM in kind and taken for kind, taken in memory(fleet.server.pid).items()):
        if time.monotonic() > began + 2 * SESSION_IDLE_SECONDS:
            raise SystemExit(f"a session is there after {2 * SESSION_IDLE_SECONDS} s without a batch")
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def left() -> list[str]:
    """The processes below this one; those that ended and wait for nothing but this one's look are none."""
    below = psutil.Process().children(recursive=True)
    psutil.wait_procs(below, timeout=0)
    found = []
    for process in below:
        with suppress(psutil.NoSuchProcess):  # a zombie, too
            found.append(" ".join(process.cmdline())[:120])
    return found


def draw(path: Path, title: str, taken: list[tuple[float, Counter[str]]]) -> None:
    """Memory over time, by kind."""
    began, kinds = taken[0][0], sorted({kind for _, found in taken for kind in found})
    lines = [Line("all", [((at - began) / 60, sum(found.values())) for at, found in taken])]
    lines += [Line(kind, [((at - began) / 60, found[kind]) for at, found in taken]) for kind in kinds]
    plot(path, title, "minutes", [Panel(f"{line.name}, MB", [line]) for line in lines])


def main() -> int:
    """Measures and prints; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=100)
    parser.add_argument("--news", type=int, default=10, help="pipelines with news each minute (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--troubled", action="store_true", help="put three pipelines beside that must change nothing")
    parser.add_argument("--plot", type=Path, help="draw the memory that was taken, as SVG")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="slshudi-fleet-", ignore_cleanup_errors=True) as folder:
        try:
            with running(given.pipelines, given.troubled, Path(folder)) as (fleet, airflow):
                before, began = used(fleet.server.pid), time.monotonic()
                measure(fleet, given.news, given.minutes)
                spent, span = used(fleet.server.pid), time.monotonic() - began
                spent.subtract(before)
                airflow.pause("fleet", True)
                idle = Idle(fleet.server.pid, IDLE_SECONDS)
                ended = until_ended(fleet)
                differ = fleet.differs()
            there = left()
        finally:
            for process in psutil.Process().children(recursive=True):
                process.kill()
    done = sorted(seconds for all_ in fleet.fresh.values() for seconds in all_)
    worst = {name: max(seconds) for name, seconds in fleet.fresh.items()}
    if given.json is not None:
        given.json.write_text(
            json.dumps({"fresh": fleet.fresh, "memory": fleet.memory, "cpu": spent}), encoding="utf-8"
        )
    for kind, seconds in sorted(spent.items()):
        print(f"  CPU a minute, {kind:<24}{seconds / span * 60:6.2f} s (idle {idle.rates.get(kind, 0) * 60:.2f} s)")
    print(f"  CPU a minute, {'all':<24}{sum(spent.values()) / span * 60:6.2f} s of {psutil.cpu_count() * 60}")
    first, last = thirds([sum(found.values()) for _, found in fleet.memory])
    print(f"  memory: {first:,.0f} MB in the first third, {last:,.0f} MB in the last")
    print(f"  sessions ended {ended:.0f} s after the last batch; {len(there)} processes after Airflow stopped")
    for line in [*differ, *there]:
        print(f"  {line}")
    if given.plot is not None:
        draw(given.plot, f"{given.pipelines} pipelines, {given.news} with news each minute", fleet.memory)
    print(f"{len(done)} batches of {len(worst)} pipelines, {len(differ)} tables that do not hold each log once")
    half, most = done[len(done) // 2], done[min(len(done) - 1, len(done) * 99 // 100)]
    print(f"freshness: median {half:.0f} s, 99 % within {most:.0f} s, worst {done[-1]:.0f} s (bar {BAR_SECONDS:.0f} s)")
    return 1 if differ or there or most > BAR_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
