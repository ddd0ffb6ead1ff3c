"""What several machines would have: two schedulers, a broker, workers, a database, a Spark cluster, an object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.transaction.context import LEASE_SECONDS
from tests.chaos.place import HABITS, QUICK, Habits, Line, Place, Served, change, log_service, write_line
from tests.databases import postgres_server
from tests.machine import connection, environment, variables
from tests.pipelines import customers
from tests.services import BRIEF, redis_server, s3_server, spark_cluster
from tests.topology.airflow import CeleryAirflow

BUCKET = "lake"
LINES = [
    Line("appends_a", f"s3a://{BUCKET}/appends_a"),
    Line("appends_b", f"s3a://{BUCKET}/appends_b"),
    Line("upserts", f"s3a://{BUCKET}/upserts", change),
]
SPARK_WORKERS, CORES = 2, 3
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
        ledger, airflow_url = (_new_database(database.url, name) for name in ("ledger", "airflow"))
        engine = open_engine(ledger)
        stack.callback(engine.dispose)
        migrate(engine)
        url, spark = make_url(ledger), make_url(cluster.master)
        at = {"host": url.host, "port": url.port, "schema": url.database, "login": url.username}
        told = {
            **environment(pipelines, home, server),
            **QUICK,
            **store.environment,
            "AIRFLOW_CONN_SLSHUDI_LEDGER": connection("slshudi_ledger", **at, extra={"dialect": "postgresql"}),
            "AIRFLOW_CONN_SPARK_DEFAULT": connection("spark", host=f"spark://{spark.host}", port=spark.port),
            "SPARK_CONF_DIR": str(cluster.settings),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": BRIEF,
        }
        airflow = stack.enter_context(CeleryAirflow(home / "airflow", dags, airflow_url, broker, told))
        for line in LINES:
            for dag in line.dags:
                airflow.wait_for_dag(dag)
        beside: dict[str, Served] = {"database": database, "broker": redis, "store": store.service}
        yield Place(home, server, airflow, Ledger(engine), LINES, {**beside, **cluster.services}, DISTURBED)


def _columns(line: Line) -> dict[str, Any]:
    """What a pipeline of upserts has other than the example."""
    if not line.upserts:
        return {}
    described = customers(line.table).model_dump(mode="json")
    return {name: described[name] for name in ("table", "columns", "rest_column")}


def _new_database(server: str, name: str) -> str:
    """The URL of a database made on a server.

    A scheduler that stands still within a transaction, with the pools locked, would have the other one wait.
    """
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as session:
        session.execute(text(f"CREATE DATABASE {name}"))
        session.execute(text(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '20s'"))
    engine.dispose()
    return make_url(server).set(database=name).render_as_string(hide_password=False)
