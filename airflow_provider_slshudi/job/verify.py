"""Reads shard and cursor back from the row keys and counts them against the coverage, by Spark, in parallel."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.hudi.gateway import hadoop_path
from airflow_provider_slshudi.hudi.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOLDER = ".hoodie/slshudi/verify"


@dataclass(frozen=True)
class ShardCount:
    """One shard's rows in the table: all, distinct row keys, and rows outside the coverage."""

    shard: int
    rows: int
    distinct: int
    foreign: int


@dataclass(frozen=True)
class TableCount:
    """All shards, and rows whose key names no shard and cursor."""

    shards: list[ShardCount]
    unreadable: int


def leave_coverage(storage: Storage, id_: str, coverage: list[tuple[int, int, int]]) -> None:
    """What a verification compares with: (shard, begin, end)."""
    storage.write(f"{_FOLDER}/{id_}-coverage.json", json.dumps(coverage).encode())


def take_counts(storage: Storage, id_: str) -> TableCount | None:
    """What a verification found; its files are removed."""
    content = storage.read(f"{_FOLDER}/{id_}-counts.json")
    storage.delete_folder(_FOLDER)
    if content is None:
        return None
    data = json.loads(content)
    return TableCount([ShardCount(**shard) for shard in data["shards"]], data["unreadable"])


def verify(spark: SparkSession, pipeline: Pipeline, storage: Storage, id_: str) -> None:
    """Counts the table's rows and leaves the counts."""
    coverage = [tuple(item) for item in json.loads(storage.read(f"{_FOLDER}/{id_}-coverage.json") or b"[]")]
    keys = spark.read.format("hudi").load(hadoop_path(pipeline.table.path)).select("_hoodie_record_key")
    covered = spark.createDataFrame(coverage, "covered_shard int, begin_cursor bigint, end_cursor bigint")
    counts = count(keys, covered)
    storage.write(f"{_FOLDER}/{id_}-counts.json", json.dumps(asdict(counts)).encode())


def count(keys: DataFrame, covered: DataFrame) -> TableCount:
    """The counts of a table's row keys, given the covered ranges."""
    from pyspark.sql import functions as f

    key = f.col("_hoodie_record_key")
    parts = f.split(key, "-")
    readable = key.rlike(r"^\d+-\d+-\d+$")
    rows = keys.select(
        key.alias("key"),
        f.when(readable, parts[0].cast("int")).alias("shard"),
        f.when(readable, parts[1].cast("bigint")).alias("cursor"),
    )
    # A row is grouped with its doubles first, so that the count of distinct keys needs no second pass.
    distinct = rows.groupBy("key", "shard", "cursor").agg(f.count("*").alias("copies"))
    inside = (
        (f.col("shard") == f.col("covered_shard"))
        & (f.col("cursor") >= f.col("begin_cursor"))
        & (f.col("cursor") < f.col("end_cursor"))
    )
    placed = distinct.join(f.broadcast(covered), inside, "left")
    found = placed.groupBy("shard").agg(
        f.sum("copies").alias("rows"),
        f.count("*").alias("distinct"),
        f.sum(f.when(f.col("covered_shard").isNull(), f.col("copies")).otherwise(0)).alias("foreign"),
    )
    shards, unreadable = [], 0
    for row in found.collect():
        if row["shard"] is None:
            unreadable += row["rows"]
        else:
            shards.append(ShardCount(row["shard"], row["rows"], row["distinct"], row["foreign"]))
    return TableCount(sorted(shards, key=lambda item: item.shard), unreadable)
