"""The append: tasks pull exactly the ranges of an order and write base files; the driver leaves the manifest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from airflow_provider_slshudi.config import Pipeline, Source
from airflow_provider_slshudi.hudi import exchange, instants
from airflow_provider_slshudi.hudi.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.exchange import BatchOrder, Manifest, RangeDone
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.job.checks import BatchChecks
from airflow_provider_slshudi.job.rows import RowMaker, RowSpec
from airflow_provider_slshudi.ledger.records import Density
from airflow_provider_slshudi.planning.split import split
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.ranges import Range
from airflow_provider_slshudi.sls.pace import Limits, Pacer
from airflow_provider_slshudi.sls.reader import Reader, together
from airflow_provider_slshudi.sls.service import LogService, Pull

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext


SHARDS_AT_ONCE = 8
"""From how many shards a task reads at the same time: eighty megabytes a second, and one pull of each in memory."""


@dataclass(frozen=True)
class TaskResult:
    """What one task wrote and read."""

    stats: list[dict[str, Any]]
    ranges: list[RangeDone]
    misfits: dict[str, int]


@dataclass(frozen=True)
class AppendTask:
    """The work of every task but for its ranges; travels to the executors, credentials within `service`.

    `limits` says for each shard how fast one task may read it.
    """

    service: LogService
    storage: Storage
    transaction: str
    token: int
    instant: str
    rows: RowSpec
    partition_name: str | None
    target_bytes: int
    pipeline: str
    limits: Mapping[int, Limits]

    def __call__(self, ranges: list[Range], write_token: str) -> TaskResult:
        """Pulls the ranges and writes their rows."""
        reach(Point.APPEND_TASK_STARTED)
        maker = RowMaker(self.rows)
        limits = shard_limits(self.limits, ranges)
        readers = {shard: Reader(self.service, self.pipeline, Pacer(limits[shard])) for shard in limits}
        found = {item: _Found() for item in ranges}
        groups, done = sum(map(len, ranges)), 0
        with BaseFileWriter(self.storage, self.instant, write_token, self.target_bytes, self._still_wanted) as writer:
            for item, answer in together(readers, ranges, SHARDS_AT_ONCE):
                for pull, logs in readers[item.shard].decoded(answer, self.rows.keys):
                    done += pull.groups
                    found[item].add(pull, logs)
                    if logs.num_rows:
                        made = maker.rows(logs, item.shard)
                        writer.write(made.data, made.keys, self.partition_name, made.partitions, done / groups)
            stats = writer.close()
        reach(Point.APPEND_TASK_WRITTEN)
        return TaskResult(stats, [found[item].done(item) for item in ranges], dict(maker.misfits))

    def _still_wanted(self) -> None:
        exchange.require_order(self.storage, self.transaction, self.instant, self.token)


class _Found:
    """What a range held, as its pulls come."""

    def __init__(self) -> None:
        self._rows = self._size = 0
        self._times: list[int] = []

    def add(self, pull: Pull, logs: pa.Table) -> None:
        """Counts a pull."""
        self._rows += logs.num_rows
        self._size += pull.raw_size
        if logs.num_rows:
            ends = pc.min_max(logs["__time__"]).as_py()
            times = [*self._times, ends["min"], ends["max"]]
            self._times = [min(times), max(times)]

    def done(self, item: Range) -> RangeDone:
        """The sum."""
        first, last = self._times or (None, None)
        return RangeDone(item.shard, item.begin, item.end, self._rows, self._size, first, last)


def append(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, service: LogService) -> Manifest:
    """Carries out an order and leaves its manifest.

    Raises:
        ConfigError: a check's expression is none over the table's columns; nothing was read.
        SourceError, DecodeError, ValueMisfit: as the tasks found; wrapped by Spark once a task has failed for good.
    """
    started = time.monotonic()
    pipeline = Pipeline.model_validate(order.pipeline)
    checks = BatchChecks(spark, pipeline)
    instants.to_inflight(gateway, storage.uri, order.instant, instants.action(pipeline.table))
    reach(Point.APPEND_INFLIGHT)
    partition = pipeline.table.partition
    density = {int(shard): Density(size, 0.0) for shard, size in order.density.items()}
    ranges = [Range(shard, begin, end) for shard, begin, end in order.ranges]
    work = split(ranges, density, spark.defaultParallelism, pipeline.batch.task_bytes) if ranges else []
    task = AppendTask(
        service,
        storage,
        order.transaction,
        order.token,
        order.instant,
        RowSpec.of(pipeline),
        partition.name if partition else None,
        pipeline.batch.target_file_bytes,
        pipeline.name,
        read_limits(pipeline.source, work),
    )
    results = spark.parallelize(work, max(1, len(work))).mapPartitions(_runner(task)).collect() if work else []
    misfits: Counter[str] = Counter()
    for result in results:
        misfits.update(result.misfits)
    stats = [stat for result in results for stat in result.stats]
    manifest = Manifest(
        order.transaction,
        order.token,
        order.instant,
        stats,
        [done for result in results for done in result.ranges],
        dict(misfits),
        time.monotonic() - started,
        checks.results([f"{storage.uri}/{stat['path']}" for stat in stats]),
    )
    reach(Point.APPEND_WRITTEN)
    exchange.require_order(storage, order.transaction, order.instant, order.token)
    exchange.write_manifest(storage, manifest)
    return manifest


def read_limits(source: Source, work: Sequence[Sequence[Range]]) -> dict[int, Limits]:
    """The pace at which each task that reads a shard reads it: no more tasks are made than run at the same time."""
    whole = Limits(source.read_bytes_per_second, source.reads_per_second, source.total_bytes_per_second)
    readers = Counter(shard for part in work for shard in {item.shard for item in part})
    return {shard: whole.among(count, len(work)) for shard, count in readers.items()}


def shard_limits(limits: Mapping[int, Limits], ranges: Sequence[Range]) -> dict[int, Limits]:
    """The pace of each shard in a task that reads `ranges`: those that it reads at the same time share its total."""
    shards = {item.shard for item in ranges}
    return {shard: limits[shard].among(1, min(len(shards), SHARDS_AT_ONCE)) for shard in shards}


def _runner(task: AppendTask) -> Any:
    def run(partition: Iterator[list[Range]]) -> Iterator[TaskResult]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("an append task runs inside a Spark task only")
        for ranges in partition:
            yield task(ranges, f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}")

    return run
