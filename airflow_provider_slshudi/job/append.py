"""The append: tasks pull exactly the ranges of an order and write base files; the driver leaves the manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.actions import action
from airflow_provider_slshudi.hudi.client import instants, quarantine
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.job.access import Access
from airflow_provider_slshudi.job.checks import BatchChecks
from airflow_provider_slshudi.job.quarantine import Origin, QuarantineTask, Staging
from airflow_provider_slshudi.job.reading import Reading, ReadSpec, Tally, read_limits
from airflow_provider_slshudi.job.tasks import each, leave
from airflow_provider_slshudi.notes.handover import BatchOrder, Claim, Manifest, RangeDone, Spent
from airflow_provider_slshudi.notes.unnamed import Unnamed
from airflow_provider_slshudi.planning.split import split
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.ranges import Density, Range
from airflow_provider_slshudi.rows.maker import RowSpec
from airflow_provider_slshudi.sls.pieces import decode_piece
from airflow_provider_slshudi.storage import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class TaskResult:
    """One task's files and ranges; `staged` is its file of logs for the quarantine, None if it has none."""

    stats: list[dict[str, Any]]
    ranges: list[RangeDone]
    tally: Tally
    staged: str | None
    unnamed: Unnamed


@dataclass(frozen=True)
class AppendTask:
    """The work of every task but for its ranges; travels to the executors."""

    read: ReadSpec
    claim: Claim
    partition_name: str | None
    target_bytes: int

    def __call__(self, ranges: list[Range], write_token: str) -> TaskResult:
        """Pulls the ranges and writes their rows."""
        reach(Point.APPEND_TASK_STARTED)
        reading = Reading(self.read, ranges)
        claim = self.claim
        origin = Origin(self.read.pipeline, claim.transaction, self.read.rows.planned)
        with (
            BaseFileWriter(claim.storage, claim.instant, write_token, self.target_bytes, claim.require) as writer,
            Staging(claim.storage, claim.instant, write_token, origin) as staging,
        ):
            for read in reading.rows():
                made, pull = read.rows, read.pull
                writer.write(made.data, made.keys, self.partition_name, made.partitions, read.done)
                if made.unfit is not None:
                    staging.add(decode_piece(pull, ()), made.unfit, pull.shard)
            stats = writer.close()
        reach(Point.APPEND_TASK_WRITTEN)
        return TaskResult(stats, reading.done(), reading.tally(), staging.path, reading.unnamed())


def append(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, access: Access) -> Manifest:
    """Carries out an order and leaves its manifest.

    Raises:
        ConfigError: a check's expression does not fit the table's columns; nothing was read.
        SourceError, DecodeError, ValueMisfit: a task raised it; Spark wraps it once the task has failed for good.
    """
    started = time.monotonic()
    pipeline = Pipeline.model_validate(order.pipeline)
    checks = BatchChecks(spark, pipeline)
    instants.to_inflight(gateway, storage.uri, order.instant, action(pipeline.table))
    reach(Point.APPEND_INFLIGHT)
    partition = pipeline.table.partition
    work = parts(order, pipeline, spark.defaultParallelism)
    task = AppendTask(
        ReadSpec(access, pipeline.name, RowSpec.of(pipeline, order.planned), read_limits(pipeline.source, work)),
        order.claim(storage),
        partition.name if partition else None,
        pipeline.batch.target_file_bytes,
    )
    results: list[TaskResult]
    results, cpu = each(spark, task, work)
    tally = Tally.total([result.tally for result in results])
    stats = [stat for result in results for stat in result.stats]
    staged = [item.staged for item in results if item.staged]
    aside, cpu_aside = _quarantined(spark, gateway, storage, order, pipeline, staged)
    manifest = Manifest(
        order.transaction,
        order.token,
        order.instant,
        stats,
        [done for result in results for done in result.ranges],
        tally.misfits,
        time.monotonic() - started,
        checks.results([f"{storage.uri}/{stat['path']}" for stat in stats]),
        tally.unfit,
        tally.examples,
        aside,
        spent=Spent(tally.requests, gateway.cpu_seconds(), cpu + cpu_aside),
        unnamed=Unnamed.total(result.unnamed for result in results),
    )
    return leave(gateway, storage, pipeline, manifest)


def _quarantined(
    spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, pipeline: Pipeline, staged: list[str]
) -> tuple[list[dict[str, Any]] | None, float]:
    """Writes the staged logs into the quarantine; returns the write stats, None if there are none, and CPU seconds."""
    if not staged:
        return None, 0.0
    claim = order.claim(storage)
    claim.require()
    quarantine.open_instant(gateway, pipeline, order.instant)
    task = QuarantineTask(claim, Storage(pipeline.quarantine_path), pipeline.batch.target_file_bytes)
    tasks = min(len(staged), spark.defaultParallelism)
    work = [staged[number::tasks] for number in range(tasks)]
    results, cpu = each(spark, task, work)
    return [stat for stats in results for stat in stats], cpu


def parts(order: BatchOrder, pipeline: Pipeline, tasks: int) -> list[list[Range]]:
    """Splits the order's ranges among about `tasks` tasks; more if one would read too much."""
    ranges = ranges_of(order)
    return split(ranges, density_of(order), tasks, pipeline.batch.task_bytes) if ranges else []


def ranges_of(order: BatchOrder) -> list[Range]:
    """The order's ranges."""
    return [Range(shard, begin, end) for shard, begin, end in order.ranges]


def density_of(order: BatchOrder) -> dict[int, Density]:
    """Raw bytes per log group of each shard."""
    return {int(shard): Density(size, 0.0) for shard, size in order.density.items()}
