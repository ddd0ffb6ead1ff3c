"""The steps that clustering and compaction share: both replace files by others, in three parts.

The first puts a plan on the timeline, the second writes the files and leaves a manifest, the third makes them the
table's. The manifest is Hudi's own commit metadata, as JSON, beside the timeline. Nothing here decides anything:
callers hold the leases and have read the timeline. A plan of ours carries the pipeline's name, to tell it from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.actions import OWNER
from airflow_provider_slshudi.hudi.client import commit
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.storage import Storage

FILES = {
    "hoodie.parquet.compression.codec": "zstd",
    # Hudi puts a filter of keys into each file, by default of 430 KB; nothing here looks rows up by it.
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.5",
}
"""Options by which Hudi writes base files."""
_CALENDAR = {
    f"spark.sql.parquet.{what}RebaseModeIn{way}": "CORRECTED"
    for what in ("datetime", "int96")
    for way in ("Read", "Write")
}


@contextmanager
def by_todays_calendar(engine: Any) -> Iterator[None]:
    """In the block Spark reads and writes old dates and times as they stand.

    Otherwise it refuses dates before 1582 and times before 1900 when it writes, and when it reads a file whose footer
    does not name the calendar (spark.apache.org/docs/3.5.9/sql-data-sources-parquet).
    """
    settings, context = engine.getSqlContext(), engine.getJavaSparkContext()
    before = {name: settings.getConf(name) for name in _CALENDAR}

    def put(name: str, value: str, of_jobs: str | None) -> None:
        settings.setConf(name, value)
        # Tasks outside a query see these settings only.
        context.setLocalProperty(name, of_jobs)

    for name, value in _CALENDAR.items():
        put(name, value, value)
    try:
        yield
    finally:
        for name, value in before.items():
            put(name, value, None)


def owner(gateway: Gateway, pipeline: Pipeline) -> Any:
    """The extra metadata of this pipeline's plans."""
    extra = gateway.jvm.java.util.HashMap()
    extra.put(OWNER, pipeline.name)
    return gateway.hudi.common.util.Option.of(extra)


def write_stats(gateway: Gateway, pipeline: Pipeline, instant: str, made: Any) -> Any:
    """Writes the files, which Spark does only when asked for results; returns their write stats.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is rewritten.
        instant: the clustering or compaction.
        made: Hudi's write metadata (HoodieWriteMetadata), not computed yet.
    """
    stats = gateway.jvm.java.util.ArrayList()
    for status in made.getWriteStatuses().collectAsList():
        if status.hasErrors():
            raise TableError(
                f"{pipeline.table.path}: instant {instant} could not write {status.getTotalErrorRecords()} rows",
                table=pipeline.table.path,
                instant=instant,
            )
        stats.add(status.getStat())
    return stats


@contextmanager
def completing(
    gateway: Gateway, pipeline: Pipeline, instant: str, metadata: Any, in_time: Callable[[], None]
) -> Iterator[Any]:
    """`commit.completing` with `in_time` for both of its looks.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is rewritten.
        instant: the clustering or compaction.
        metadata: Hudi's commit metadata.
        in_time: raises where it is too late to complete.
    """
    with client(gateway, pipeline) as writer:
        storage = Storage(pipeline.table.path)
        # Readers take the columns from the newest instant: so today's, not those of when the files were written.
        schema = writer.getConfig().getSchema()
        metadata.addMetadata(gateway.hudi.common.model.HoodieCommitMetadata.SCHEMA_KEY, schema)
        with commit.completing(gateway, writer, storage, instant, metadata, in_time, in_time) as table:
            yield table
