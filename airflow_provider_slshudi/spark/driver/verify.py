"""Verification in a driver: the table's rows beside the ledger's counts, and the service's logs counted again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import DataExpired
from airflow_provider_slshudi.handover import erasures, verification_report
from airflow_provider_slshudi.handover.batch_files import QUARANTINE
from airflow_provider_slshudi.handover.verification_report import Findings, Outside, Question, RangeFound
from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.planning.windows import split
from airflow_provider_slshudi.shaping.conditions import LEFT_OUT, Sorting, restored
from airflow_provider_slshudi.sls.answers import Pull
from airflow_provider_slshudi.sls.pace import Limits, Pacer
from airflow_provider_slshudi.sls.pieces import count_logs, decoded
from airflow_provider_slshudi.sls.reader import Reader
from airflow_provider_slshudi.spark.driver.key_access import Access
from airflow_provider_slshudi.spark.driver.reading import read_limits
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NOT_LOOKED_AT = 254
"""Stands for the table of a route that is not in the pipeline's file any more."""
# The number of the table of a key's log.
_BYTE = "cast(conv(hex(substring(tables, cast(index as int) + 1, 1)), 16, 10) as int)"
_IS_RIGHT = f"aside > 0 or table is null or table = coalesce({_BYTE}, 0)"
_IS_KEPT = f"coalesce({_BYTE}, 0) <> {LEFT_OUT} and ({_IS_RIGHT})"
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
    routes: Sequence[tuple[int, DataFrame]] = (),
) -> Findings:
    """Counts the table's rows per range, and those outside all ranges.

    A row that was erased and is there counts as doubled. What others had written before it was erased does not count.

    Args:
        spark: the session.
        table: the table's snapshot.
        ranges: disjoint, each (shard, begin, end, instant).
        late: instants whose rows are left out.
        groups: the service's log groups: `number` of the range, `shard`, `cursor`, `logs`, and `tables`: a byte for
            each log with the number of its table, LEFT_OUT where it is to have no row; NULL where all are the main
            table's.
        aside: the quarantine's snapshot, if there is one: its rows count as the table's do.
        replays: instants whose rows count as the own rows of whichever range they are in.
        erased: rows that accepted erasures took (`key`, `written`, `aside`); they count as if they were there.
        routes: the snapshots of the routes' tables, each with its number, which count from 1.
    """
    from pyspark.sql import functions as f

    rows = _rows(table, 0)
    for number, snapshot in [*routes, *([(None, aside)] if aside is not None else [])]:
        rows = rows.union(_rows(snapshot, number))
    rows = rows.withColumn("erased", f.lit(False))
    if erased is not None:
        rows = rows.union(erased.select("key", "written", "aside", f.lit(None).cast("int"), f.lit(True)))
    keys = _distinct_keys(_placed(_parsed(rows, late), _buckets(spark, ranges), _width(ranges), replays))
    counts, outside = [], []
    for row in _by_range(_with_groups(keys, groups)).collect():
        if row["number"] is None:
            outside.append(Outside(row["shard"], row["rows"], row["key"]))
        else:
            counts.append(RangeFound(**{item.name: row[item.name] for item in fields(RangeFound)}))
    return Findings(
        sorted(counts, key=lambda item: item.number),
        sorted(outside, key=lambda item: -1 if item.shard is None else item.shard),
    )


def _rows(table: DataFrame, number: int | None) -> DataFrame:
    """`key`, `written` (the row's instant), `aside`, whether it is in the quarantine, and the table's number if not."""
    from pyspark.sql import functions as f

    return table.select(
        f.col(RECORD_KEY).alias("key"),
        f.col("_hoodie_commit_time").alias("written"),
        f.lit(number is None).alias("aside"),
        f.lit(number).cast("int").alias("table"),
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
    ours = f.col("cursor").isNotNull()
    return readable.select(
        "key",
        "written",
        "aside",
        "table",
        "erased",
        f.when(ours, f.col("parts")[0].cast("int")).alias("shard"),
        "cursor",
        f.when(ours, f.col("parts")[2].cast("int")).alias("index"),
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
    own, table = f.col("written") == f.col("instant"), f.col("table")
    if replays:
        replayed = f.col("written").isin(list(replays))
        own |= f.col("number").isNotNull() & ~f.col("aside") & replayed
        # Its routes were those of the file at that time.
        table = f.when(~replayed, table)
    own = f.coalesce(own, f.lit(False))
    return placed.where(own | ~f.col("erased")).select(
        "number",
        "shard",
        "cursor",
        "index",
        f.when(f.col("number").isNull(), f.col("key")).alias("key"),
        own.alias("own"),
        "aside",
        table.alias("table"),
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
            f.min("table").alias("table"),
            f.min("key").alias("key"),
        )
    )


def _with_groups(keys: DataFrame, groups: DataFrame | None) -> DataFrame:
    """The keys joined with the service's log groups; a group without rows has no index."""
    from pyspark.sql import functions as f

    if groups is None:
        return keys.selectExpr("*", "cast(null as int) as logs", "cast(null as int) as wanted", "true as is_kept")
    held = groups.withColumnRenamed("number", "held_in").repartition("shard", "cursor")
    joined = keys.join(held, ["shard", "cursor"], "full_outer")
    numbered = joined.withColumn("number", f.coalesce("number", "held_in")).drop("held_in")
    return numbered.withColumn("is_kept", f.expr(_IS_KEPT)).drop("tables")


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
        f.max("wanted").alias("wanted"),
        _count((f.col("index") < f.col("logs")) & f.col("is_kept")).alias("known"),
        _count((f.col("index") >= f.col("logs")) | ~f.col("is_kept")).alias("strange"),
    )
    lacking = f.coalesce(f.col("wanted") - f.col("known"), f.lit(0))
    return by_group.groupBy("number", f.when(f.col("number").isNull(), f.col("shard")).alias("shard")).agg(
        f.sum("rows").alias("rows"),
        f.sum("quarantined").alias("quarantined"),
        f.sum("erased").alias("erased"),
        f.sum("distinct").alias("distinct"),
        f.sum("own").alias("own"),
        f.min("key").alias("key"),
        f.min("example").alias("example"),
        f.count("logs").alias("groups"),
        f.coalesce(f.sum("wanted"), f.lit(0)).alias("logs"),
        f.coalesce(f.sum(f.col("logs") - f.col("wanted")), f.lit(0)).alias("filtered"),
        f.sum(lacking).alias("lacking"),
        f.sum("strange").alias("strange"),
        f.min(f.when(lacking > 0, f.col("cursor"))).alias("lacking_at"),
        f.min(f.when(f.col("strange") > 0, f.col("cursor"))).alias("strange_at"),
    )


def _count(condition: Any) -> Any:
    from pyspark.sql import functions as f

    return f.sum(f.when(condition, 1).otherwise(0))


Group = tuple[int, int, int, int, int, bytes | None]
_SCHEMA = "number int, shard int, cursor bigint, logs int, wanted int, tables binary"


@dataclass(frozen=True)
class RecountTask:
    """The work of every task but for its ranges; travels to the executors, without credentials."""

    access: Access
    pipeline: str
    limits: Mapping[int, Limits]
    conditions: Mapping[int, Sorted]

    def __call__(self, parts: Iterable[list[tuple[int, Range]]]) -> Iterator[Group]:
        """The log groups as `_SCHEMA` says; skips groups that the service has dropped."""
        service = self.access()
        for part in parts:
            paces = {item.shard: Pacer(self.limits[item.shard]) for _, item in part}
            for number, item in part:
                yield from self._groups(number, item, Reader(service, self.pipeline, paces[item.shard]))

    def _groups(self, number: int, item: Range, reader: Reader) -> Iterator[Group]:
        begin = item.begin
        while begin < item.end:
            try:
                for pull in reader.pulls(Range(item.shard, begin, item.end)):
                    counts = count_logs(pull)
                    tables_by_group = _tables(pull, counts, self.conditions.get(number))
                    for place, logs in enumerate(counts):
                        tables = tables_by_group[place]
                        expected = logs if tables is None else logs - tables.count(LEFT_OUT)
                        yield number, item.shard, pull.begin + place, logs, expected, tables
                    begin = pull.next
            except DataExpired as gone:
                begin = gone.end


@dataclass(frozen=True)
class Sorted:
    """How a batch sorted its logs, and the numbers that its routes' tables have in this verification."""

    sorting: Sorting
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, described: Mapping[str, Any], routes: Sequence[str]) -> Sorted:
        """As `shaping.conditions.described` tells it; `routes` are the names of those whose tables are looked at."""
        numbers = {name: number for number, name in enumerate(routes, 1)}
        names = [name for name, _ in described.get("routes", ())]
        return cls(restored(described), (0, *(numbers.get(name, _NOT_LOOKED_AT) for name in names)))


def _tables(pull: Pull, counts: Sequence[int], batch: Sorted | None) -> list[bytes | None]:
    """For each log group the numbers of its logs' tables, None where all are the main table's."""
    if batch is None:
        return [None] * len(counts)
    tables = [np.zeros(logs, np.uint8) for logs in counts]
    by_own = np.full(256, LEFT_OUT, np.uint8)
    by_own[: len(batch.numbers)] = batch.numbers
    for _, logs in decoded(pull, batch.sorting.keys):
        numbers = by_own[batch.sorting.tables(logs)]
        elsewhere = np.nonzero(numbers)[0]
        others = logs.take(pa.array(elsewhere))
        places = zip(others["__cursor__"].to_pylist(), others["__index__"].to_pylist(), elsewhere, strict=True)
        for cursor, index, place in places:
            tables[cursor - pull.begin][index] = numbers[place]
    return [numbers.tobytes() if numbers.any() else None for numbers in tables]


def recount(
    spark: SparkSession,
    access: Access,
    pipeline: Pipeline,
    wanted: Sequence[tuple[int, Range]],
    density: Mapping[int, Density],
    conditions: Mapping[int, Sorted],
) -> DataFrame:
    """The log groups of numbered disjoint ranges as the service holds them, see `compare`; `wanted` logs have a row.

    Args:
        spark: the driver's session.
        access: how executors reach the log service.
        pipeline: names the logstore.
        wanted: ranges with their numbers.
        density: each shard's recent bytes and rows per log group.
        conditions: by a range's number, how its logs were left out or sorted.

    Raises:
        SourceError: a task raised it; Spark wraps it once the task has failed for good.
    """
    context = spark.sparkContext
    numbered = sorted((item, number) for number, item in wanted)
    ordered = [item for item, _ in numbered]
    work = split(ordered, density, context.defaultParallelism, pipeline.batch.task_bytes) if ordered else []
    parts = []
    for part in work:
        places = [bisect_right(ordered, (item.shard, item.begin), key=lambda at: (at.shard, at.begin)) for item in part]
        parts.append([(numbered[place - 1][1], item) for place, item in zip(places, part, strict=True)])
    task = RecountTask(access, pipeline.name, read_limits(pipeline.source, work), conditions)
    rows = context.parallelize(parts, max(1, len(parts))).mapPartitions(task)
    return spark.createDataFrame(rows, _SCHEMA)


def verify(
    spark: SparkSession,
    pipeline: Pipeline,
    storage: Storage,
    id_: str,
    question: Question,
    access: Access | None,
) -> None:
    """Compares the table with the question's ranges, and leaves the answer.

    Args:
        spark: the session.
        pipeline: the table's pipeline.
        storage: the table's.
        id_: the verification's id, which names the answer.
        question: the question.
        access: how tasks get the log service's credentials; None where the question does not ask the service.
    """
    # First: then the snapshots lack all that these erasures took.
    erased = _erased(spark, storage)
    # The quarantine first: then the main table has completed every instant that the quarantine's snapshot holds.
    aside = None if question.quarantine is None else spark.read.format("hudi").load(hadoop_path(question.quarantine))
    names = list(dict.fromkeys(name for name, _ in question.routes))
    routes = [
        (1 + names.index(name), spark.read.format("hudi").load(hadoop_path(path))) for name, path in question.routes
    ]
    table = spark.read.format("hudi").load(hadoop_path(pipeline.table.path))
    # The timeline is read once the table's snapshot is fixed: so it has every later commit that the snapshot may hold.
    late = [item.time for item in Timeline.load(storage) if (item.completion or "") > question.as_of]
    groups = None
    if question.source is not None and access is not None:
        spans = [(number, Range(question.ranges[number][0], begin, end)) for number, begin, end in question.source]
        density = {int(shard): Density(size, 0.0) for shard, size in question.density.items()}
        filters = [Sorted.of(described, names) for described in question.filters]
        conditions = {int(number): filters[place] for number, place in question.filter_of.items()}
        groups = recount(spark, access, pipeline, spans, density, conditions)
    late += question.undecided
    findings = compare(spark, table, question.ranges, late, groups, aside, question.replays, erased, routes)
    verification_report.answer(storage, id_, findings)


def _erased(spark: SparkSession, storage: Storage) -> DataFrame | None:
    """The rows that accepted erasures took, and whether each was in the quarantine; None where there are none."""
    from pyspark.sql import functions as f

    parts = [
        spark.read.parquet(*(hadoop_path(f"{storage.uri}/{path}") for path in paths)).withColumn("aside", f.lit(aside))
        for table in erasures.tables_of(storage)
        for aside in (table == QUARANTINE,)
        if (paths := erasures.keys_of(storage, table))
    ]
    # A file that holds a row twice may have been erased whole.
    return reduce(lambda these, more: these.union(more), parts).distinct() if parts else None
