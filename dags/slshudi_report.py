"""Reports each hour at half past the next one: by the clock, and not before the hour is complete."""

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_slshudi import SlsHudiPartitionSensor
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"

with DAG(
    "ad_impressions_report",
    schedule="30 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    params={"hours_ago": 1},
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:
    hour = SlsHudiPartitionSensor(
        task_id="wait",
        pipeline=PIPELINE,
        time="{{ (dag_run.run_after - macros.timedelta(hours=params.hours_ago)).isoformat() }}",
        mode="reschedule",
    )

    @task
    def report(hour: dict[str, Any]) -> dict[str, int]:
        import pyarrow as pa
        from hudi import HudiReadOptions, HudiTableBuilder

        table = HudiTableBuilder.from_base_uri(pipeline(PIPELINE).table.path).build()
        batches = table.read(HudiReadOptions(filters=[("event_hour", "=", hour["partition"])]))
        countries = pa.Table.from_batches(batches)["country"].to_pylist() if batches else []
        return {country: countries.count(country) for country in sorted({*countries})}

    report(hour.output)
