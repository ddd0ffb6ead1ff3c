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
        import pyarrow.compute as pc
        from hudi import HudiReadOptions, HudiTableBuilder

        path = pipeline(PIPELINE).table.path
        hours = [name.partition("=")[2] for item in changes["commits"] for name in item["partitions"] or ()]
        span = [("event_hour", ">=", min(hours)), ("event_hour", "<=", max(hours))]
        batches = HudiTableBuilder.from_base_uri(path).build().read(HudiReadOptions(filters=span))
        instants = [item["instant"] for item in changes["commits"]]
        rows = pa.Table.from_batches(batches).filter(pc.field("_hoodie_commit_time").isin(instants))
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
