"""An incremental upsert with Spark: the newest impression of each user, in a Hudi table of its own.

An upsert that is done twice has the same result, so that nothing more is needed where a run dies before it confirms.
"""

from datetime import datetime
from tempfile import gettempdir
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_slshudi import SlsHudiChangesOperator, SlsHudiConfirmOperator, table_asset
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"

with DAG(
    "ad_impressions_spark",
    schedule=[table_asset(PIPELINE)],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"pipeline": PIPELINE},
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:
    taken = SlsHudiChangesOperator(task_id="take", consumer="spark")

    @task
    def upsert(changes: dict[str, Any]) -> None:
        from pyspark.sql import SparkSession

        from airflow_provider_slshudi.downstream.changes import Changes
        from airflow_provider_slshudi.downstream.queries import where
        from airflow_provider_slshudi.spark.packages import jars

        path = pipeline(PIPELINE).table.path
        # Here within the task; on a cluster this is an application of SparkSubmitOperator.
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", ",".join(map(str, jars())))
            .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
            .config("spark.sql.shuffle.partitions", 2)
            # Spark makes this folder, by default in the working directory.
            .config("spark.sql.warehouse.dir", f"{gettempdir()}/spark-warehouse")
            .getOrCreate()
        )
        rows = session.read.format("hudi").load(path).where(where(Changes.of(changes)))
        # One without a time is not the newest of its user.
        rows = rows.where("event_time IS NOT NULL")
        options = {
            "hoodie.table.name": "ad_impressions_users",
            "hoodie.datasource.write.recordkey.field": "user_id",
            "hoodie.datasource.write.precombine.field": "event_time",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        }
        newest = rows.select("user_id", "event_time", "country")
        newest.write.format("hudi").options(**options).mode("append").save(f"{path}_users")
        session.stop()

    upsert(taken.output) >> SlsHudiConfirmOperator(task_id="confirm", changes=taken.output)
