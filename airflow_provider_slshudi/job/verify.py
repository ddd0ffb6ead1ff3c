"""A verification: lets Spark compare the table with the question, and leaves the answer beside the table's files."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.job.access import Access
from airflow_provider_slshudi.job.compare import compare
from airflow_provider_slshudi.job.recount import recount
from airflow_provider_slshudi.notes import erased, verification
from airflow_provider_slshudi.notes.verification import Question
from airflow_provider_slshudi.objectstore import hadoop_path
from airflow_provider_slshudi.ranges import Density, Range
from airflow_provider_slshudi.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    gone = _erased(spark, storage)
    # The quarantine first: then the main table has completed every instant that the quarantine's snapshot holds.
    aside = None if question.quarantine is None else spark.read.format("hudi").load(hadoop_path(question.quarantine))
    table = spark.read.format("hudi").load(hadoop_path(pipeline.table.path))
    # The timeline is read once the table's snapshot is fixed: so it has every later commit that the snapshot may hold.
    late = [item.time for item in Timeline.load(storage) if (item.completion or "") > question.as_of]
    groups = None
    if question.source is not None and access is not None:
        wanted = [(number, Range(question.ranges[number][0], begin, end)) for number, begin, end in question.source]
        density = {int(shard): Density(size, 0.0) for shard, size in question.density.items()}
        groups = recount(spark, access, pipeline, wanted, density)
    late += question.undecided
    found = compare(spark, table, question.ranges, late, groups, aside, question.replays, gone)
    verification.answer(storage, id_, found)


def _erased(spark: SparkSession, storage: Storage) -> DataFrame | None:
    """The rows that accepted erasures took, and whether each was in the quarantine; None where there are none."""
    from pyspark.sql import functions as f

    parts = [
        spark.read.parquet(*(hadoop_path(f"{storage.uri}/{path}") for path in paths)).withColumn("aside", f.lit(aside))
        for of, aside in ((erased.TABLE, False), (erased.QUARANTINE, True))
        if (paths := erased.keys_of(storage, of))
    ]
    # A file that holds a row twice may have been erased whole.
    return reduce(lambda these, more: these.union(more), parts).distinct() if parts else None
