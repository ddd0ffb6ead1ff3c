"""An Airflow as it comes, pipelines whose tails are triggered, and a DAG that settles them every ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.airflows import SupervisedAirflow
from tests.chaos.place import PROJECT, SPARK, Line, Place, log_service, started
from tests.databases import new_database, postgres_server
from tests.machine import write_pipeline

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
        # In SQLite so many tasks lock one another out.
        airflow = partial(SupervisedAirflow, database=new_database(database.url, "airflow"))
        # Of a worker that dies with a task that is queued LocalExecutor keeps the slot for good.
        variables = {"AIRFLOW__CORE__PARALLELISM": "64", "SLSHUDI_RESIDENT_SECONDS": "60"}
        tails = (line.dags[0] for line in lines)
        with started(home, lines, server, database.url, airflow, variables, (DECIDES, *tails)) as made:
            yield made
