"""What several machines would run, and all of it dies.

Two schedulers, Celery workers and their broker, PostgreSQL, a Spark cluster, an S3 store and the log service: each is
killed and started again at random, or stands still, some of them for longer than a lease. Pipelines append and upsert
meanwhile. In the end the service's logs are compared with the tables' rows, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from airflow_provider_slshudi.cli.demo.airflow_process import COMPONENTS
from airflow_provider_slshudi.transaction.context import LEASE_SECONDS
from tests.airflows import SupervisedAirflow
from tests.chaos.place import HABITS, QUICK, Habits, Line, Place, Served, change, log_service, started, write_line
from tests.databases import new_database, postgres_server
from tests.machine import connection, variables
from tests.pipelines import customers
from tests.services import BRIEF, redis_server, s3_server, spark_cluster

BUCKET = "lake"
LINES = [
    Line("appends_a", f"s3a://{BUCKET}/appends_a"),
    Line("appends_b", f"s3a://{BUCKET}/appends_b"),
    Line("upserts", f"s3a://{BUCKET}/upserts", change),
]
SPARK_WORKERS, CORES = 2, 3
SCHEDULERS, WORKERS, TASKS_A_WORKER = 2, 2, 4
# Room for the batches of all pipelines at once; an executor on each Spark worker.
_CONF = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
_SPARK = {"connection": "spark_default", "conf": {**_CONF}}
DISTURBED = Habits(
    {
        **HABITS.weights,
        "executor": 3,
        "worker": 0,  # of LocalExecutor
        "celery worker": 0.3,
        "scheduler": 0.4,
        "database": 0.15,
        "broker": 0.15,
        "store": 0.15,
        "spark master": 0.15,
        "spark worker": 0.3,
    },
    [(0.02, LEASE_SECONDS + 5, LEASE_SECONDS + 30), *HABITS.stopped],
    looks_after_queue=False,
)


class CeleryAirflow(SupervisedAirflow):
    """Two schedulers, two Celery workers, and one of each other component.

    Args:
        directory: AIRFLOW_HOME.
        dags_folder: the folder of the DAG files.
        database: the URL of an empty PostgreSQL database.
        broker: the URL of a Redis.
        environment: more variables.
    """

    def __init__(
        self, directory: Path, dags_folder: Path, database: str, broker: str, environment: Mapping[str, str]
    ) -> None:
        settings = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": broker,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(TASKS_A_WORKER),
            # A message of a worker that died is lost: such a task is queued again within a minute or two.
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "10",
        }
        super().__init__(directory, dags_folder, {**settings, **environment}, database=database)
        del self._commands["scheduler"]
        for number in range(SCHEDULERS):
            self._commands[f"scheduler {number}"] = COMPONENTS["scheduler"]
        for number in range(WORKERS):
            name = f"celery-worker-{number}"
            options = ["--skip-serve-logs", "--without-mingle", "--without-gossip", "--celery-hostname", f"{name}@%h"]
            pid = str(directory.absolute() / f"{name}.pid")
            self._commands[f"celery worker {number}"] = ["celery", "worker", *options, "--pid", pid]


@contextmanager
def place(home: Path) -> Iterator[Place]:
    """Everything started, and pipelines whose DAGs run from the start."""
    pipelines, dags, temporary = (home / name for name in ("pipelines", "dags", "tmp"))
    for folder in (pipelines, dags, temporary):
        folder.mkdir(parents=True)
    # PostgreSQL runs as another user.
    for folder in (home, temporary):
        folder.chmod(0o711)
    with ExitStack() as stack:
        stack.enter_context(variables({"TMPDIR": str(temporary)}))
        store = stack.enter_context(s3_server(BUCKET))
        stack.enter_context(variables(store.environment))
        cluster = stack.enter_context(spark_cluster(store.environment, SPARK_WORKERS, cores=CORES))
        database = stack.enter_context(postgres_server())
        broker, redis = stack.enter_context(redis_server())
        server = stack.enter_context(log_service(home, LINES))
        for line in LINES:
            write_line(line, pipelines, dags, spark=_SPARK, **_columns(line))
        # A scheduler that stands still within a transaction, with the pools locked, would have the other one wait.
        brief = "idle_in_transaction_session_timeout = '20s'"
        ledger, airflow_url = (new_database(database.url, name, brief) for name in ("ledger", "airflow"))
        spark = make_url(cluster.master)
        told = {
            **QUICK,
            **store.environment,
            "AIRFLOW_CONN_SPARK_DEFAULT": connection("spark", host=f"spark://{spark.host}", port=spark.port),
            "SPARK_CONF_DIR": str(cluster.settings),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": BRIEF,
            "TMPDIR": str(temporary),
        }
        dags_of_lines = (dag for line in LINES for dag in line.dags)
        airflow = partial(CeleryAirflow, database=airflow_url, broker=broker)
        made = stack.enter_context(started(home, LINES, server, ledger, airflow, told, dags_of_lines))
        beside: dict[str, Served] = {"database": database, "broker": redis, "store": store.service}
        yield replace(made, services={**beside, **cluster.services}, habits=DISTURBED)


def _columns(line: Line) -> dict[str, Any]:
    """What a pipeline of upserts has other than the example."""
    if not line.upserts:
        return {}
    described = customers(line.table).model_dump(mode="json")
    return {name: described[name] for name in ("table", "columns", "rest_column")}
