"""Pipelines under Airflow, and all around them dies.

Random processes are killed or stopped for a while, the log service fails, shards split and merge, backfills run beside
the tail. In the end the service's logs are compared with the table's rows, one by one, by readers that know nothing of
each other. A run that is not exact, or gets stuck, leaves its folder.
"""

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
from tests.chaos.proof import prove
from tests.chaos.unrest import Unrest
from tests.exact.outcome import Jammed, Outcome
from tests.local.sdk import by_ip
from tests.machine import bounds, shard_ids

UNREST_SECONDS = 15.0
PUT_SECONDS = 1.0
STUCK_SECONDS = 900.0
TELL_SECONDS = 10.0
CALM_SECONDS = 3.0
"""How long logs are still put after the last kill, for the healthy batches at the end."""
BUSY = ["queued", "running"]


class Stuck(Jammed):
    """A pipeline does not get on."""


class Run:
    """The pipelines of a place, and all that disturbs them."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.killer = Killer(place, f"{seed}-kills")
        self.living = Living(place)
        self.unrest = Unrest(place, f"{seed}-unrest", UNREST_SECONDS)
        connection = place.server.connection()
        self.producers = [Producer(connection, line, f"{seed}-{line.name}", PUT_SECONDS) for line in place.lines]
        self.commits = dict.fromkeys((line.name for line in place.lines), 0)
        self._moved = dict.fromkeys(self.commits, time.monotonic())
        self._told, self._decided = 0.0, 0

    @property
    def committed(self) -> int:
        return sum(self.commits.values())

    @property
    def aborted(self) -> int:
        return sum(self.place.count(line, State.ABORTED) for line in self.place.lines)

    @contextmanager
    def put(self) -> Iterator[None]:
        """Puts logs to all pipelines while the block runs."""
        for producer in self.producers:
            producer.start()
        try:
            yield
        finally:
            for producer in self.producers:
                producer.stop()

    def step(self) -> None:
        """Looks, and disturbs what is due.

        Raises:
            Stuck: a pipeline does not get on.
        """
        with suppress(LedgerUnavailable):
            self.look()
            self._decided = self.committed + self.aborted
        # It is the killer that starts the ledger's server again.
        self.killer.step(self._decided)
        self.unrest.step()
        time.sleep(0.2)

    def calm(self) -> None:
        """Ends what disturbs, and waits for more logs."""
        self.unrest.end()
        self.killer.end()
        time.sleep(CALM_SECONDS)

    def settle(self) -> None:
        """Waits until healthy batches have committed every log, then until nothing runs any more.

        Raises:
            Stuck: that takes too long.
        """
        place, deadline = self.place, time.monotonic() + STUCK_SECONDS
        for line in place.lines:
            while open_ends(place, line):
                if time.monotonic() > deadline:
                    raise Stuck(explain(place, line))
                self.killer.tend()
                self.look()
                time.sleep(0.5)
        for dag in (dag for line in place.lines for dag in line.dags):
            place.airflow.pause(dag, True)
        while place.airflow.get("dags/~/dagRuns/~/taskInstances", state=BUSY)["total_entries"]:
            if time.monotonic() > deadline:
                raise Stuck(f"tasks are still {' or '.join(BUSY)} although all is committed")
            self.killer.tend()
            time.sleep(0.5)

    def count(self) -> Outcome:
        """Compares the logs of each pipeline with its rows."""
        outcome = Outcome()
        for producer in self.producers:
            outcome.add(prove(self.place, producer.line, producer.acknowledged))
        self.look()
        outcome.wrong += self.living.living
        end_residents(self.place)
        return outcome

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


def disturb(place: Place, batches: int, seed: int, outcome: Outcome) -> None:
    """Disturbs a place until so many micro-batches are committed; then all has to be exact.

    Raises:
        Stuck: a pipeline did not get on.
    """
    run = Run(place, seed)
    with run.put():
        while run.committed < batches:
            run.step()
        run.calm()
    run.settle()
    outcome.add(run.count())
    outcome.figures.update(batches=run.committed, kills=sum(run.killer.kills.values()))
    outcome.figures["living ones fenced"] += len(run.living.living)
    outcome.notes += [str(run), f"run again by a new scheduler: {listed(steps_again(place))}"]


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
