"""The training run of the class-data archive: makes a small table, rolls one instant back, commits another.

`spark-submit warmup.py TABLE`, where TABLE is a directory that does not exist yet and is thrown away afterwards. Its
one purpose is that the JVM loads the classes that short jobs will load, by the same calls.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark import SparkContext

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway, driver_jvm
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.spark.runtime import leave, quiet
from airflow_provider_slshudi.storage.files import Storage


def main(table: str) -> None:
    """Makes the table and takes it through one rollback and one commit."""
    part = {"by": "field", "column": "part"}
    pipeline = Pipeline.model_validate(
        {
            "name": "warmup",
            "source": {"project": "none", "logstore": "none"},
            "table": {"path": f"file://{table}", "name": "warmup", "partition": part},
            "columns": [
                {"name": "at", "type": "timestamp", "format": "seconds"},
                {"name": "count", "type": "bigint"},
                {"name": "part"},
            ],
        }
    )
    storage = Storage(pipeline.table.path)
    driver_jvm()
    spark = SparkContext.getOrCreate()
    quiet(spark._jvm)
    gateway = Gateway.of(spark)
    instants.create_table(gateway, pipeline)
    instants.check_table(gateway, pipeline)
    for keep in (False, True):
        instant = instants.new_instant_time(gateway, storage.uri)
        instants.request(gateway, storage.uri, instant)
        instants.to_inflight(gateway, storage.uri, instant)
        stats = _write(storage, instant)
        if keep:
            commit.commit(gateway, pipeline, instant, stats, {"warmup": "1"})
        else:
            commit.roll_back(gateway, pipeline, instant)
    spark.stop()
    leave(spark._jvm)


def _write(storage: Storage, instant: str) -> list[dict[str, object]]:
    parts = pa.array(["a"])
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "count": pa.array([1], pa.int64()), "part": parts})
    writer = BaseFileWriter(storage, instant, "0-0-0", 1 << 20, still_wanted=lambda: None)
    writer.write(rows, pa.array(["0-0-0"]), "part", parts.dictionary_encode())
    return writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
