"""Reads shard, cursor and index back from the row keys and joins them with ranges and log groups, all within Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.notes.verification import Findings, Outside, RangeFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# No leading zeros: two texts of one key would look like a doubled row.
_KEY = r"^(0|[1-9]\d{0,8})-(0|[1-9]\d{0,18})-(0|[1-9]\d{0,8})$"


def compare(
    spark: SparkSession,
    table: DataFrame,
    ranges: Sequence[tuple[int, int, int, str]],
    late: Sequence[str],
    groups: DataFrame | None = None,
    aside: DataFrame | None = None,
    replays: Sequence[str] = (),
    erased: DataFrame | None = None,
) -> Findings:
    """Counts the table's rows per range, and those outside all ranges.

    A row that was erased and is there counts as doubled. What others had written before it was erased does not count.

    Args:
        spark: the session.
        table: the table's snapshot.
        ranges: disjoint, each (shard, begin, end, instant).
        late: instants whose rows are left out.
        groups: the service's log groups: `number` of the range, `shard`, `cursor`, `logs`.
        aside: the quarantine's snapshot, if there is one: its rows count as the table's do.
        replays: instants whose rows count as the own rows of whichever range they are in.
        erased: rows that accepted erasures took (`key`, `written`, `aside`); they count as if they were there.
    """
    from pyspark.sql import functions as f

    rows = _rows(table, False) if aside is None else _rows(table, False).union(_rows(aside, True))
    rows = rows.withColumn("erased", f.lit(False))
    if erased is not None:
        rows = rows.union(erased.select("key", "written", "aside", f.lit(True)))
    keys = _distinct_keys(_placed(_parsed(rows, late), _buckets(spark, ranges), _width(ranges), replays))
    found, outside = [], []
    for row in _by_range(_with_groups(keys, groups)).collect():
        if row["number"] is None:
            outside.append(Outside(row["shard"], row["rows"], row["key"]))
        else:
            found.append(RangeFound(**{item.name: row[item.name] for item in fields(RangeFound)}))
    return Findings(
        sorted(found, key=lambda item: item.number),
        sorted(outside, key=lambda item: -1 if item.shard is None else item.shard),
    )


def _rows(table: DataFrame, aside: bool) -> DataFrame:
    """`key`, `written` (the row's instant) and `aside`, whether it is in the quarantine."""
    from pyspark.sql import functions as f

    return table.select(
        f.col(RECORD_KEY).alias("key"), f.col("_hoodie_commit_time").alias("written"), f.lit(aside).alias("aside")
    )


def _parsed(rows: DataFrame, late: Sequence[str]) -> DataFrame:
    """`rows` with `shard`, `cursor`, `index`: all NULL if the key is not one of ours."""
    from pyspark.sql import functions as f

    if late:
        rows = rows.where(~f.coalesce(f.col("written").isin(list(late)), f.lit(False)))
    parts = f.when(f.col("key").rlike(_KEY), f.split("key", "-"))
    split = rows.withColumn("parts", parts)
    # Nineteen digits may exceed a bigint.
    cursor = f.expr("try_cast(parts[1] as bigint)")
    readable = split.withColumn("cursor", cursor)
    known = f.col("cursor").isNotNull()
    return readable.select(
        "key",
        "written",
        "aside",
        "erased",
        f.when(known, f.col("parts")[0].cast("int")).alias("shard"),
        "cursor",
        f.when(known, f.col("parts")[2].cast("int")).alias("index"),
    )


def _width(ranges: Sequence[tuple[int, int, int, str]]) -> int:
    return max(1, sum(end - begin for _, begin, end, _ in ranges) // max(1, len(ranges)))


def _buckets(spark: SparkSession, ranges: Sequence[tuple[int, int, int, str]]) -> DataFrame:
    """One row per range and bucket of cursors that it touches: a join on shard and bucket tries few ranges for a row.

    A bucket is as wide as the mean range, so there are at most about twice as many rows as ranges.
    """
    from pyspark.sql import functions as f

    rows = [(number, *item) for number, item in enumerate(ranges)]
    schema = "number int, of_shard int, begin_cursor bigint, end_cursor bigint, instant string"
    width = _width(ranges)
    touched = f.expr(f"explode(sequence(begin_cursor div {width}, (end_cursor - 1) div {width}))")
    return spark.createDataFrame(rows, schema).withColumn("bucket", touched)


def _placed(rows: DataFrame, buckets: DataFrame, width: int, replays: Sequence[str]) -> DataFrame:
    """The number of each row's range, NULL outside all ranges, and whether the range's own instant wrote the row.

    A row that a replay put into the table counts as the range's own.
    """
    from pyspark.sql import functions as f

    inside = (
        (f.col("shard") == f.col("of_shard"))
        & (f.expr(f"cursor div {width}") == f.col("bucket"))
        & (f.col("cursor") >= f.col("begin_cursor"))
        & (f.col("cursor") < f.col("end_cursor"))
    )
    placed = rows.join(f.broadcast(buckets), inside, "left")
    own = f.col("written") == f.col("instant")
    if replays:
        own |= f.col("number").isNotNull() & ~f.col("aside") & f.col("written").isin(list(replays))
    own = f.coalesce(own, f.lit(False))
    return placed.where(own | ~f.col("erased")).select(
        "number",
        "shard",
        "cursor",
        "index",
        f.when(f.col("number").isNull(), f.col("key")).alias("key"),
        own.alias("own"),
        "aside",
        "erased",
    )


def _distinct_keys(rows: DataFrame) -> DataFrame:
    """One row per key, with its copies; partitioned by log group, as all later groupings and joins are."""
    from pyspark.sql import functions as f

    return (
        rows.repartition("shard", "cursor")
        .groupBy("number", "shard", "cursor", "index")
        .agg(
            f.count("*").alias("copies"),
            _count(f.col("aside") & ~f.col("erased")).alias("aside"),
            _count(f.col("erased")).alias("erased"),
            f.max("own").alias("own"),
            f.min("key").alias("key"),
        )
    )


def _with_groups(keys: DataFrame, groups: DataFrame | None) -> DataFrame:
    """The keys joined with the service's log groups; a group without rows has no index."""
    from pyspark.sql import functions as f

    if groups is None:
        return keys.withColumn("logs", f.lit(None).cast("int"))
    held = groups.withColumnRenamed("number", "held_in").repartition("shard", "cursor")
    joined = keys.join(held, ["shard", "cursor"], "full_outer")
    return joined.withColumn("number", f.coalesce("number", "held_in")).drop("held_in")


def _by_range(keys: DataFrame) -> DataFrame:
    """The figures of each range, counted cursor by cursor; outside all ranges, the figures of each shard."""
    from pyspark.sql import functions as f

    wrong = (f.col("copies") > 1) | ~f.col("own")
    named = f.concat_ws("-", "shard", "cursor", "index")
    by_group = keys.groupBy("number", "shard", "cursor").agg(
        f.sum(f.coalesce(f.col("copies") - f.col("erased"), f.lit(0))).alias("rows"),
        f.sum(f.coalesce("aside", f.lit(0))).alias("quarantined"),
        f.sum(f.coalesce("erased", f.lit(0))).alias("erased"),
        f.count("index").alias("distinct"),
        _count(f.col("own")).alias("own"),
        f.min("key").alias("key"),
        f.min(f.when(wrong, named)).alias("example"),
        f.max("logs").alias("logs"),
        _count(f.col("index") < f.col("logs")).alias("known"),
        _count(f.col("index") >= f.col("logs")).alias("strange"),
    )
    lacking = f.coalesce(f.col("logs") - f.col("known"), f.lit(0))
    return by_group.groupBy("number", f.when(f.col("number").isNull(), f.col("shard")).alias("shard")).agg(
        f.sum("rows").alias("rows"),
        f.sum("quarantined").alias("quarantined"),
        f.sum("erased").alias("erased"),
        f.sum("distinct").alias("distinct"),
        f.sum("own").alias("own"),
        f.min("key").alias("key"),
        f.min("example").alias("example"),
        f.count("logs").alias("groups"),
        f.coalesce(f.sum("logs"), f.lit(0)).alias("logs"),
        f.sum(lacking).alias("lacking"),
        f.sum("strange").alias("strange"),
        f.min(f.when(lacking > 0, f.col("cursor"))).alias("lacking_at"),
        f.min(f.when(f.col("strange") > 0, f.col("cursor"))).alias("strange_at"),
    )


def _count(condition: Any) -> Any:
    from pyspark.sql import functions as f

    return f.sum(f.when(condition, 1).otherwise(0))
