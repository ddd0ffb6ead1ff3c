"""The append of one batch: tasks read ranges of shards and write base files; the driver leaves the manifest."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import MOST_FILES, Pipeline
from airflow_provider_slshudi.exceptions import TooManyFiles
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder, Manifest, RangeDone, Spent, Unnamed
from airflow_provider_slshudi.hudi.beside import Beside, route_keys
from airflow_provider_slshudi.hudi.client import beside, instants, uploads
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.instant_metadata import action
from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.planning.windows import split
from airflow_provider_slshudi.rows.partitions import partition_path
from airflow_provider_slshudi.shaping.conditions import described
from airflow_provider_slshudi.spark.driver.checks import BatchChecks
from airflow_provider_slshudi.spark.driver.key_access import Access
from airflow_provider_slshudi.spark.driver.misfit_rows import Origin, QuarantineTask, Staging
from airflow_provider_slshudi.spark.driver.reading import Reading, ReadSpec, Tally
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach

if TYPE_CHECKING:
    from pyspark import SparkContext


def each(spark: SparkContext, task: Callable[[Any, str], Any], work: Sequence[Any]) -> tuple[list[Any], float]:
    """Runs `task(part, write_token)` once per part of `work`, each in its own Spark task.

    Returns the results, and the CPU seconds that the Python processes of these tasks took.
    """
    if not work:
        return [], 0.0
    done: list[tuple[Any, float]] = spark.parallelize(work, len(work)).mapPartitions(_runner(task)).collect()
    return [result for result, _ in done], sum(seconds for _, seconds in done)


def _runner(task: Callable[[Any, str], Any]) -> Any:
    def run(partition: Iterator[Any]) -> Iterator[Any]:
        for part in partition:
            # A worker's process has one task at a time; its threads count.
            begin = time.process_time()
            result = task(part, write_token())
            yield result, time.process_time() - begin

    return run


def write_token() -> str:
    """The name of this task's attempt in its files' names: `{partition}-{stage}-{attempt}`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("an append's task runs inside a Spark task only")
    return f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"


def leave(gateway: Gateway, storage: Storage, pipeline: Pipeline, manifest: Manifest) -> Manifest:
    """Leaves the manifest, a job's last act, and returns it.

    From here on no task adds a file to the instant: an executor may live on, though its task was given up.

    Args:
        gateway: to the driver's JVM.
        storage: the main table's.
        pipeline: the batch's.
        manifest: what the tasks wrote.

    Raises:
        ManifestError: another run decided about the instant.
        TimelineUnreadable: an object store does not answer.
    """
    reach(Point.APPEND_WRITTEN)
    Attempt(storage, manifest.transaction, manifest.instant, manifest.token).require_wanted()
    parts = [(storage, manifest.stats)]
    parts += [(Beside(key, pipeline).storage, stats) for key, stats in manifest.beside.items()]
    for place, stats in parts:
        fencing.shut(place, manifest.instant)
        uploads.end_of(gateway, place, manifest.instant, [str(stat["path"]) for stat in stats])
        # The quarantine may be on a disk of its own.
        place.sync()
    batch_files.write_manifest(storage, manifest)
    return manifest


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskResult:
    """One task's files and ranges; `staged` is its file of logs for the quarantine, None if it has none.

    `stats` has a list for the main table and one for each route's. A task whose rows have more partitions than a commit
    takes files writes none, and tells in `spread` how many rows each of these partitions has.
    """

    stats: list[list[dict[str, Any]]]
    ranges: list[RangeDone]
    tally: Tally
    staged: str | None
    unnamed: Unnamed
    spread: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AppendTask:
    """The work of every task but for its ranges; travels to the executors. `routes` are the routes' tables."""

    read: ReadSpec
    attempt: Attempt
    partition_name: str | None
    target_bytes: int
    routes: tuple[Storage, ...] = ()

    def __call__(self, ranges: list[Range], write_token: str) -> TaskResult:
        """Pulls the ranges and writes their rows."""
        try:
            return self._write(ranges, write_token)
        except TooManyFiles:
            if self.partition_name is None or self.read.rows.kept is not None:
                raise
            return self._count(ranges, self.partition_name)

    def _count(self, ranges: list[Range], name: str) -> TaskResult:
        """Pulls the ranges once more and counts the rows of each partition."""
        reading, spread = Reading(self.read, ranges), Counter[str]()
        for read in reading.rows():
            assert read.rows.partitions is not None  # noqa: S101
            for each_of in read.rows.partitions.value_counts().to_pylist():
                spread[partition_path(name, each_of["values"])] += each_of["counts"]
        return TaskResult([], reading.done(), reading.tally(), None, reading.unnamed(), dict(spread))

    def _write(self, ranges: list[Range], write_token: str) -> TaskResult:
        reach(Point.APPEND_TASK_STARTED)
        reading = Reading(self.read, ranges)
        attempt = self.attempt
        origin = Origin(self.read.pipeline, attempt.transaction, self.read.rows.planned)
        with (
            BaseFileWriter(
                attempt.storage, attempt.instant, write_token, self.target_bytes, attempt.require_wanted, self.routes
            ) as writer,
            Staging(attempt.storage, attempt.instant, write_token, origin) as staging,
        ):
            for read in reading.rows():
                rows, pull = read.rows, read.pull
                for table, data, keys, partitions in rows.parts():
                    writer.write(data, keys, self.partition_name, partitions, read.done, table)
                if rows.unfit is not None:
                    staging.add(reading.whole(read), rows.unfit, pull.shard)
            stats = writer.close_all()
        reach(Point.APPEND_TASK_WRITTEN)
        return TaskResult(stats, reading.done(), reading.tally(), staging.path, reading.unnamed())


def append(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, access: Access) -> Manifest:
    """Carries out an order and leaves its manifest.

    Args:
        spark: the driver's context.
        gateway: to its JVM.
        storage: the table's.
        order: the batch's.
        access: how tasks reach the log service.

    Raises:
        ConfigError: a check's expression does not fit the table's columns; nothing was read.
        SourceError, DecodeError, ValueMisfit: a task raised it; Spark wraps it once the task has failed for good.
    """
    started = time.monotonic()
    pipeline = order.described
    checks = BatchChecks(spark, pipeline)
    instants.to_inflight(gateway, storage.uri, order.instant, action(pipeline.table))
    reach(Point.APPEND_INFLIGHT)
    routes = open_routes(gateway, pipeline, order.instant)
    partition = pipeline.table.partition
    work = parts(order, pipeline, spark.defaultParallelism)
    task = AppendTask(
        ReadSpec.of(access, pipeline, order.planned, work),
        order.attempt(storage),
        partition.name if partition else None,
        pipeline.batch.target_file_bytes,
        tuple(routes.values()),
    )
    results: list[TaskResult]
    results, cpu = each(spark, task, work)
    paths = partitions_to_keep(results) if partition else None
    if paths is not None:
        # The commit deletes the files of the first attempt: no write status lists them.
        _log.warning("more partitions than one commit takes: rows beyond the %d with the most get none", len(paths))
        task = replace(task, read=replace(task.read, rows=replace(task.read.rows, kept=paths)))
        results, again = each(spark, task, work)
        cpu += again
    tally = Tally.total([result.tally for result in results])
    tables = by_table([result.stats for result in results if result.stats], 1 + len(routes))
    stats, routed = tables[0], dict(zip(routes, tables[1:], strict=True))
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
        checks.results(written_files((storage, *routes.values()), tables)),
        tally.unfit,
        tally.examples,
        aside,
        spent=Spent(tally.requests, gateway.cpu_seconds(), cpu + cpu_aside, round(tally.waited, 3)),
        unnamed=Unnamed.total(result.unnamed for result in results),
        filter=described(pipeline),
        routed=routed,
    )
    return leave(gateway, storage, pipeline, manifest)


def by_table(of_tasks: Sequence[Sequence[list[dict[str, Any]]]], count: int) -> list[list[dict[str, Any]]]:
    """The write stats of each of `count` tables, of all tasks together."""
    return [[stat for stats in of_tasks for stat in stats[place]] for place in range(count)]


def written_files(storages: Sequence[Storage], tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """The URIs of the files that the write stats of each table list."""
    return [f"{place.uri}/{stat['path']}" for place, stats in zip(storages, tables, strict=True) for stat in stats]


def open_routes(gateway: Gateway, pipeline: Pipeline, instant: str) -> dict[str, Storage]:
    """Puts the instant on the timelines of the routes' tables; gives these by their keys."""
    tables = [Beside(key, pipeline) for key in route_keys(pipeline)]
    for table in tables:
        beside.open_instant(gateway, table, instant)
    return {table.key: table.storage for table in tables}


def partitions_to_keep(results: Sequence[TaskResult]) -> frozenset[str] | None:
    """The paths of the partitions with the most rows, as many as one commit takes; None if it takes all."""
    files, rows = Counter[str](), Counter[str]()
    for result in results:
        for stat in (stat for stats in result.stats for stat in stats):
            files[stat["partitionPath"]] += 1
            rows[stat["partitionPath"]] += stat["numWrites"]
        files.update(result.spread.keys())
        rows.update(result.spread)
    if files.total() <= MOST_FILES:
        return None
    # Each task may have a file of rows without partition.
    room, paths = MOST_FILES - len(results), set[str]()
    for path, _ in rows.most_common():
        room -= files[path]
        if room < 0:
            break
        paths.add(path)
    return frozenset(paths)


def _quarantined(
    spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, pipeline: Pipeline, staged: list[str]
) -> tuple[list[dict[str, Any]] | None, float]:
    """Writes the staged logs into the quarantine; returns the write stats, None if there are none, and CPU seconds."""
    if not staged:
        return None, 0.0
    attempt = order.attempt(storage)
    attempt.require_wanted()
    beside.open_instant(gateway, Beside.quarantine(pipeline), order.instant)
    task = QuarantineTask(attempt, Storage(pipeline.quarantine_path), pipeline.batch.target_file_bytes)
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
