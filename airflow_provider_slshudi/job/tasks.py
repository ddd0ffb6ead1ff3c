"""How the parts of a job's work become Spark tasks, and how a job hands over what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.notes.handover import Claim, Manifest
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.storage import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext


def each(spark: SparkContext, task: Callable[[Any, str], Any], work: Sequence[Any]) -> list[Any]:
    """What `task` gives for each part of `work`, one Spark task a part; it is told its write token, too."""
    if not work:
        return []
    results: list[Any] = spark.parallelize(work, len(work)).mapPartitions(_runner(task)).collect()
    return results


def _runner(task: Callable[[Any, str], Any]) -> Any:
    def run(partition: Iterator[Any]) -> Iterator[Any]:
        for part in partition:
            yield task(part, write_token())

    return run


def write_token() -> str:
    """What names the files of this task's attempt: `{partition}-{stage}-{attempt}`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("an append's task runs inside a Spark task only")
    return f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"


def leave(storage: Storage, manifest: Manifest) -> Manifest:
    """Leaves the manifest, a job's last act, and gives it.

    Raises:
        ManifestError: somebody else decided about the instant.
    """
    reach(Point.APPEND_WRITTEN)
    Claim(storage, manifest.transaction, manifest.instant, manifest.token).require()
    handover.write_manifest(storage, manifest)
    return manifest
