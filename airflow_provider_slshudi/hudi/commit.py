"""Commits and rolls back with Hudi's write client (hudi.apache.org/docs/writing_data, read in 1.2.0).

Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider_slshudi.config import PROTOCOL_OPTIONS, Pipeline, Upsert
from airflow_provider_slshudi.hudi.gateway import Gateway, hadoop_path
from airflow_provider_slshudi.hudi.instants import action
from airflow_provider_slshudi.hudi.schema import avro_schema

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

    Hudi does not fence: called twice this leaves two completed files for one instant, and a marked file that
    `stats` does not list is deleted. Callers hold the lease and have compared `stats` with what was recorded.
    `in_time` is called right before, and raises where it is too late to commit.
    """
    mapper = gateway.hudi.common.util.JsonUtils.getObjectMapper()
    stat_class = gateway.java_class(_WRITE_STATS[pipeline.table.type])
    java_stats = gateway.jvm.java.util.ArrayList()
    for stat in stats:
        java_stats.add(mapper.readValue(json.dumps(dict(stat)), stat_class))
    java_extra = gateway.jvm.java.util.HashMap()
    for key, value in extra.items():
        java_extra.put(key, value)
    with client(gateway, pipeline) as writer:
        in_time()
        writer.commitStats(instant, java_stats, gateway.hudi.common.util.Option.of(java_extra), action(pipeline.table))


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending instant off the timeline and deletes the files that its markers name."""
    with client(gateway, pipeline) as writer:
        writer.rollback(instant)


def upsert_options(upsert: Upsert) -> dict[str, str]:
    """What a writer has to be told of keys and merging; the rest is in the table's own properties."""
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
def client(gateway: Gateway, pipeline: Pipeline, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Hudi's write client for the pipeline's table, with `more` options; none of them is a protocol's one."""
    table = pipeline.table
    # A server that would share the timeline with executors: a commit has none.
    options = {**table.options, **(more or {}), **PROTOCOL_OPTIONS, "hoodie.embed.timeline.server": "false"}
    if table.upsert is not None:
        options |= upsert_options(table.upsert)
    if table.partition is not None:
        options["hoodie.datasource.write.partitionpath.field"] = table.partition.name
        options["hoodie.datasource.write.hive_style_partitioning"] = "true"
        options["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    properties = gateway.jvm.java.util.Properties()
    for key, value in options.items():
        properties.setProperty(key, value)
    config = (
        gateway.hudi.config.HoodieWriteConfig.newBuilder()
        .withPath(hadoop_path(table.path))
        .withSchema(avro_schema(pipeline))
        .forTable(table.name)
        .withProps(properties)
        .build()
    )
    engine = gateway.hudi.client.common.HoodieSparkEngineContext(gateway.jsc)
    writer = gateway.hudi.client.SparkRDDWriteClient(engine, config)
    # Without this the metadata table's update inside commitStats ends in a NullPointerException.
    operation = gateway.hudi.common.model.WriteOperationType
    writer.setOperationType(operation.UPSERT if table.upsert is not None else operation.BULK_INSERT)
    try:
        yield writer
    finally:
        writer.close()
