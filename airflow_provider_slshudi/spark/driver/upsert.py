"""Spark's shuffle without the buffers of `RDD.partitionBy`, which holds many items per task that reads."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import Upsert
from airflow_provider_slshudi.exceptions import KeyMissing
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder, Manifest, RangeDone, Spent, Unnamed
from airflow_provider_slshudi.hudi.client import instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.hudi.files.merge import PLACE, MergeSpec
from airflow_provider_slshudi.hudi.files.row_changes import BUCKET, PARTITION, Changes
from airflow_provider_slshudi.hudi.files.upsertwriter import UpsertSpec, UpsertWriter
from airflow_provider_slshudi.hudi.instant_metadata import action
from airflow_provider_slshudi.hudi.schema import RECORD_KEY, arrow_schema, complete_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.windows import estimate
from airflow_provider_slshudi.rows.keys import bucket_ids, lacking, record_keys
from airflow_provider_slshudi.rows.maker import Rows
from airflow_provider_slshudi.rows.partitions import partition_path
from airflow_provider_slshudi.shaping.conditions import described
from airflow_provider_slshudi.spark.driver.append import density_of, leave, parts, ranges_of, write_token
from airflow_provider_slshudi.spark.driver.key_access import Access
from airflow_provider_slshudi.spark.driver.reading import Reading, ReadSpec, Tally
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


In = TypeVar("In")
Out = TypeVar("Out")


def shuffled(rdd: RDD[In], send: Callable[[Iterable[In]], Iterable[tuple[int, Out]]], parts: int) -> RDD[Out]:
    """What `send` yields for the partitions of `rdd`, each item in the partition whose number it yields with it.

    An item goes to the JVM as it comes. `partitionBy` would first gather up to ten items for each part (pyspark 3.5,
    `RDD.partitionBy`); the rest here is as there.

    Args:
        rdd: the input.
        send: runs in a task, and yields pairs of a partition's number and an item.
        parts: how many partitions the result has.
    """
    from pyspark import RDD, serializers

    context: Any = rdd.context
    serializer, wire = context._unbatched_serializer, cast(Any, serializers)

    def framed(items: Iterable[In]) -> Iterator[bytes]:
        for part, item in send(items):
            yield wire.pack_long(part)
            yield serializer.dumps([item])

    keyed: Any = rdd.mapPartitions(framed, preservesPartitioning=True)
    keyed._bypass_serializer = True
    pairs = context._jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    partitioner = context._jvm.PythonPartitioner(parts, id(send))
    moved = context._jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))
    return RDD(moved, context, wire.BatchedSerializer(serializer))


SEND_BYTES = 64 * 1024 * 1024
"""A reading task hands rows on once it holds this many bytes of them, for all writing tasks together."""
WRITE_BYTES = 128 * 1024 * 1024
"""A writing task gets about this many raw bytes if the keys differ."""
PACKET_BYTES = 8 * 1024 * 1024
"""Rows travel in packets of at most about this many bytes."""
Content = tuple[str, bytes]
"""The kind of the content (`_ROWS` or `_TOLD`); the content."""
_ROWS, _TOLD = "rows", "told"


@dataclass(frozen=True)
class UpsertTask:
    """The work of every task; travels to the executors.

    Attributes:
        writers: how many tasks write.
        partition_name: the partition column, None for a table without partitions.
    """

    read: ReadSpec
    attempt: Attempt
    spec: UpsertSpec
    writers: int
    partition_name: str | None

    def send(self, ranges: list[Range]) -> Iterator[tuple[int, Content]]:
        """Pulls the ranges; yields their rows, each with the number of the task that owns its bucket, and last the
        figures of the ranges.

        Every attempt yields the same rows, though cut at other places.
        """
        began = time.process_time()
        reach(Point.APPEND_TASK_STARTED)
        self.attempt.require_wanted()
        reading, tables, size = self._reading(ranges), defaultdict[int, list[pa.Table]](list), 0
        for read in reading.rows():
            table, owners = self._addressed(read.rows, read.logs, read.pull.shard)
            size += table.nbytes
            order = np.argsort(owners, kind="stable")
            table, ends = table.take(order), np.cumsum(np.bincount(owners, minlength=self.writers))
            for owner, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if begin < end:
                    tables[owner].append(table.slice(begin, end - begin))
            if size >= SEND_BYTES:
                yield from _packed(tables)
                tables, size = defaultdict(list), 0
        yield from _packed(tables)
        summary: dict[str, Any] = {
            "ranges": [asdict(done) for done in reading.done()],
            "tally": asdict(reading.tally()),
        }
        summary["unnamed"] = asdict(reading.unnamed())
        summary["cpu"] = time.process_time() - began
        yield 0, (_TOLD, json.dumps(summary).encode())

    def write(self, sent: Iterable[Content], write_token: str) -> Iterator[dict[str, Any]]:
        """Writes the buckets that this task owns.

        Yields the figures sent to it, its write stats, its row count, and its CPU seconds.
        """
        began = time.process_time()
        summaries: list[dict[str, Any]] = []
        stats: list[dict[str, Any]] = []
        with Changes(self.spec.merge) as changes:
            for kind, content in sent:
                if kind == _TOLD:
                    summaries.append(json.loads(content))
                else:
                    changes.add(pa.ipc.open_stream(content).read_all())
            if changes.count:
                with UpsertWriter(self.attempt.storage, self.spec, write_token, self.attempt.require_wanted) as writer:
                    for partition, bucket, parts in changes.buckets():
                        writer.write(partition, bucket, parts)
                stats = writer.stats
                reach(Point.APPEND_TASK_WRITTEN)
        yield {"told": summaries, "stats": stats, "rows": changes.count, "cpu": time.process_time() - began}

    def _reading(self, ranges: list[Range]) -> Reading:
        return Reading(self.read, ranges)

    def _addressed(self, made: Rows, logs: pa.Table, shard: int) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """The rows with place, key, partition and bucket; and the number of the task that writes each."""
        merge, data, count = self.spec.merge, made.data, made.data.num_rows
        require_values(made, [*merge.record_key, *([merge.ordering_field] if merge.ordering_field else [])])
        if made.of is not None:
            logs = logs.filter(made.of)
        columns = [data[name].combine_chunks() for name in merge.record_key]
        keys = record_keys(merge.record_key, columns)
        buckets = bucket_ids(merge.record_key, columns, keys, merge.buckets)
        paths, codes = [""], np.zeros(count, np.int64)
        if self.partition_name is not None and made.partitions is not None:
            values = made.partitions.dictionary.to_pylist()
            paths = [partition_path(self.partition_name, value) for value in [*values, None]]
            codes = pc.fill_null(made.partitions.indices, len(values)).to_numpy(zero_copy_only=False)
        first = np.array([zlib.crc32(path.encode()) for path in paths], np.int64)
        owners = (first[codes] + buckets) % self.writers
        place = [pa.repeat(pa.scalar(shard, pa.int32()), count), logs["__cursor__"], logs["__index__"]]
        more = {
            **dict(zip(PLACE, place, strict=True)),
            RECORD_KEY: keys,
            PARTITION: pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(paths)).cast(pa.string()),
            BUCKET: pa.array(buckets, pa.int32()),
        }
        plain = data.select(self.spec.columns.names).cast(self.spec.columns)
        return pa.table({**dict(zip(plain.column_names, plain.columns, strict=True)), **more}), owners


def upsert(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, access: Access) -> Manifest:
    """Carries out an order and leaves its manifest.

    Args:
        spark: the driver's context.
        gateway: to its JVM.
        storage: the table's.
        order: the batch's.
        access: how tasks reach the log service.

    Raises:
        KeyMissing: a log has no value for a column of the record key, or for the ordering field.
        SourceError, DecodeError, ValueMisfit: a task raised it; Spark wraps it once the task has failed for good.
    """
    started = time.monotonic()
    pipeline = order.described
    instants.to_inflight(gateway, storage.uri, order.instant, action(pipeline.table))
    reach(Point.APPEND_INFLIGHT)
    partition = pipeline.table.partition
    work = parts(order, pipeline, spark.defaultParallelism)
    task = UpsertTask(
        ReadSpec.of(access, pipeline, order.planned, work),
        order.attempt(storage),
        upsert_spec(pipeline, order.instant, Completed.of(Timeline.load(storage))),
        writers(order, spark.defaultParallelism),
        partition.name if partition else None,
    )
    results = run(spark, task, work) if work else []
    summaries = [part for result in results for part in result["told"]]
    tally = Tally.total([Tally(**part["tally"]) for part in summaries])
    cpu = sum(float(part["cpu"]) for part in (*results, *summaries))
    manifest = Manifest(
        order.transaction,
        order.token,
        order.instant,
        [stat for result in results for stat in result["stats"]],
        [RangeDone(**done) for part in summaries for done in part["ranges"]],
        tally.misfits,
        time.monotonic() - started,
        unfit=tally.unfit,
        examples=tally.examples,
        merged=sum(result["rows"] for result in results),
        dropped=tally.dropped,
        spent=Spent(tally.requests, gateway.cpu_seconds(), cpu, round(tally.waited, 3)),
        unnamed=Unnamed.total(Unnamed(**part["unnamed"]) for part in summaries),
        filter=described(pipeline),
    )
    return leave(gateway, storage, pipeline, manifest)


def writers(order: BatchOrder, cores: int) -> int:
    """How many tasks write: one per core, more if one would get more rows than it holds in memory."""
    return max(cores, math.ceil(estimate(ranges_of(order), density_of(order)) / WRITE_BYTES))


def upsert_spec(pipeline: Pipeline, instant: str, completed: Completed) -> UpsertSpec:
    """The facts that writers need of a pipeline whose table has `upsert`."""
    upsert = pipeline.table.upsert
    assert upsert is not None  # noqa: S101 - others append
    return UpsertSpec(
        instant,
        merge_spec(upsert),
        complete_schema(pipeline),
        arrow_schema(pipeline),
        pipeline.table.type == "merge_on_read",
        completed,
    )


def merge_spec(upsert: Upsert) -> MergeSpec:
    """The part of `upsert` that merges rows."""
    return MergeSpec(
        tuple(upsert.record_key), upsert.ordering_field, upsert.delete_marker, upsert.partial_update, upsert.buckets
    )


def require_values(made: Rows, columns: Iterable[str]) -> None:
    """Raises KeyMissing if a row has no value, or an empty text, in one of the columns."""
    for name in columns:
        without = lacking(made.data[name])
        if pc.any(without).as_py():
            raise KeyMissing(name, str(made.keys.filter(without.combine_chunks())[0]))


def run(spark: SparkContext, task: UpsertTask, work: list[list[Range]]) -> list[dict[str, Any]]:
    """Runs one job of two stages; the first's rows cross Spark's shuffle, once however often a task is tried."""

    def read(part: Iterable[list[Range]]) -> Iterator[tuple[int, Content]]:
        for ranges in part:
            yield from task.send(ranges)

    def write(sent: Iterable[Content]) -> Iterator[dict[str, Any]]:
        return task.write(sent, write_token())

    return shuffled(spark.parallelize(work, len(work)), read, task.writers).mapPartitions(write).collect()


def _packed(kept: dict[int, list[pa.Table]]) -> Iterator[tuple[int, Content]]:
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    for owner, tables in kept.items():
        table = pa.concat_tables(tables)
        step = max(1, math.ceil(table.num_rows * PACKET_BYTES / max(1, table.nbytes)))
        for begin in range(0, table.num_rows, step):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
                stream.write_table(table.slice(begin, step))
            yield owner, (_ROWS, sink.getvalue().to_pybytes())
