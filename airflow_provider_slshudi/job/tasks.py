"""How the parts of a job's work become Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("an append task runs inside a Spark task only")
        for part in partition:
            yield task(part, f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}")

    return run
