"""An incremental consumer with pandas: each new commit's rows, once, also where a run of this DAG dies or is repeated.

The file is named by the key of what was given, which is the same each time that the same is given: a run that dies
before the block's end is followed by one that replaces its file.
"""

from datetime import datetime

from airflow.sdk import DAG, task

from airflow_provider_slshudi import SlsHudiChangesHook, table_asset
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"

with DAG(
    "ad_impressions_pandas",
    schedule=[table_asset(PIPELINE)],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:

    @task
    def spending_by_user() -> int:
        import pyarrow as pa
        from hudi import HudiReadOptions, HudiTableBuilder
        from pyarrow.fs import FileSystem

        from airflow_provider_slshudi.downstream.queries import expression, partitions

        path = pipeline(PIPELINE).table.path
        filesystem, folder = FileSystem.from_uri(f"{path}_pandas")
        with SlsHudiChangesHook(PIPELINE, "pandas") as changes:
            if changes is None:
                return 0
            table = HudiTableBuilder.from_base_uri(path).build()
            # Partitions are left out by their names where all are known; the rows of these commits have their instants.
            column, hours = partitions(changes) or ("", [])
            span = [(column, ">=", hours[0]), (column, "<=", hours[-1])] if hours else []
            rows = pa.Table.from_batches(table.read(HudiReadOptions(filters=span))).filter(expression(changes))
            frame = rows.to_pandas().groupby("user_id", as_index=False)["price"].sum()
            filesystem.create_dir(folder)
            with filesystem.open_output_stream(f"{folder}/{changes.key.rpartition('/')[2]}.parquet") as file:
                frame.to_parquet(file)
            return rows.num_rows

    spending_by_user()
