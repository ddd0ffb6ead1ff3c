"""Commits and rolls back with Hudi's write client (hudi.apache.org/docs/writing_data, read in 1.2.0).

Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider_slshudi.config.options import PROTOCOL_OPTIONS
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import Upsert
from airflow_provider_slshudi.hudi import evolution, statistics
from airflow_provider_slshudi.hudi.actions import action
from airflow_provider_slshudi.hudi.client.gateway import Gateway, hadoop_path
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.storage import Storage

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
            java_stats, none, option.of(java_extra), _operation(gateway, pipeline), writer.getConfig().getSchema(), name
        )

        def last_look() -> None:
            reach(Point.COMMIT_LISTED)
            in_time()
            reach(Point.COMMIT_LOOKED)

        with completing(gateway, writer, instant, metadata, in_time, last_look) as table:
            inflight = gateway.inflight(table.getMetaClient(), instant, name)
            table.getActiveTimeline().saveAsComplete(False, inflight, option.of(metadata))
        _tell_of_indexed_columns(gateway, writer, metadata)


@contextmanager
def completing(
    gateway: Gateway,
    writer: Any,
    instant: str,
    metadata: Any,
    in_time: Callable[[], None],
    last_look: Callable[[], None],
) -> Iterator[Any]:
    """Takes Hudi's steps before and after the block, which completes the instant; yields Hudi's table.

    Before: deletes files that are marked but not listed, and updates the metadata table. After: deletes the markers.
    `in_time` is called before all that, `last_look` right before the block; each raises if the instant must not be
    completed.
    """
    config, engine = writer.getConfig(), writer.getEngineContext()
    table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
    in_time()
    table.finalizeWrite(engine, instant, metadata.getWriteStats())
    metadata_writer = table.getMetadataWriter(instant)
    if metadata_writer.isPresent():
        try:
            metadata_writer.get().update(metadata, instant)
        finally:
            metadata_writer.get().close()
    last_look()
    yield table
    markers = gateway.hudi.table.marker.WriteMarkersFactory.get(config.getMarkersType(), table, instant)
    markers.quietDeleteMarkerDir(engine, config.getMarkersDeleteParallelism())


def _tell_of_indexed_columns(gateway: Gateway, writer: Any, metadata: Any) -> None:
    """Tells readers which columns have statistics, as Hudi does after each commit."""
    config = writer.getConfig()
    wanted = config.getMetadataConfig()
    if not (config.isMetadataTableEnabled() and wanted.isColumnStatsIndexEnabled()):
        return
    meta = gateway.meta_client(config.getBasePath())
    records = gateway.hudi.common.util.Option.of(config.getRecordMerger().getRecordType())
    columns = gateway.hudi.metadata.HoodieTableMetadataUtil.getColumnsToIndex(metadata, meta, wanted, records)
    names = gateway.jvm.java.util.ArrayList(columns.keySet())
    index = gateway.hudi.index.HoodieSparkIndexClient(config, writer.getEngineContext())
    index.createOrUpdateColumnStatsIndexDefinition(meta, names)


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending instant off the timeline and deletes the files that its markers name."""
    with client(gateway, pipeline) as writer:
        writer.rollback(instant)


def upsert_options(upsert: Upsert) -> dict[str, str]:
    """A writer's options about keys and merging; the rest is in the table's own properties."""
    options = {
        "hoodie.datasource.write.recordkey.field": ",".join(upsert.record_key),
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(upsert.buckets),
        "hoodie.bucket.index.hash.field": ",".join(upsert.record_key),
        "hoodie.write.record.merge.mode": f"{upsert.mode.upper()}_ORDERING",
    }
    if upsert.ordering_field is not None:
        options["hoodie.table.ordering.fields"] = upsert.ordering_field
    if upsert.delete_marker is not None:
        options["hoodie.payload.delete.field"] = upsert.delete_marker
        options["hoodie.payload.delete.marker"] = "true"
    return options


@contextmanager
def client(
    gateway: Gateway,
    pipeline: Pipeline,
    more: Mapping[str, str] | None = None,
    schema: str | None = None,
    timeline: Timeline | None = None,
    bounded: Collection[str] | None = None,
) -> Iterator[Any]:
    """Hudi's write client for the pipeline's table, with `more` options; `PROTOCOL_OPTIONS` always win.

    It reads and writes by `schema` (Avro), by default the table's own, whatever the pipeline's file says by now.
    Callers that have loaded the timeline pass it as `timeline`. Only a rebuild of the metadata table passes `bounded`,
    the columns that it is to have bounds of.

    Raises:
        TableMismatch: the table has a foreign index.
    """
    table = pipeline.table
    storage = Storage(table.path)
    timeline = timeline or Timeline.load(storage)
    if schema is None:
        schema = evolution.schema_to_commit(storage, timeline) or avro_schema(pipeline)
    indexes = statistics.Indexes.of(storage)
    if bounded is None:
        indexes.require_kept(storage.uri)
        bounded = indexes.bounded if timeline.completed(*CHANGES) else None
    options = {**table.options, **statistics.options(pipeline, schema, bounded), **(more or {}), **PROTOCOL_OPTIONS}
    # The server would share the timeline with executors, which a commit does not have.
    options["hoodie.embed.timeline.server"] = "false"
    if table.upsert is not None:
        options |= upsert_options(table.upsert)
    if table.partition is not None:
        options["hoodie.datasource.write.partitionpath.field"] = table.partition.name
        options["hoodie.datasource.write.hive_style_partitioning"] = "true"
        options["hoodie.datasource.write.partitionpath.urlencode"] = str(pipeline.escapes_folders).lower()
    properties = gateway.jvm.java.util.Properties()
    for key, value in options.items():
        properties.setProperty(key, value)
    config = (
        gateway.hudi.config.HoodieWriteConfig.newBuilder()
        .withPath(hadoop_path(table.path))
        .withSchema(schema)
        .forTable(table.name)
        .withProps(properties)
        .build()
    )
    engine = gateway.hudi.client.common.HoodieSparkEngineContext(gateway.jsc)
    writer = gateway.hudi.client.SparkRDDWriteClient(engine, config)
    # Without this the metadata table's update ends in a NullPointerException.
    writer.setOperationType(_operation(gateway, pipeline))
    try:
        yield writer
    finally:
        writer.close()


def _operation(gateway: Gateway, pipeline: Pipeline) -> Any:
    operation = gateway.hudi.common.model.WriteOperationType
    return operation.UPSERT if pipeline.table.upsert is not None else operation.BULK_INSERT
