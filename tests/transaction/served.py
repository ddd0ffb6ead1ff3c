"""A pipeline whose table services have something to do after a few batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_slshudi.hudi import properties
from tests.pipelines import served_often
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def served(make: Callable[..., Scenario]) -> Scenario:
    """A scenario of one shard."""
    made = make(shards=1)
    often = served_often(made.work.pipeline.table.path, source=made.work.pipeline.source.model_dump())
    return replace(made, work=replace(made.work, pipeline=often))


def batches(pipeline: Scenario, count: int, first: int = 0) -> int:
    """So many batches of ten logs from a number on; gives the next log's number."""
    for number in range(first, first + 10 * count, 10):
        pipeline.put(10, first=number)
        assert pipeline.batch(f"run-{number}").rows == 10
    return first + 10 * count


def cluster(spark: SparkSession, pipeline: Scenario) -> None:
    """Has Hudi rewrite all small files, which replaces them."""
    # Hudi 1.2.0 goes by its newest version otherwise, and leaves a metadata table of version 6 as it was.
    told = (properties.read(pipeline.work.storage) or {})[properties.VERSION]
    options = f"hoodie.write.auto.upgrade=false,hoodie.write.table.version={told}"
    path = pipeline.work.storage.full("")
    spark.sql(f"call run_clustering(path => '{path}', options => '{options}')").collect()
