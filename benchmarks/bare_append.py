"""A Spark application that reads fixed ranges, writes base files and commits at once: what exactness is compared with.

`spark-submit bare_append.py ORDER`: no ledger, no owner, no order and manifest on the table, no digest, no lease. Tasks
read, decode and write by the package's own code. The last line is what it took, in JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark import SparkContext

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.planning.windows import split
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.spark.driver.append import AppendTask, each
from airflow_provider_slshudi.spark.driver.key_access import granted, served
from airflow_provider_slshudi.spark.driver.reading import ReadSpec, read_limits
from airflow_provider_slshudi.spark.runtime import leave, quiet
from airflow_provider_slshudi.storage.files import Storage


class Unfenced(Attempt):
    """Asks nobody: a batch without a fence."""

    def require_wanted(self) -> None:
        """Goes on."""


def main(order: str) -> None:
    """Appends what the order names: pipeline, ranges, density."""
    given = json.loads(Path(order).read_text(encoding="utf-8"))
    pipeline = Pipeline.model_validate(given["pipeline"])
    source, table = pipeline.source, pipeline.table
    storage = Storage(table.path)
    with SparkContext.getOrCreate() as spark:
        quiet(spark._jvm)
        gateway = Gateway.of(spark)
        began = time.monotonic()
        if not storage.exists(".hoodie/hoodie.properties"):
            instants.create_table(gateway, pipeline)
        instant = instants.new_instant_time(gateway, storage.uri)
        instants.request(gateway, storage.uri, instant)
        opened = time.monotonic()
        instants.to_inflight(gateway, storage.uri, instant)
        density = {int(shard): Density(size, 0.0) for shard, size in given["density"].items()}
        ranges = [Range(*item) for item in given["ranges"]]
        work = split(ranges, density, spark.defaultParallelism, pipeline.batch.task_bytes)
        with granted(spark, source, served(os.environ)) as access:
            task = AppendTask(
                ReadSpec(access, pipeline.name, RowSpec.of(pipeline), read_limits(source, work)),
                Unfenced(storage, "", instant, 0),
                table.partition.name if table.partition else None,
                pipeline.batch.target_file_bytes,
            )
            results, _ = each(spark, task, work)
        written = time.monotonic()
        commit.commit(gateway, pipeline, instant, [stat for result in results for stat in result.stats[0]], {})
        committed = time.monotonic()
    rows = sum(done.rows for result in results for done in result.ranges)
    took = {"open": opened - began, "write": written - opened, "commit": committed - written}
    print(json.dumps({"instant": instant, "rows": rows, **took}))
    leave(gateway.jvm)


if __name__ == "__main__":
    main(sys.argv[1])
