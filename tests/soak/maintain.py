"""Small batches while another process clusters, cleans and archives.

Batches are committed one after the other by one warm driver; the services run as their operators run them, again and
again, in a process of their own. After each batch files and timeline are counted, and now and then a snapshot query is
timed. In the end the table is read by Spark and by hudi-rs and proved against ledger and
log service.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.exact.counts import count
from tests.exact.outcome import Outcome
from tests.exact.world import new_scenario
from tests.pipelines import ad_events
from tests.scenarios import PROJECT, Scenario, SessionLauncher
from tests.soak.plot import Line, Panel, plot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LOGSTORE = "served"
LOGS = 500
QUERY_EVERY = 10
LEAST_BATCHES = 100
"""With fewer nothing can be said about growth."""
GROWTH = 1.5
"""How many times its middle third a figure may be in the last one, where there are 1.7 times as many rows."""
MAINTENANCE = {
    "keep": {"commits": 10},
    "min_commits": 15,
    "max_commits": 25,
    "clustering": {"small_file": "1MiB", "target_file": "4MiB"},
}


@dataclass(frozen=True)
class Seen:
    """The table after a batch: `seconds` that it took, base files on storage and written by batches so far, files of
    the timelines; where a snapshot was queried, the files that it has and the seconds that the query took.
    """

    batch: int
    seconds: float
    files: int
    written: int
    timeline: int
    metadata_timeline: int
    snapshot: int | None
    query: float | None


@dataclass(frozen=True)
class Served:
    """What was seen after each batch, and what the services did."""

    seen: list[Seen]
    services: list[dict[str, Any]]

    def notes(self) -> Iterator[str]:
        """The figures, in a few words each."""
        last = self.seen[-1]
        files, timeline = (max(getattr(item, name) for item in self.seen) for name in ("files", "timeline"))
        begin, end = (statistics.median(part) for part in _ends([item.query for item in self.seen if item.query]))
        yield f"{last.written} files written, {files} at most, {timeline} timeline files at most"
        yield f"query {begin:.2f} s at first, {end:.2f} s at last"
        for service in ("cluster", "clean", "archive"):
            runs = [item for item in self.services if item["service"] == service]
            busy = sum(1 for item in runs if item.get("instant") or item.get("instants"))
            seconds = statistics.median(item["seconds"] for item in runs) if runs else 0.0
            yield f"{service}: {len(runs)} times, {seconds:.1f} s, {busy} with something to do"


def soak(folder: Path, spark: SparkSession, server: LocalSls, batches: int, pause: float, outcome: Outcome) -> Served:
    """Runs it in `folder`; services rest for `pause` seconds between two rounds."""
    pipeline = ad_events(folder / "table", source={"project": PROJECT, "logstore": LOGSTORE}, maintenance=MAINTENANCE)
    url = f"sqlite:///{folder / 'ledger.db'}"
    scenario = new_scenario(pipeline, url, server, SessionLauncher(spark))
    seen: list[Seen] = []
    scenario.put(LOGS)
    with _serving(folder, pipeline, url, pause) as log:
        for number in range(1, batches + 1):
            began = time.monotonic()
            done = scenario.batch(f"run-{number}")
            seconds = time.monotonic() - began
            assert done.rows == LOGS
            if number < batches:
                scenario.put(LOGS, first=number * LOGS)
            seen.append(_look(scenario, spark, number, done.instant, seconds, seen, batches))
            print(json.dumps(asdict(seen[-1])), flush=True)
    served = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    found = Served(seen, served)
    outcome.figures.update(batches=batches)
    outcome.notes += found.notes()
    outcome.add(count(scenario.work, batches * LOGS, spark))
    outcome.wrong += _faults(scenario, found)
    return found


def serve(setup: dict[str, Any]) -> None:
    """The services, as their operators do them, until standard input ends."""
    pipeline = Pipeline.model_validate(setup["pipeline"])
    launcher = SubprocessLauncher(say=lambda line: print(line, file=sys.stderr, flush=True), resident=True)
    work = Work(pipeline, Ledger(open_engine(setup["ledger"])), launcher, _no_service, Run("maintenance", "run-0"))
    services: dict[str, Callable[[Work], Any]] = {
        "cluster": cluster,
        "clean": maintenance.clean,
        "archive": maintenance.archive,
    }
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    while not over.is_set():
        for name, service in services.items():
            began = time.monotonic()
            try:
                did = asdict(service(work))
            except Exception as error:
                did = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"service": name, "seconds": time.monotonic() - began, **did}), flush=True)
        over.wait(setup["pause"])


def _no_service() -> LogService:
    raise AssertionError("table services ask the log service nothing")


@contextmanager
def _serving(folder: Path, pipeline: Pipeline, ledger: str, pause: float) -> Iterator[Path]:
    """A process that serves the table while the block runs; gives what it prints."""
    setup = {"pipeline": pipeline.model_dump(mode="json"), "ledger": ledger, "pause": pause}
    log = folder / "served.log"
    # A resident process of its own, which goes when it is done.
    environment = {**os.environ, "SLSHUDI_RESIDENT_SECONDS": str(pause + 60)}
    command = [sys.executable, "-m", "tests.soak.maintain", json.dumps(setup)]
    with (
        log.open("wb") as out,
        (folder / "served.err").open("wb") as err,
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err) as child,
    ):
        try:
            yield log
        finally:
            child.communicate()


def _look(
    scenario: Scenario,
    spark: SparkSession,
    number: int,
    instant: str | None,
    seconds: float,
    before: Sequence[Seen],
    batches: int,
) -> Seen:
    root = Path(scenario.work.storage.full(""))
    snapshot = query = None
    if number % min(QUERY_EVERY, max(1, batches // 10)) == 0:
        began = time.monotonic()
        table = spark.read.format("hudi").load(str(root))
        rows = table.where("price >= 0").selectExpr("count(*)", "sum(clicks)").collect()[0][0]
        query = time.monotonic() - began
        snapshot = len(table.inputFiles())
        assert rows == number * LOGS, f"{rows} rows after {number} batches of {LOGS}"
    return Seen(
        number,
        seconds,
        sum(1 for _ in root.glob("event_date=*/*.parquet")),
        (before[-1].written if before else 0) + sum(1 for _ in root.glob(f"event_date=*/*_{instant}.parquet")),
        sum(1 for file in (root / ".hoodie/timeline").iterdir() if file.is_file()),
        sum(1 for file in (root / ".hoodie/metadata/.hoodie/timeline").iterdir() if file.is_file()),
        snapshot,
        query,
    )


def _faults(scenario: Scenario, found: Served) -> list[str]:
    """What is wrong beside the rows: services that failed, figures that grow."""
    faults = []
    if not verify(scenario.work, True).ok:
        faults.append("slshudi verify finds faults")
    faults += [f"{item['service']} failed: {item['error']}" for item in found.services if "error" in item][:3]
    if len(found.seen) < LEAST_BATCHES:
        return faults
    for name in ("files", "snapshot", "timeline", "metadata_timeline"):
        values = [value for item in found.seen if (value := getattr(item, name)) is not None]
        middle, end = (max(part) for part in _thirds(values))
        if end > GROWTH * middle:
            faults.append(f"{name} grew from {middle} to {end}")
    middle, end = (statistics.median(part) for part in _thirds([item.query for item in found.seen if item.query]))
    if end > GROWTH * middle:
        faults.append(f"query grew from {middle:.2f} to {end:.2f} s")
    return faults


def _thirds(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The middle and the last third."""
    size = max(1, len(values) // 3)
    return values[-2 * size : -size] or values, values[-size:]


def _ends(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    size = max(1, len(values) // 5)
    return values[:size], values[-size:]


def draw(path: Path, found: Served) -> None:
    """The plot."""

    def line(name: str, field: str) -> Line:
        return Line(name, [(item.batch, value) for item in found.seen if (value := getattr(item, field)) is not None])

    files = max(item.files for item in found.seen)
    median = statistics.median(item.seconds for item in found.seen)
    panels = [
        Panel(
            "Base files",
            [
                line("on storage", "files"),
                line("of the snapshot", "snapshot"),
                line("written by batches so far", "written"),
            ],
            files * 1.5,
        ),
        Panel("Timeline files", [line("table", "timeline"), line("metadata table", "metadata_timeline")]),
        Panel("Snapshot query by Spark, s", [line("count, filter, sum", "query")]),
        Panel("Batch from settle to commit, s", [line("batch", "seconds")], 4 * median),
    ]
    title = f"{found.seen[-1].batch} batches of {LOGS} logs beside clustering, cleaning and archival"
    plot(path, title, "batch", panels)


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
