"""One run: disturb until enough is committed, let it settle, prove."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused, AirflowUnreachable
from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.planning.ranges import Range, subtract
from airflow_provider_slshudi.storage.files import Storage
from tests.chaos.killer import Killer
from tests.chaos.living import Living
from tests.chaos.place import PROJECT, Line, Place
from tests.chaos.processes import end_residents
from tests.chaos.producer import Producer
from tests.chaos.proof import Outcome, prove
from tests.chaos.unrest import Unrest
from tests.local.sdk import by_ip
from tests.machine import bounds, shard_ids

UNREST_SECONDS = 15.0
PUT_SECONDS = 1.0
STUCK_SECONDS = 900.0
TELL_SECONDS = 10.0
CALM_SECONDS = 3.0
"""How long logs are still put after the last kill, for the healthy batches at the end."""
BUSY = ["queued", "running"]


class Stuck(Exception):
    """A pipeline does not get on."""


class Run:
    """The disturbed time of a run."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.killer = Killer(place, f"{seed}-kills")
        self.living = Living(place)
        self.unrest = Unrest(place, f"{seed}-unrest", UNREST_SECONDS)
        connection = place.server.connection()
        self.producers = [Producer(connection, line, f"{seed}-{line.name}", PUT_SECONDS) for line in place.lines]
        self.commits = dict.fromkeys((line.name for line in place.lines), 0)
        self._moved = dict.fromkeys(self.commits, time.monotonic())
        self._told = 0.0

    @property
    def committed(self) -> int:
        return sum(self.commits.values())

    @property
    def aborted(self) -> int:
        return sum(self.place.count(line, State.ABORTED) for line in self.place.lines)

    def look(self) -> None:
        """Counts commits, and tells now and then.

        Raises:
            Stuck: a pipeline committed nothing for long, or nobody puts logs any more.
        """
        self.living.look()
        for producer in self.producers:
            if producer.failed is not None:
                raise Stuck(f"{producer.line.name}: nobody puts logs any more: {producer.failed!r}")
        now = time.monotonic()
        for line in self.place.lines:
            count = self.place.count(line, State.COMMITTED)
            if count > self.commits[line.name]:
                self.commits[line.name], self._moved[line.name] = count, now
            elif now - self._moved[line.name] > STUCK_SECONDS:
                raise Stuck(explain(self.place, line))
        if now - self._told > TELL_SECONDS:
            self._told = now
            print(self, flush=True)

    def __str__(self) -> str:
        faults = sum(self.place.server.injected().values())
        repeated = sum(producer.repeated for producer in self.producers)
        put = sum(producer.acknowledged for producer in self.producers)
        return (
            f"{self.committed} batches committed, {self.aborted} aborted; killed: {listed(self.killer.kills)}; "
            f"stopped: {listed(self.killer.stops)}; {self.killer.restarts} schedulers restarted; {faults} faults; "
            f"{listed(self.unrest.done)}; {self.living.dead} batches taken from dead processes; "
            f"{put} logs put, {repeated} puts repeated"
        )


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def disturb(place: Place, batches: int, seed: int) -> tuple[Run, Outcome]:
    """Runs until so many micro-batches are committed; gives what was done and found.

    Raises:
        Stuck: a pipeline did not get on.
    """
    run, decided = Run(place, seed), 0
    with _producing(run.producers):
        while run.committed < batches:
            with suppress(LedgerUnavailable):
                run.look()
                decided = run.committed + run.aborted
            # It is who starts the ledger's server again.
            run.killer.step(decided)
            run.unrest.step()
            time.sleep(0.2)
        run.unrest.end()
        run.killer.end()
        time.sleep(CALM_SECONDS)
    _settle(run)
    outcome = Outcome()
    for line, producer in zip(place.lines, run.producers, strict=True):
        outcome.add(prove(place, line, producer.acknowledged))
    run.look()
    outcome.wrong += run.living.living
    end_residents(place)
    return run, outcome


@contextmanager
def _producing(producers: list[Producer]) -> Iterator[None]:
    for producer in producers:
        producer.start()
    try:
        yield
    finally:
        for producer in producers:
            producer.stop()


def _settle(run: Run) -> None:
    """Waits until healthy batches have committed every log, then until nothing runs any more.

    Raises:
        Stuck: that takes too long.
    """
    deadline = time.monotonic() + STUCK_SECONDS
    for line in run.place.lines:
        while open_ends(run.place, line):
            if time.monotonic() > deadline:
                raise Stuck(explain(run.place, line))
            run.killer.tend()
            run.look()
            time.sleep(0.5)
    airflow = run.place.airflow
    for line in run.place.lines:
        for dag in line.dags:
            airflow.pause(dag, True)
    while airflow.get("dags/~/dagRuns/~/taskInstances", state=BUSY)["total_entries"]:
        if time.monotonic() > deadline:
            raise Stuck(f"tasks are still {' or '.join(BUSY)} although all is committed")
        run.killer.tend()
        time.sleep(0.5)


def steps_again(place: Place) -> Counter[str]:
    """Steps with a driver, which have no retries, that Airflow ran once more: their scheduler had died.

    The first try may be alive meanwhile, and both have the same fencing token.
    """
    logs = place.airflow.directory / "logs"
    tries = [file for file in logs.glob("*/*/task_id=batch.*/attempt=*.log") if not file.name.startswith("attempt=1.")]
    steps = (file.parent.name.rpartition(".")[2] for file in tries if file.stat().st_size)
    return Counter(step for step in steps if step in ("open", "append", "commit"))


def open_ends(place: Place, line: Line) -> bool:
    """Whether a log is not committed yet, or an instant undecided."""
    client, coverage = by_ip(place.server.connection()), place.ledger.coverage(line.name)
    for shard in shard_ids(client, PROJECT, line.name):
        begin, end = bounds(client, PROJECT, line.name, shard)
        if begin < end and subtract([Range(shard, begin, end)], coverage):
            return True
    return bool(Timeline.load(Storage(line.table)).pending())


def explain(place: Place, line: Line) -> str:
    """What is known of a pipeline that does not get on."""
    said = [f"{line.name}: nothing was committed for {STUCK_SECONDS:.0f} s"]
    said += [f"{item.state.value} {item.id} of {item.run_id}: {item.error}" for item in place.ledger.last(line.name, 5)]
    with suppress(AirflowRefused, AirflowUnreachable):
        for dag in line.dags:
            runs = place.airflow.get(f"dags/{dag}/dagRuns", order_by="-run_after", limit=3)["dag_runs"]
            said += [f"{run['dag_run_id']}: {place.airflow.tasks(dag, run['dag_run_id'])}" for run in runs]
    return "\n".join(said)
