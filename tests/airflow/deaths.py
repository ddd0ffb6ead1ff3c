"""`python -m tests.airflow.deaths [--deferrable] [KIND ...]`: how long a pipeline stands after each death, in seconds.

A whole Airflow as it comes, without shorter time-outs (one is longer: PATIENT). An append is held in the middle of its
work and something is killed by SIGKILL; what a supervisor of the host would start again is started again at once. Logs
come all the time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LIVE, State, Transaction
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark.resident import IDLE
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.airflows import SupervisedAirflow
from tests.local.sdk import by_ip
from tests.machine import arguments_of, environment, event, write_pipeline
from tests.points import armed_in
from tests.residents import apart
from tests.waiting import until

NAME = "ad_events"
TAIL = f"{NAME}_tail"
SPARK = {"connection": "spark_default", "conf": {"spark.sql.shuffle.partitions": "4"}}
DAG = """from airflow_provider_slshudi import tail_dag

tail = tail_dag("ad_events", default_args={{"deferrable": {deferrable}}}, is_paused_upon_creation=False)
"""
PATIENT = {"AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120"}
"""A scheduler that starts resets the tasks of one that has not beaten for this long. Airflow's own 30 s is less than
a start takes on a busy machine, and what is measured here is a scheduler that is back at once.
"""
GIVES_UP_SECONDS = 420.0
"""Airflow itself gives a dead task up after 300 s."""


@dataclass
class Place:
    """One pipeline under an Airflow."""

    home: Path
    airflow: SupervisedAirflow
    client: LogClient
    ledger: Ledger
    events: int = 0

    def put(self, count: int = 50) -> None:
        numbers = range(self.events, self.events + count)
        items = [LogItem(int(time.time()), contents=event(number)) for number in numbers]
        self.client.put_logs(PutLogsRequest("ads", "events", "ads", "10.0.0.1", items))
        self.events += count

    def committed(self) -> list[Transaction]:
        return self.ledger.last(NAME, 100, State.COMMITTED)

    def rows(self) -> list[str]:
        """The event of every row of the table."""
        from hudi import HudiTableBuilder

        batches = HudiTableBuilder.from_base_uri(f"file://{self.home / 'lake'}").build().read()
        return [name for batch in batches for name in batch["event_id"].to_pylist()]

    def appending(self) -> Transaction:
        """A transaction whose append is held, and whose step says which process it is."""
        held = self.home / "points" / Point.APPEND_STARTED.value
        held.write_text("hold")
        self.put()
        until("an append is held", lambda: not held.exists(), explain=self.explain)
        return until("its step beats", lambda: [one for one in self.ledger.live(NAME) if one.process])[0]

    def release(self) -> None:
        """Lets everything go on that is held and was not killed."""
        for file in (self.home / "points").iterdir():
            with suppress(FileNotFoundError):
                file.unlink()

    def explain(self) -> str:
        runs = [(run["dag_run_id"], run["state"]) for run in self.airflow.runs(TAIL)]
        return f"{self.ledger.last(NAME, 3)}; {[(run, self.airflow.tasks(TAIL, run[0])) for run in runs[-3:]]}"


@contextmanager
def place(home: Path, deferrable: bool, schedule: str = "10s") -> Iterator[Place]:
    """Everything started; the DAG runs."""
    pipelines, dags, database = home / "pipelines", home / "dags", home / "ledger.db"
    for folder in (pipelines, dags, home / "points"):
        folder.mkdir(parents=True)
    write_pipeline(pipelines / f"{NAME}.yaml", home / "lake", schedule=schedule, spark=SPARK)
    (dags / "tail.py").write_text(DAG.format(deferrable=deferrable), encoding="utf-8")
    engine = open_engine(f"sqlite:///{database}")
    migrate(engine)
    with LocalSls(home / "sls") as server:
        client = by_ip(server.connection())
        client.create_project("ads", "tests")
        client.create_logstore("ads", "events", ttl=7, shard_count=2)
        variables = environment(pipelines, database, server) | PATIENT | armed_in(home / "points") | {IDLE: "60"}
        with apart(), SupervisedAirflow(home / "airflow", dags, variables, triggerer=deferrable) as airflow:
            airflow.wait_for_dag(TAIL)
            yield Place(home, airflow, client, Ledger(engine))
    engine.dispose()


def step_of(dying: Transaction) -> psutil.Process:
    """The process of the step that works on it."""
    return psutil.Process(int(str(dying.process).split("/")[-2]))


def _kill_driver(found: Place, dying: Transaction) -> None:
    below = step_of(dying).children(recursive=True)
    next(process for process in below if arguments_of(process)[:1] and "java" in arguments_of(process)[0]).kill()


def _kill_task(found: Place, dying: Transaction) -> None:
    step_of(dying).kill()


def _kill_worker(found: Place, dying: Transaction) -> None:
    worker = step_of(dying).parent()
    assert "LocalExecutor" in " ".join(arguments_of(worker)), arguments_of(worker)
    worker.kill()


def _kill_scheduler(found: Place, dying: Transaction) -> None:
    """Its executor's workers live on, and the append with them."""
    scheduler = psutil.Process(found.airflow.pids["scheduler"])
    scheduler.kill()
    scheduler.wait(20)
    found.airflow.revive()
    found.release()


def _kill_all(found: Place, dying: Transaction) -> None:
    roots = [psutil.Process(pid) for pid in found.airflow.pids.values()]
    everything = [below for root in roots for below in (root, *root.children(recursive=True))]
    for process in everything:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(everything, timeout=20)
    found.airflow.revive()


DEATHS: dict[str, Callable[[Place, Transaction], None]] = {
    "driver": _kill_driver,
    "task": _kill_task,
    "worker": _kill_worker,
    "scheduler": _kill_scheduler,
    "all": _kill_all,
}


@dataclass(frozen=True)
class Back:
    """What became of the batch that a death hit. Seconds from the death until it was decided, until another batch was
    planned, and until one was committed.
    """

    state: State
    decided: float
    planned: float
    committed: float

    def __str__(self) -> str:
        return (
            f"{self.state.value} after {self.decided:.0f} s, next plan {self.planned:.0f}, commit {self.committed:.0f}"
        )


def die(found: Place, kind: str) -> Back:
    """Waits for an append, kills, and waits until the pipeline is back."""
    dying = found.appending()
    at = time.monotonic()
    DEATHS[kind](found, dying)
    found.release()
    found.put()
    seconds: dict[str, float] = {}

    def note(what: str, seen: bool) -> None:
        if seen:
            seconds.setdefault(what, time.monotonic() - at)

    def is_back() -> bool:
        later = [one for one in found.ledger.last(NAME, 10) if one.created > dying.created]
        note("decided", found.ledger.get(dying.id).state not in LIVE)
        note("planned", bool(later))
        note("committed", any(one.state is State.COMMITTED for one in later))
        time.sleep(0.2)
        return len(seconds) == 3

    until("the pipeline is back", is_back, GIVES_UP_SECONDS, found.explain)
    return Back(found.ledger.get(dying.id).state, **seconds)


def main() -> int:
    """Prints a line for each death."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*DEATHS, []], help="these alone")
    parser.add_argument("--deferrable", action="store_true", help="with a triggerer")
    given = parser.parse_args()
    adopt_orphans()
    home = Path(tempfile.mkdtemp(prefix="slshudi-deaths-"))
    print(home, flush=True)
    with place(home, given.deferrable) as found:
        found.put()
        until("the first batch is committed", found.committed, explain=found.explain)
        for kind in given.kinds or DEATHS:
            print(f"{kind}: {die(found, kind)}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
