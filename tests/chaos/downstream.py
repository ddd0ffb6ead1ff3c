"""Three consumers behind each pipeline: one dies, one starts late, one is behind archival; and what wakes them.

The bell is Airflow's asset events, of which some are dropped, doubled or delayed. A consumer that dies, or is taken for
dead while it only stands still, is started anew. In the end each one's own table has each log of the service once.
"""

from __future__ import annotations

import heapq
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused, AirflowUnreachable
from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.storage.files import Storage
from tests.chaos.consumer import FAILED, Sink
from tests.chaos.place import Place
from tests.chaos.proof import logs_of
from tests.chaos.run import disturb as disturb_place
from tests.exact.outcome import Outcome, compared
from tests.local.sdk import by_ip
from tests.machine import ROOT
from tests.waiting import until

RESTLESS, LATE, BEHIND = "restless", "late", "behind"
DROPPED, DOUBLED, DELAY_SECONDS = 0.3, 0.2, 6.0
STANDS_SECONDS = 8.0
TICK_SECONDS = 0.5
OFTEN, SELDOM = 5, 20
"""After so many commits the table is clustered, cleaned and archived: until a consumer is behind that, and later."""
SERVED_SECONDS = 240.0
END_SECONDS = 600.0
_STANDS = 0.01


def disturb(place: Place, batches: int, seed: int, outcome: Outcome) -> None:
    """As `tests.chaos.run.disturb`, with three consumers behind each pipeline of the place."""
    airflow, url = place.airflow, f"sqlite:///{place.home / 'ledger.db'}"

    def events() -> int:
        return int(airflow.get("assets/events", limit=1)["total_entries"])

    def maintain(pipeline: str) -> None:
        with suppress(AirflowRefused, AirflowUnreachable):
            airflow.trigger(f"{pipeline}_maintenance")

    late = batches // (2 * len(place.lines))
    with ExitStack() as stack:
        consumers_by_line = {
            line.name: stack.enter_context(
                Consumers(
                    place.home / "consumers" / line.name,
                    place.ledger,
                    url,
                    line.name,
                    line.table,
                    events,
                    late,
                    f"{seed}-{line.name}-consumers",
                    partial(maintain, line.name),
                )
            )
            for line in place.lines
        }
        disturb_place(place, batches, seed, outcome)
        for name, consumers in consumers_by_line.items():
            counted = consumers.count(set(logs_of(by_ip(place.server.connection()), name)))
            outcome.add(counted)
            outcome.figures.update(counted.figures)


class Consumers:
    """The consumers of one pipeline; use it in a `with`.

    Args:
        home: gets their files.
        ledger: the pipeline's.
        url: of its database.
        pipeline: its name.
        table: its table's URI.
        events: how many asset events there were so far.
        late: after so many commits the late one starts.
        seed: draws deaths and what becomes of events.
        archives: asked, now and then, to clean and archive.
    """

    def __init__(
        self,
        home: Path,
        ledger: Ledger,
        url: str,
        pipeline: str,
        table: str,
        events: Callable[[], int],
        late: int,
        seed: str,
        archives: Callable[[], object] = lambda: None,
    ) -> None:
        self.home, self.ledger, self.pipeline, self.table = home, ledger, pipeline, table
        self.figures: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url, self._events, self._late, self._archives = url, events, late, archives
        self._rng = random.Random(seed)
        self._heard, self._archived_at, self._archived_when = 0, 0, time.monotonic()
        self._running: dict[str, tuple[str, subprocess.Popen[str]]] = {}
        self._standing: list[tuple[float, subprocess.Popen[str]]] = []
        self._bells: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick_on, name="consumers", daemon=True)
        (home / "over").mkdir(parents=True)

    def __enter__(self) -> Consumers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        running = [process for _, process in self._running.values()]
        for process in [*running, *(process for _, process in self._standing)]:
            process.kill()
            process.wait()

    def count(self, held: set[str]) -> Outcome:
        """Waits until all have confirmed all, and compares their tables with the logs that the service holds."""
        self._late = 0
        until("the consumers are started", lambda: len(self._running) == 3 or bool(self.failures), END_SECONDS)
        until("all is confirmed", lambda: self._is_done() or bool(self.failures), END_SECONDS)
        outcome = Outcome()
        for name in (RESTLESS, LATE, BEHIND):
            outcome.add(compared(f"consumer {name} of {self.pipeline}", Sink(self.home / f"{name}.db").logs(), held))
        outcome.wrong += self.failures
        outcome.figures.update(self.figures)
        return outcome

    def _is_done(self) -> bool:
        newest = self.ledger.newest(self.pipeline, Feed.COMMITS)
        return all(item.confirmed == newest for item in self.ledger.consumers(self.pipeline))

    def _tick_on(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                self._tick()
            except LedgerUnavailable:
                continue
            except Exception as error:
                self.failures.append(f"what starts consumers failed: {error!r}")
                return

    def _tick(self) -> None:
        self._ring()
        if not any(item.name == self.pipeline for item in self.ledger.pipelines()):
            return
        # All are given all; services do not wait for any.
        for name in (RESTLESS, BEHIND):
            self.ledger.subscribe(self.pipeline, name, Feed.COMMITS, 0, 0)
        commits = self.ledger.newest(self.pipeline, Feed.COMMITS)
        # Also without a commit: what died of a service waits for the next one.
        is_due = time.monotonic() - self._archived_when > SERVED_SECONDS
        if is_due or commits - self._archived_at >= (OFTEN if BEHIND not in self._running else SELDOM):
            self._archived_at, self._archived_when = commits, time.monotonic()
            self._archives()
        if LATE not in self._running and commits >= self._late:
            self.ledger.subscribe(self.pipeline, LATE, Feed.COMMITS, 0, 0)
            self._start(LATE)
        if BEHIND not in self._running and (not self._late or self._is_archived()):
            self.figures["behind archival"] += self._is_archived()
            self._start(BEHIND)
        self._tend()
        for file in (self.home / "over").glob(f"*{FAILED}"):
            raise AssertionError(f"{file.stem}: {file.read_text()}")

    def _tend(self) -> None:
        """Starts those that died, or are taken for dead, as one whose machine was away for a while."""
        if RESTLESS not in self._running:
            self._start(RESTLESS)
        for name, (run, process) in [*self._running.items()]:
            if process.poll() is not None:
                self.figures["consumers died"] += 1
            elif name == RESTLESS and self._rng.random() < _STANDS:
                process.send_signal(signal.SIGSTOP)
                self.figures["consumers stood still"] += 1
                self._standing.append((time.monotonic() + STANDS_SECONDS, process))
            else:
                continue
            (self.home / "over" / run).touch()
            self._start(name)
        for item in [item for item in self._standing if item[0] < time.monotonic()]:
            item[1].send_signal(signal.SIGCONT)
            if item[1].stdin is not None:  # it finishes what it was doing
                item[1].stdin.close()
            self._standing.remove(item)

    def _start(self, name: str) -> None:
        self.figures["consumers started"] += 1
        run = f"{name}-{self.figures['consumers started']}"
        setup = {
            "ledger": self._url,
            "pipeline": self.pipeline,
            "table": self.table,
            "name": name,
            "run": run,
            "over": str(self.home / "over"),
            "sink": str(self.home / f"{name}.db"),
            "seed": self._rng.random(),
            "dies": name == RESTLESS,
        }
        with (self.home / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.consumer", json.dumps(setup)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
        self._running[name] = run, process

    def _ring(self) -> None:
        """Lets the bell ring for new events, or not, or twice, or later."""
        with suppress(AirflowRefused, AirflowUnreachable):
            events = self._events()
            for _ in range(self._heard, events):
                drawn = self._rng.random()
                times = 0 if drawn < DROPPED else 2 if drawn < DROPPED + DOUBLED else 1
                self.figures[("events dropped", "events on time", "events doubled")[times]] += 1
                for _ in range(times):
                    heapq.heappush(self._bells, time.monotonic() + self._rng.expovariate(1 / DELAY_SECONDS))
            self._heard = max(self._heard, events)
        while self._bells and self._bells[0] < time.monotonic():
            heapq.heappop(self._bells)
            for _, process in self._running.values():
                if process.stdin is not None and process.poll() is None:
                    with suppress(OSError):
                        process.stdin.write("\n")
                        process.stdin.flush()

    def _is_archived(self) -> bool:
        """Whether the first commit is not on the active timeline any more."""
        first = next(iter(self.ledger.commits(self.pipeline, 0, 1)), None)
        return first is not None and Timeline.load(Storage(self.table)).get(first.instant or "") is None
