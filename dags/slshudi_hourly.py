"""Aggregates each hour once it is complete into a second table, and once more after late logs.

Airflow's event only starts the run; what the run does, the consumer says: an event that is lost, doubled or late
changes nothing in the result. An hour's file is replaced as a whole, so that a run that died may begin anew.
"""

from datetime import datetime

from airflow.sdk import DAG, task

from airflow_provider_slshudi import SlsHudiChangesHook, partitions_asset
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"

with DAG(
    "ad_impressions_hourly",
    schedule=[partitions_asset(PIPELINE)],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:

    @task
    def aggregate() -> list[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from hudi import HudiReadOptions, HudiTableBuilder
        from pyarrow.fs import FileSystem

        path = pipeline(PIPELINE).table.path
        table = HudiTableBuilder.from_base_uri(path).build()
        filesystem, folder = FileSystem.from_uri(f"{path}_hourly")
        with SlsHudiChangesHook(PIPELINE, "hourly", of="partitions") as changes:
            hours = [] if changes is None else [item.partition for item in changes.partitions]
            # An hour that was completed twice meanwhile is there twice.
            for hour in sorted({*hours}):
                batches = table.read(HudiReadOptions(filters=[("event_hour", "=", hour)]))
                # An hour without a log has no partition in the table.
                nothing = pa.schema([("country", pa.string()), ("price", pa.float64())]).empty_table()
                rows = pa.Table.from_batches(batches) if batches else nothing
                sums = rows.group_by("country").aggregate([("price", "sum"), ([], "count_all")])
                filesystem.create_dir(f"{folder}/event_hour={hour}")
                file = f"{folder}/event_hour={hour}/part.parquet"
                pq.write_table(sums, f"{file}.new", filesystem=filesystem)
                filesystem.move(f"{file}.new", file)
        return hours

    aggregate()
