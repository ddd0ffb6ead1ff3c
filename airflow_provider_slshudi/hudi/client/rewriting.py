"""What clustering and compaction share: files are written in the place of others, in three parts.

A plan is put on the timeline; files are written as it says; the files become the table's. In between a manifest lies
beside the timeline: Hudi's own commit metadata, as JSON. Nothing here decides anything: callers hold the leases and
have read the timeline. A plan carries the pipeline's name, so that nobody else's is taken for ours.
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

FILES = {
    "hoodie.parquet.compression.codec": "zstd",
    # Hudi puts a filter of keys into each file, 430 KB as it comes; nothing here looks rows up by it.
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.5",
}
"""How Hudi is to write base files."""
_CALENDAR = {
    f"spark.sql.parquet.{what}RebaseModeIn{way}": "CORRECTED"
    for what in ("datetime", "int96")
    for way in ("Read", "Write")
}


@contextmanager
def by_todays_calendar(engine: Any) -> Iterator[None]:
    """Old dates and times are read and written as they stand (spark.apache.org/docs/3.5.9/sql-data-sources-parquet).

    Spark refuses those before 1582 and 1900 otherwise, where it writes, and where a footer does not tell it of them.
    """
    settings, context = engine.getSqlContext(), engine.getJavaSparkContext()
    before = {name: settings.getConf(name) for name in _CALENDAR}

    def put(name: str, value: str, of_jobs: str | None) -> None:
        settings.setConf(name, value)
        # Tasks that are none of a query's have no other settings than these.
        context.setLocalProperty(name, of_jobs)

    for name, value in _CALENDAR.items():
        put(name, value, value)
    try:
        yield
    finally:
        for name, value in before.items():
            put(name, value, None)


def owner(gateway: Gateway, pipeline: Pipeline) -> Any:
    """What a plan of this pipeline's carries."""
    extra = gateway.jvm.java.util.HashMap()
    extra.put(OWNER, pipeline.name)
    return gateway.hudi.common.util.Option.of(extra)


def write_stats(gateway: Gateway, pipeline: Pipeline, instant: str, made: Any) -> Any:
    """The write stats of all files; this is where they are written."""
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
    """See `commit.completing`; `in_time` is called there both times."""
    with commit.client(gateway, pipeline) as writer:
        # The newest instant says what the table's columns are: those of now, not of when the files were written.
        schema = writer.getConfig().getSchema()
        metadata.addMetadata(gateway.hudi.common.model.HoodieCommitMetadata.SCHEMA_KEY, schema)
        with commit.completing(gateway, writer, instant, metadata, in_time, in_time) as table:
            yield table
