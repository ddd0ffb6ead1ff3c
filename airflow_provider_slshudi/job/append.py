"""The append: tasks pull exactly the ranges of an order and write base files; the driver leaves the manifest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.hudi import exchange, instants
from airflow_provider_slshudi.hudi.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.exchange import BatchOrder, Manifest, RangeDone
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.job.checks import BatchChecks
from airflow_provider_slshudi.job.reading import Reading, ReadSpec, read_limits
from airflow_provider_slshudi.job.rows import RowSpec
from airflow_provider_slshudi.ledger.records import Density
from airflow_provider_slshudi.planning.split import split
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.ranges import Range
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class TaskResult:
    """What one task wrote and read."""

    stats: list[dict[str, Any]]
    ranges: list[RangeDone]
    misfits: dict[str, int]


@dataclass(frozen=True)
class AppendTask:
    """The work of every task but for its ranges; travels to the executors, credentials within `read`."""

    read: ReadSpec
    storage: Storage
    transaction: str
    token: int
    instant: str
    partition_name: str | None
    target_bytes: int

    def __call__(self, ranges: list[Range], write_token: str) -> TaskResult:
        """Pulls the ranges and writes their rows."""
        reach(Point.APPEND_TASK_STARTED)
        reading = Reading(self.read, ranges)
        with BaseFileWriter(self.storage, self.instant, write_token, self.target_bytes, self._still_wanted) as writer:
            for made, _, _, done in reading.rows():
                writer.write(made.data, made.keys, self.partition_name, made.partitions, done)
            stats = writer.close()
        reach(Point.APPEND_TASK_WRITTEN)
        return TaskResult(stats, reading.done(), reading.misfits)

    def _still_wanted(self) -> None:
        exchange.require_order(self.storage, self.transaction, self.instant, self.token)


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
    work = parts(order, pipeline, spark.defaultParallelism)
    task = AppendTask(
        ReadSpec(service, pipeline.name, RowSpec.of(pipeline), read_limits(pipeline.source, work)),
        storage,
        order.transaction,
        order.token,
        order.instant,
        partition.name if partition else None,
        pipeline.batch.target_file_bytes,
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


def parts(order: BatchOrder, pipeline: Pipeline, tasks: int) -> list[list[Range]]:
    """The order's ranges as each of about so many tasks reads them; more where one would read too much."""
    ranges = ranges_of(order)
    return split(ranges, density_of(order), tasks, pipeline.batch.task_bytes) if ranges else []


def ranges_of(order: BatchOrder) -> list[Range]:
    """The order's ranges."""
    return [Range(shard, begin, end) for shard, begin, end in order.ranges]


def density_of(order: BatchOrder) -> dict[int, Density]:
    """Raw bytes per log group of each shard."""
    return {int(shard): Density(size, 0.0) for shard, size in order.density.items()}


def _runner(task: AppendTask) -> Any:
    def run(partition: Iterator[list[Range]]) -> Iterator[TaskResult]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("an append task runs inside a Spark task only")
        for ranges in partition:
            yield task(ranges, f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}")

    return run
