"""An Airflow as it comes, pipelines whose tails are triggered, and a DAG that settles them every ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from tests.airflows import SupervisedAirflow
from tests.chaos.place import PROJECT, SPARK, Line, Place, log_service
from tests.databases import postgres_server
from tests.machine import connection, environment, write_pipeline

DECIDES = "decides"
_TAIL = """from airflow_provider_slshudi import tail_dag

tail = tail_dag("{name}", schedule=None, is_paused_upon_creation=False, max_active_runs=16)
"""
# The first task of a pipeline's next run, for all of them in one process.
_DECIDES = """from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task


@dag(dag_id="{dag}", schedule=timedelta(seconds=10), max_active_runs=3, catchup=False, is_paused_upon_creation=True)
def made():
    @task
    def settle():
        from airflow_provider_slshudi.sensors.settle import SlsHudiSettleSensor

        context = get_current_context()

        def look(name):
            SlsHudiSettleSensor(task_id=name, pipeline=name).poke(context)

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(look, {names})]

    settle()


made()
"""


class _Airflow(SupervisedAirflow):
    """Its database is a PostgreSQL, of which the address is in the environment: in SQLite so many tasks lock one
    another out."""

    def _make_database(self) -> None:
        migrated = self._run("db-migrate", ["db", "migrate"])
        if migrated.wait():
            raise RuntimeMissing(f"Airflow's database could not be made: {self._last_words('db-migrate')}")


@contextmanager
def place(home: Path, count: int) -> Iterator[Place]:
    """Everything started, with so many pipelines; nothing is decided until the DAG `DECIDES` is unpaused."""
    pipelines, dags = home / "pipelines", home / "dags"
    lines = [Line(f"line_{number}", f"file://{home}/lake/line_{number}") for number in range(count)]
    for folder in (pipelines, dags):
        folder.mkdir(parents=True)
    with log_service(home, lines) as server, postgres_server() as database:
        for line in lines:
            source = {"project": PROJECT, "logstore": line.name, "start": "begin", "on_expired": "fail"}
            described = {"name": line.name, "source": source, "spark": SPARK}
            write_pipeline(pipelines / f"{line.name}.yaml", line.table, **described)
            (dags / f"{line.name}.py").write_text(_TAIL.format(name=line.name), encoding="utf-8")
        decides = _DECIDES.format(dag=DECIDES, names=[line.name for line in lines])
        (dags / f"{DECIDES}.py").write_text(decides, encoding="utf-8")
        url = make_url(database.url)
        _make(database.url, "airflow")
        engine = open_engine(database.url)
        migrate(engine)
        at = {"host": url.host, "port": url.port, "schema": url.database, "login": url.username}
        of_airflow = url.set(database="airflow").render_as_string(hide_password=False)
        variables = {
            **environment(pipelines, home, server),
            "AIRFLOW_CONN_SLSHUDI_LEDGER": connection("slshudi_ledger", **at, extra={"dialect": "postgresql"}),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": of_airflow,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": of_airflow,
            # Of a worker that dies with a task that is queued LocalExecutor keeps the slot for good.
            "AIRFLOW__CORE__PARALLELISM": "64",
            "SLSHUDI_RESIDENT_SECONDS": "60",
            "TMPDIR": str(home),
        }
        with _Airflow(home / "airflow", dags, variables) as airflow:
            for dag in (DECIDES, *(line.dags[0] for line in lines)):
                airflow.wait_for_dag(dag, 240)
            yield Place(home, server, airflow, Ledger(engine), lines)
        engine.dispose()


def _make(server: str, database: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as session:
        session.execute(text(f"CREATE DATABASE {database}"))
    engine.dispose()
