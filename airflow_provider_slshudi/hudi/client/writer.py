"""Hudi's write client (hudi.apache.org/docs/writing_data, read in 1.2.0), with the options of a pipeline's table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_provider_slshudi.config.options import PROTOCOL_OPTIONS
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import Upsert
from airflow_provider_slshudi.hudi import evolution, properties, statistics
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

WRITE_VERSION = "hoodie.write.table.version"
"""The table version that a client writes."""


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

    It reads and writes by `schema` (Avro), by default the table's own, and not by the pipeline's file of now.
    Callers that have loaded the timeline pass it as `timeline`. Only a rebuild of the metadata table passes `bounded`,
    the columns that it is to have bounds of.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: names the table and its options.
        more: Hudi's options beside the pipeline's.
        schema: Avro as JSON.
        timeline: the table's, where the caller has loaded it.
        bounded: columns with bounds, see above.

    Raises:
        TableMismatch: the table has a foreign index.
    """
    table = pipeline.table
    storage = Storage(table.path)
    timeline = timeline or Timeline.load(storage)
    if schema is None:
        schema = evolution.schema_to_commit(storage, timeline) or avro_schema(pipeline)
    table_properties = properties.read(storage) or {}
    indexes = statistics.Indexes.of(storage, table_properties)
    if bounded is None:
        indexes.require_kept(storage.uri)
        bounded = indexes.bounded if timeline.completed(*CHANGES) or not indexes.are_told else None
    else:
        bounded = [name for name in statistics.wanted(pipeline, schema) if name in bounded]
    options = {**table.options, **statistics.options(pipeline, schema, bounded), **(more or {}), **PROTOCOL_OPTIONS}
    # The server would share the timeline with executors, which a commit does not have.
    options["hoodie.embed.timeline.server"] = "false"
    if properties.VERSION in table_properties:
        # Hudi's default is its newest version, also for a table of an older one.
        options[WRITE_VERSION] = table_properties[properties.VERSION]
    if table.upsert is not None:
        options |= upsert_options(table.upsert)
    if table.partition is not None:
        options["hoodie.datasource.write.partitionpath.field"] = table.partition.name
        options["hoodie.datasource.write.hive_style_partitioning"] = "true"
        options["hoodie.datasource.write.partitionpath.urlencode"] = str(pipeline.escapes_folders).lower()
    java_properties = gateway.jvm.java.util.Properties()
    for key, value in options.items():
        java_properties.setProperty(key, value)
    config = (
        gateway.hudi.config.HoodieWriteConfig.newBuilder()
        .withPath(hadoop_path(table.path))
        .withSchema(schema)
        .forTable(table.name)
        .withProps(java_properties)
        .build()
    )
    engine = gateway.hudi.client.common.HoodieSparkEngineContext(gateway.jsc)
    writer = gateway.hudi.client.SparkRDDWriteClient(engine, config)
    # Without this the metadata table's update ends in a NullPointerException.
    writer.setOperationType(operation_of(gateway, pipeline))
    try:
        yield writer
    finally:
        writer.close()


def operation_of(gateway: Gateway, pipeline: Pipeline) -> Any:
    """What a batch of the table is to Hudi."""
    operation = gateway.hudi.common.model.WriteOperationType
    return operation.UPSERT if pipeline.table.upsert is not None else operation.BULK_INSERT
