"""Runs the parts of a job's work as Spark tasks, and hands over their results in a manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import uploads
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.notes.handover import Claim, Manifest
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.storage import Storage

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
    Claim(storage, manifest.transaction, manifest.instant, manifest.token).require()
    parts = [(storage, manifest.stats)]
    if manifest.quarantine is not None:
        parts.append((Storage(pipeline.quarantine_path), manifest.quarantine))
    for place, stats in parts:
        handover.shut(place, manifest.instant)
        uploads.end_of(gateway, place, manifest.instant, [str(stat["path"]) for stat in stats])
        # The quarantine may be on a disk of its own.
        place.sync()
    handover.write_manifest(storage, manifest)
    return manifest
