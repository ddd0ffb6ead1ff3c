"""How many logs each log group holds by the service's own account, read by Spark tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import DataExpired
from airflow_provider_slshudi.job.access import Access
from airflow_provider_slshudi.job.reading import read_limits
from airflow_provider_slshudi.planning.split import split
from airflow_provider_slshudi.ranges import Density, Range
from airflow_provider_slshudi.sls.counts import count_logs
from airflow_provider_slshudi.sls.pace import Limits, Pacer
from airflow_provider_slshudi.sls.reader import Reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Group = tuple[int, int, int, int]
_SCHEMA = "number int, shard int, cursor bigint, logs int"


@dataclass(frozen=True)
class RecountTask:
    """The work of every task but for its ranges; travels to the executors, without credentials."""

    access: Access
    pipeline: str
    limits: Mapping[int, Limits]

    def __call__(self, parts: Iterable[list[tuple[int, Range]]]) -> Iterator[Group]:
        """(number of the range, shard, cursor, logs) of each log group; skips groups that the service has dropped."""
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
                    for cursor, logs in enumerate(count_logs(pull), pull.begin):
                        yield number, item.shard, cursor, logs
                    begin = pull.next
            except DataExpired as gone:
                begin = gone.end


def recount(
    spark: SparkSession,
    access: Access,
    pipeline: Pipeline,
    wanted: Sequence[tuple[int, Range]],
    density: Mapping[int, Density],
) -> DataFrame:
    """The log groups of numbered disjoint ranges as the service holds them: `number`, `shard`, `cursor`, `logs`.

    Args:
        spark: the driver's session.
        access: how executors reach the log service.
        pipeline: names the logstore.
        wanted: ranges with their numbers.
        density: each shard's recent bytes and rows per log group.

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
    task = RecountTask(access, pipeline.name, read_limits(pipeline.source, work))
    rows = context.parallelize(parts, max(1, len(parts))).mapPartitions(task)
    return spark.createDataFrame(rows, _SCHEMA)
