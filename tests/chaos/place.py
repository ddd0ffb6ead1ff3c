"""What the run disturbs: a log service, an Airflow, and pipelines side by side, each with a logstore and a table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local import LocalSls
from tests.airflows import SupervisedAirflow
from tests.local.sdk import by_ip
from tests.machine import connection, environment, event, write_pipeline
from tests.readers.mirrors import CATALOG, NAMESPACE

PROJECT = "chaos"
SHARDS = 2
START_SECONDS = 240.0
KEYS = 300
SPARK = {"connection": "spark_default", "conf": {"spark.sql.shuffle.partitions": "4"}}
_HEAD = """from datetime import timedelta

from airflow_provider_slshudi.dag.factories import fleet_dag, tail_dag
from airflow_provider_slshudi.dag.operations import backfill_dag, maintenance_dag

quick = {"retry_delay": timedelta(seconds=2), "poke_interval": 2}
"""
_DAG = '{kind} = {kind}_dag("{name}", default_args=quick, is_paused_upon_creation=False)\n'
_FLEET_DAG = 'fleet = fleet_dag({names}, "{fleet}", schedule="5s", is_paused_upon_creation=False)\n'
SERVED = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
"""The `maintenance` of a pipeline whose table is clustered, cleaned and archived while the run lasts."""
QUICK = {
    # A scheduler's queue that nobody serves is noticed within seconds; a task whose process is gone mostly by the next
    # run before Airflow does.
    "AIRFLOW__CORE__PARALLELISM": "6",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "SLSHUDI_RESIDENT_SECONDS": "60",
}


@dataclass(frozen=True)
class Line:
    """One pipeline, its logstore of the same name, and its table; `log` is what the numbered logs are.

    `fleet` is the DAG that it shares with others; empty where it has a tail of its own. `catalog` is the database's URL
    of its Iceberg mirror; empty where it has no mirrors.
    """

    name: str
    table: str
    log: Callable[[int], list[tuple[str, str]]] = event
    fleet: str = ""
    catalog: str = ""

    @property
    def dags(self) -> tuple[str, str]:
        """What reads new logs, and its backfill."""
        return self.fleet or f"{self.name}_tail", f"{self.name}_backfill"

    @property
    def upserts(self) -> bool:
        """Whether a later log changes the row of an earlier one."""
        return self.log is change


def change(number: int) -> list[tuple[str, str]]:
    """The version `number` of one of `KEYS` customers; after three versions each, others take their places."""
    key = number % KEYS + KEYS * (number // (3 * KEYS))
    return [("id", f"c-{key}"), ("updated_at", str(number)), ("region", "abc"[key % 3]), ("number", str(number))]


@dataclass(frozen=True)
class Habits:
    """How a run disturbs: the kinds of processes that it draws, and by which weight; of how many a disturbed one is
    stopped and not killed, and for how many seconds; whether somebody looks after tasks that are queued for long."""

    weights: Mapping[str, float]
    stopped: Sequence[tuple[float, float, float]]
    looks_after_queue: bool = True


HABITS = Habits(
    # What is always there is drawn seldom: the others come and go, and a draw of one that is not there is drawn again.
    {
        "spark-submit JVM": 3,
        "driver": 3,
        "resident process": 2,
        "pyspark worker": 2,
        "task": 3,
        "worker": 2,
        "log service": 0.2,
        "scheduler": 0.2,
        "dag-processor": 0.05,
        "api-server": 0.1,
    },
    [(0.2, 1.0, 25.0)],
)


class Served(Protocol):
    """A process that is started again where its clients look for it."""

    @property
    def pid(self) -> int:
        """Of its first process."""

    def runs(self) -> bool:
        """Whether it has not ended."""

    def start(self) -> None:
        """Starts it where it was."""


@dataclass
class Place:
    """One machine with everything on it; `services` are what there is beside Airflow and the log service, by name."""

    home: Path
    server: LocalSls
    airflow: SupervisedAirflow
    ledger: Ledger
    lines: list[Line]
    services: Mapping[str, Served] = field(default_factory=dict)
    habits: Habits = HABITS

    def count(self, line: Line, state: State) -> int:
        """Transactions of a pipeline in a state."""
        return len(self.ledger.last(line.name, 100_000, state))

    def queued_seconds(self) -> float:
        """For how long the task that has waited longest is queued; 0 where none is.

        Raises:
            AirflowRefused: Airflow's API server did not say; AirflowUnreachable where it is gone.
        """
        found = self.airflow.get("dags/~/dagRuns/~/taskInstances", state="queued")["task_instances"]
        since = [
            datetime.fromisoformat(task["queued_when"].replace("Z", "+00:00")) for task in found if task["queued_when"]
        ]
        return (datetime.now(timezone.utc) - min(since)).total_seconds() if since else 0.0

    def slshudi(self, *arguments: str) -> tuple[int, Any]:
        """Exit code and JSON of a command of the package; what it said where it gave no JSON."""
        command = [sys.executable, "-m", "airflow_provider_slshudi.cli", *arguments, "--json"]
        done = subprocess.run(command, env=self.airflow.environment, capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@contextmanager
def log_service(home: Path, lines: Sequence[Line]) -> Iterator[LocalSls]:
    """A log service with the logstores of pipelines."""
    with LocalSls(home / "sls") as server:
        # Killed and started again, it is where its clients look for it.
        server.port = int(server.endpoint.rpartition(":")[2])
        client = by_ip(server.connection())
        client.create_project(PROJECT, "chaos")
        for line in lines:
            client.create_logstore(PROJECT, line.name, ttl=7, shard_count=SHARDS)
        yield server


def write_line(line: Line, pipelines: Path, dags: Path, **changes: object) -> None:
    """The files of a pipeline and its DAGs."""
    source = {"project": PROJECT, "logstore": line.name, "start": "begin", "on_expired": "fail"}
    described = {"name": line.name, "source": source, "schedule": "2s", **changes}
    if line.catalog:
        described["mirror"] = {"iceberg": {"catalog": CATALOG, "table": f"{NAMESPACE}.{line.name}"}, "delta": {}}
    write_pipeline(pipelines / f"{line.name}.yaml", line.table, **described)
    kinds = ["backfill"] if line.fleet else ["tail", "backfill"]
    kinds += ["maintenance"] if "maintenance" in changes else []
    made = [_DAG.format(kind=kind, name=line.name) for kind in kinds]
    (dags / f"{line.name}.py").write_text("".join([_HEAD, *made]), encoding="utf-8")


def write_fleet(fleet: str, lines: Sequence[Line], dags: Path) -> None:
    """The file of the DAG that pipelines share."""
    made = _FLEET_DAG.format(names=[line.name for line in lines], fleet=fleet)
    (dags / f"{fleet}.py").write_text(_HEAD + made, encoding="utf-8")


@contextmanager
def place(home: Path, count: int, fleet: str = "", mirrored: int = 1, **changes: object) -> Iterator[Place]:
    """Everything started, and `count` pipelines whose DAGs run from the start; with one tail each, or one `fleet`.

    The first `mirrored` of them have mirrors; `changes` are fields of all.
    """
    pipelines, dags = home / "pipelines", home / "dags"
    catalog = f"sqlite:///{home / 'catalog.db'}"
    lines = [
        Line(
            f"line_{number}",
            f"file://{home}/lake/line_{number}",
            fleet=fleet,
            catalog=catalog if number < mirrored else "",
        )
        for number in range(count)
    ]
    for folder in (pipelines, dags):
        folder.mkdir(parents=True)
    with log_service(home, lines) as server:
        for line in lines:
            write_line(line, pipelines, dags, spark=SPARK, **changes)
        if fleet:
            write_fleet(fleet, lines, dags)
        extra = {"type": "sql", "name": CATALOG}
        variables = {f"AIRFLOW_CONN_{CATALOG.upper()}": connection("slshudi_iceberg", host=catalog, extra=extra)}
        dags_of_lines = (dag for line in lines for dag in line.dags)
        ledger, told = home / "ledger.db", {**QUICK, **variables}
        with started(home, lines, server, ledger, SupervisedAirflow, told, dags_of_lines) as made:
            yield made


@contextmanager
def started(
    home: Path,
    lines: list[Line],
    server: LocalSls,
    ledger: Path | str,
    airflow: Callable[..., SupervisedAirflow],
    variables: Mapping[str, str],
    dags: Iterable[str],
) -> Iterator[Place]:
    """Airflow over the pipelines and DAGs in the folders of a place.

    Args:
        home: has them in `pipelines` and `dags`.
        lines: the pipelines.
        server: the log service.
        ledger: a file of SQLite, or the URL of a database of PostgreSQL.
        airflow: makes the Airflow, given its folder, that of the DAGs and its variables.
        variables: are added to those that every Airflow is told.
        dags: Airflow has to have parsed these.
    """
    engine = open_engine(f"sqlite:///{ledger}" if isinstance(ledger, Path) else ledger)
    migrate(engine)
    # Resident processes of this run's own.
    told = {**environment(home / "pipelines", ledger, server), "TMPDIR": str(home), **variables}
    with airflow(home / "airflow", home / "dags", environment=told) as running:
        for dag in dags:
            running.wait_for_dag(dag, START_SECONDS)
        yield Place(home, server, running, Ledger(engine), lines)
    engine.dispose()
