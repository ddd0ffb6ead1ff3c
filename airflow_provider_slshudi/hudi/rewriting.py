"""What clustering and compaction share: files are written in the place of others, in three parts.

A plan is put on the timeline; files are written as it says; the files become the table's. In between a manifest lies
beside the timeline: Hudi's own commit metadata, as JSON. Nothing here decides anything: callers hold the leases and
have read the timeline. A plan carries the pipeline's name, so that nobody else's is taken for ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableError
from airflow_provider_slshudi.hudi import commit, exchange
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Instant, Timeline

_OWNER = "slshudi.service"

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


@dataclass(frozen=True)
class Written:
    """What was made of what.

    Attributes:
        metadata: Hudi's own commit metadata, as its JSON.
        read_files, read_bytes: the files that were read, and their bytes.
        paths, bytes: the files that were written, by their paths within the table, and their bytes.
    """

    metadata: str
    read_files: int
    read_bytes: int
    paths: list[str]
    bytes: int

    @classmethod
    def of(cls, storage: Storage, metadata: Any, stats: Any, read: list[str]) -> Written:
        """What Hudi's metadata and write stats say."""
        size = sum(stat.getFileSizeInBytes() for stat in stats)
        files = [str(stat.getPath()) for stat in stats]
        return cls(str(metadata.toJsonString()), len(read), sum(map(storage.size, read)), files, size)


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
    extra.put(_OWNER, pipeline.name)
    return gateway.hudi.common.util.Option.of(extra)


def planned_by_us(timeline: Timeline, instant: Instant, pipeline: str) -> bool:
    """Whether this pipeline's services planned a pending instant; a plan that was cut off is nobody else's work."""
    plan = timeline.plan(instant)
    return not plan or (plan.get("extraMetadata") or {}).get(_OWNER) == pipeline


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


def read_manifest(storage: Storage, instant: str) -> Written:
    """What was left by who wrote the files.

    Raises:
        ManifestError: it did not end well.
    """
    content = storage.read(_path(instant))
    if content is None:
        raise ManifestError(
            f"{storage.uri}: no manifest for instant {instant}: what was to write its files did not end well",
            table=storage.uri,
            transaction="",
            instant=instant,
        )
    return Written(**json.loads(content))


def write_manifest(storage: Storage, instant: str, written: Written) -> None:
    """Leaves what was written: the last act."""
    storage.write(_path(instant), json.dumps(asdict(written)).encode())


def manifests(storage: Storage) -> list[str]:
    """The instants that have one; completed ones too, where their run died before it removed it."""
    names = storage.names(exchange.folder("").rstrip("/")) or []
    return [name for name in names if name.isdigit() and has_manifest(storage, name)]


def has_manifest(storage: Storage, instant: str) -> bool:
    """Whether the instant's files are all written."""
    return storage.exists(_path(instant))


def _path(instant: str) -> str:
    return f"{exchange.folder(instant)}/rewrite.json"
