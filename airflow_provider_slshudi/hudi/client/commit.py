"""Completes an instant with Hudi's write client (hudi.apache.org/docs/writing_data, read in 1.2.0).

Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi import evolution, markers
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import require_none_later
from airflow_provider_slshudi.hudi.client.writer import client, operation_of
from airflow_provider_slshudi.hudi.instant_metadata import action
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach

# By the table's type; the second one also tells of log files.
_WRITE_STATS = {
    "copy_on_write": "org.apache.hudi.common.model.HoodieWriteStat",
    "merge_on_read": "org.apache.hudi.common.model.HoodieDeltaWriteStat",
}


def commit(
    gateway: Gateway,
    pipeline: Pipeline,
    instant: str,
    stats: Sequence[Mapping[str, Any]],
    extra: Mapping[str, str],
    in_time: Callable[[], None] = lambda: None,
) -> None:
    """Completes an INFLIGHT instant with the files that `stats` list and `extra` in its metadata.

    Hudi does not fence: called twice, this leaves two completed files for one instant, and deletes marked files that
    `stats` does not list. Callers hold the lease and have compared `stats` with the record.
    The commit carries the table's schema with the pipeline's columns, see `evolution.schema_to_commit`.
    `in_time` is called before any change and again right before the completion; it raises if this driver may not
    complete the instant any more. To make room for the second call, this runs the parts of Hudi's `commitStats` itself.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: as its file was when the batch was planned.
        instant: the batch's.
        stats: Hudi's write stats as JSON, one for each file.
        extra: the commit's extra metadata.
        in_time: see above.
    """
    mapper = gateway.hudi.common.util.JsonUtils.getObjectMapper()
    stat_class = gateway.java_class(_WRITE_STATS[pipeline.table.type])
    java_stats = gateway.jvm.java.util.ArrayList()
    for stat in stats:
        java_stats.add(mapper.readValue(json.dumps(dict(stat)), stat_class))
    java_extra = gateway.jvm.java.util.HashMap()
    for key, value in extra.items():
        java_extra.put(key, value)
    storage = Storage(pipeline.table.path)
    timeline = Timeline.load(storage)
    schema = evolution.schema_to_commit(storage, timeline, pipeline)
    name, option = action(pipeline.table), gateway.hudi.common.util.Option
    with client(gateway, pipeline, schema=schema, timeline=timeline) as writer:
        none = gateway.jvm.java.util.HashMap()
        metadata = gateway.hudi.common.util.CommitUtils.buildMetadata(
            java_stats,
            none,
            option.of(java_extra),
            operation_of(gateway, pipeline),
            writer.getConfig().getSchema(),
            name,
        )

        def last_look() -> None:
            reach(Point.COMMIT_LISTED)
            in_time()
            reach(Point.COMMIT_LOOKED)

        files = {str(stat["path"]) for stat in stats}
        with completing(gateway, writer, storage, instant, metadata, in_time, last_look, files) as table:
            inflight = gateway.inflight(table.getMetaClient(), instant, name)
            table.getActiveTimeline().saveAsComplete(False, inflight, option.of(metadata))
        _tell_of_indexed_columns(gateway, writer, metadata)


@contextmanager
def completing(
    gateway: Gateway,
    writer: Any,
    storage: Storage,
    instant: str,
    metadata: Any,
    in_time: Callable[[], None],
    last_look: Callable[[], None],
    files: Set[str] | None = None,
) -> Iterator[Any]:
    """Takes Hudi's steps before and after the block, which completes the instant; yields Hudi's table.

    Before: deletes files that are marked but not listed, and updates the metadata table. After: deletes the markers.
    `files` are those that the metadata lists, where the caller knows them: then Hudi need not look at each partition's
    markers. `in_time` is called before all that, `last_look` right before the block; each raises if the instant must
    not be completed. On a local disk all of it is durable before the completion is written, and the completion before
    the caller goes on: a loss of power leaves no completion that tells of files, or of entries of the metadata table,
    which it cut off.

    Args:
        gateway: of a driver with a SparkContext.
        writer: Hudi's write client of the table.
        storage: the table's.
        instant: the one to complete.
        metadata: Hudi's commit metadata (HoodieCommitMetadata).
        in_time: is called before any change.
        last_look: is called right before the block.
        files: paths within the table that `metadata` lists; None: not known.
    """
    config, engine = writer.getConfig(), writer.getEngineContext()
    table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
    require_none_later(writer, storage, instant)
    in_time()
    if files is None or not files >= set(markers.marked(storage, instant)):
        table.finalizeWrite(engine, instant, metadata.getWriteStats())
    metadata_writer = table.getMetadataWriter(instant)
    if metadata_writer.isPresent():
        try:
            metadata_writer.get().update(metadata, instant)
        finally:
            metadata_writer.get().close()
    storage.sync()
    last_look()
    yield table
    storage.sync()
    # Hudi's own deletion, which takes no failure for an error either, asks an object store three times as much.
    with suppress(TableError):
        markers.forget(storage, instant)


def _tell_of_indexed_columns(gateway: Gateway, writer: Any, metadata: Any) -> None:
    """Tells readers which columns have statistics, as Hudi does after each commit."""
    config = writer.getConfig()
    metadata_config = config.getMetadataConfig()
    if not (config.isMetadataTableEnabled() and metadata_config.isColumnStatsIndexEnabled()):
        return
    meta = gateway.meta_client(config.getBasePath())
    records = gateway.hudi.common.util.Option.of(config.getRecordMerger().getRecordType())
    columns = gateway.hudi.metadata.HoodieTableMetadataUtil.getColumnsToIndex(metadata, meta, metadata_config, records)
    names = gateway.jvm.java.util.ArrayList(columns.keySet())
    index = gateway.hudi.index.HoodieSparkIndexClient(config, writer.getEngineContext())
    index.createOrUpdateColumnStatsIndexDefinition(meta, names)


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending instant off the timeline and deletes the files that its markers name."""
    with client(gateway, pipeline) as writer:
        require_none_later(writer, Storage(pipeline.table.path), instant)
        writer.rollback(instant)
