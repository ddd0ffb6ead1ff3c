"""A consumer with DuckDB in three tasks: what is new is taken, loaded, and confirmed.

The database keeps the key of what it has, in the same transaction as the rows: a run that dies between its load and its
confirmation is given the same again, and loads nothing twice.
"""

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_slshudi import (
    SlsHudiChangesOperator,
    SlsHudiChangesSensor,
    SlsHudiConfirmOperator,
)
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"

with DAG(
    "ad_impressions_duckdb",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"pipeline": PIPELINE, "retries": 2},
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:
    new = SlsHudiChangesSensor(task_id="new", consumer="duckdb", timeout=240, soft_fail=True)
    taken = SlsHudiChangesOperator(task_id="take", consumer="duckdb", most=20)

    @task
    def load(changes: dict[str, Any]) -> None:
        import duckdb
        import pyarrow as pa
        from hudi import HudiReadOptions, HudiTableBuilder

        from airflow_provider_slshudi.downstream.changes import Changes
        from airflow_provider_slshudi.downstream.queries import expression, partitions

        path, given = pipeline(PIPELINE).table.path, Changes.of(changes)
        column, hours = partitions(given) or ("", [])
        span = [(column, ">=", hours[0]), (column, "<=", hours[-1])] if hours else []
        batches = HudiTableBuilder.from_base_uri(path).build().read(HudiReadOptions(filters=span))
        rows = pa.Table.from_batches(batches).filter(expression(given))
        with duckdb.connect(f"{path.removeprefix('file://')}.duckdb") as database:
            database.execute("CREATE TABLE IF NOT EXISTS loaded (key TEXT PRIMARY KEY)")
            database.execute("CREATE TABLE IF NOT EXISTS impressions (event_id TEXT, country TEXT, price DOUBLE)")
            database.begin()
            if not database.execute("SELECT 1 FROM loaded WHERE key = ?", [changes["key"]]).fetchone():
                database.register("new_rows", rows)
                database.execute("INSERT INTO impressions SELECT event_id, country, price FROM new_rows")
                database.execute("INSERT INTO loaded VALUES (?)", [changes["key"]])
            database.commit()

    loaded = load(taken.output)
    new >> taken
    loaded >> SlsHudiConfirmOperator(task_id="confirm", changes=taken.output)
