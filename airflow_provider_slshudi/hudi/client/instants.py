"""Makes the table, and opens instants on its timeline, with Hudi's own classes (read in Hudi 1.2.0).

Nothing here decides anything. `open` and `append` call it without the pipeline's lease, all others under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION, Table, Upsert
from airflow_provider_slshudi.exceptions import TableError, TableMismatch, TimelineUnreadable
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi import evolution, properties
from airflow_provider_slshudi.hudi.client import clock
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION
from airflow_provider_slshudi.hudi.layout import PROPERTIES, Phase
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

_MODE, _DELETES, _FOLDERS = "merge mode", "delete marker", "folders that name the partition's column"
_PROPERTIES = {
    "name": "hoodie.table.name",
    "type": "hoodie.table.type",
    "partition field": "hoodie.table.partition.fields",
    "record key": "hoodie.table.recordkey.fields",
    _MODE: "hoodie.record.merge.mode",
    "partial update": "hoodie.table.partial.update.mode",
    _FOLDERS: "hoodie.datasource.write.hive_style_partitioning",
    _DELETES: "hoodie.record.merge.property.hoodie.payload.delete.field",
}
_FIRST = "20000101000000000"
"""The time of the commit that tables of version 6 begin with."""
_ORDERED = "ordering field"
_PAYLOAD = "hoodie.compaction.payload.class"
_MODES = {
    "org.apache.hudi.common.model.DefaultHoodieRecordPayload": "EVENT_TIME_ORDERING",
    "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
}
# Readers of Hudi before 1.1 merge by the latter alone, and Hudi's way from version 9 to 8 leaves only that.
_ORDERING = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
# Hudi 1.2.0 makes partial updates of these classes, by merge mode; it stores merge and partial update mode instead.
_PARTIAL_UPDATE = {
    "event_time": "org.apache.hudi.common.model.PartialUpdateAvroPayload",
    "commit_time": "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload",
}


def create_table(gateway: Gateway, pipeline: Pipeline) -> None:
    """Makes an empty table (hudi.apache.org/docs/sql_ddl)."""
    table = pipeline.table
    builder = (
        gateway.hudi.common.table.HoodieTableMetaClient.newTableBuilder()
        .setTableType(table.type.upper())
        .setTableName(table.name)
        .setTableVersion(table.version_of_new)
        .setTableCreateSchema(avro_schema(pipeline))
        .setCommitTimezone(clock.zone_of_new(gateway))
    )
    builder = builder.setKeyGeneratorClassProp(key_generator(table))
    if table.partition is not None:
        builder = (
            builder.setPartitionFields(table.partition.name)
            .setHiveStylePartitioningEnable(True)
            .setUrlEncodePartitioning(pipeline.escapes_folders)
        )
    if table.upsert is not None:
        builder = _with_merging(gateway, builder, table.upsert)
    builder.initTable(gateway.storage_conf, hadoop_path(table.path))
    storage = Storage(table.path)
    name_ordering(storage, table)
    if table.version_of_new == FORMER_VERSION:
        # Hudi 1.2.0 writes its newer name for it alone, which Daft does not know.
        properties.put(storage, "hoodie.table.keygenerator.class", key_generator(table))
        _begin(gateway, storage)


def _begin(gateway: Gateway, storage: Storage) -> None:
    """Completes an empty commit that is older than each batch, in a table of version 6 without a completed one.

    Readers take files of an instant for committed if it is older than all that are completed. From version 8 on they go
    by completion times. By its operation it is a compaction, which changes no row, so no step takes it for a batch.
    """
    timeline = Timeline.load(storage)
    if timeline.completed(*CHANGES):
        return
    meta = meta_client(gateway, storage.uri)
    begun, active = timeline.get(_FIRST), meta.getActiveTimeline()
    requested = gateway.requested(meta, _FIRST, COMMIT_ACTION)
    if begun is None:
        active.createNewInstant(requested)
    if begun is None or begun.phase is Phase.REQUESTED:
        active.transitionRequestedToInflight(requested, gateway.hudi.common.util.Option.empty())
    metadata = gateway.hudi.common.model.HoodieCommitMetadata()
    metadata.setOperationType(gateway.hudi.common.model.WriteOperationType.COMPACT)
    done = gateway.hudi.common.util.Option.of(metadata)
    active.saveAsComplete(False, gateway.inflight(meta, _FIRST, COMMIT_ACTION), done)
    storage.sync()


def name_ordering(storage: Storage, table: Table) -> None:
    """Names the ordering field as Hudi does and as Hudi before 1.1 did; the caller holds the lease."""
    if table.upsert is not None and table.upsert.ordering_field is not None:
        for name in _ORDERING:
            properties.put(storage, name, table.upsert.ordering_field)


def key_generator(table: Table) -> str:
    """Hudi's class that makes record keys and partition paths of the table (hudi.apache.org/docs/key_generation)."""
    if table.partition is None:
        name = "NonpartitionedKeyGenerator"
    elif table.upsert is not None and len(table.upsert.record_key) > 1:
        name = "ComplexKeyGenerator"
    else:
        name = "SimpleKeyGenerator"
    return f"org.apache.hudi.keygen.{name}"


def _with_merging(gateway: Gateway, builder: Any, upsert: Upsert) -> Any:
    builder = builder.setRecordKeyFields(",".join(upsert.record_key))
    if upsert.ordering_field is not None:
        builder = builder.setOrderingFields(upsert.ordering_field)
    if upsert.delete_marker is not None:
        builder = builder.setRecordDeleteFieldAndMarker(upsert.delete_marker, "true")
    if upsert.partial_update:
        return builder.setPayloadClassName(_PARTIAL_UPDATE[upsert.mode])
    modes = gateway.java_class("org.apache.hudi.common.config.RecordMergeMode").getEnumConstants()
    merge_mode = f"{upsert.mode.upper()}_ORDERING"
    return builder.setRecordMergeMode(next(mode for mode in modes if mode.toString() == merge_mode))


def check_table(gateway: Gateway, pipeline: Pipeline, described: Mapping[str, str] | None = None) -> None:
    """Checks that the existing table is the one that the pipeline describes, or can become it.

    Callers that have read the table's properties pass them as `described`.

    Raises:
        TableMismatch: it is another table, or has an index that batches do not keep up to date.
        ColumnMismatch: its columns cannot become the pipeline's.
        TimelineUnreadable: it has no properties.
    """
    table, storage = pipeline.table, Storage(pipeline.table.path)
    described = described or properties.read_settled(storage)
    if described is None:
        raise TimelineUnreadable(f"{storage.uri}: {PROPERTIES} was there and is gone; try again", table=storage.uri)
    version = described.get(properties.VERSION, "")
    required_properties = _properties(table)
    orders = [described.get(name, "") for name in _ORDERING]
    table_properties = {field: described.get(name, "") for field, name in _PROPERTIES.items()}
    table_properties[_ORDERED] = next(filter(None, orders), "")
    if not table_properties[_MODE]:
        # Until version 8, Hudi told the merge mode by a class, and what deletes a row by its writers' options alone; of
        # a copy-on-write table, whose readers merge nothing, also the class.
        payload = described.get(_PAYLOAD, "")
        is_merged = payload or required_properties["type"] == "MERGE_ON_READ" or version != str(FORMER_VERSION)
        table_properties[_MODE] = _MODES.get(payload, "") if is_merged else required_properties.get(_MODE, "")
        table_properties[_DELETES] = table_properties[_DELETES] or required_properties.get(_DELETES, "")
    compared_fields = {field: table_properties[field] for field in required_properties}
    if compared_fields != required_properties:
        differ = "; ".join(
            f"{field}: {compared_fields[field] or 'none'} there, {required_properties[field] or 'none'} in the file"
            for field in compared_fields
            if compared_fields[field] != required_properties[field]
        )
        raise TableMismatch(
            f"{table.path} is another Hudi table than pipeline {pipeline.name} describes ({differ}): "
            "correct the pipeline file or choose another path",
            table=table.path,
        )
    if table.version is not None and version != str(table.version):
        raise TableMismatch(
            f"{table.path} is of table version {version}, and pipeline {pipeline.name} says {table.version}: run "
            f"`slshudi table version {pipeline.name} --to {table.version}`, or correct `table.version`",
            table=table.path,
        )
    if version.isdecimal() and (why := table.refusal_of(int(version))):
        raise TableMismatch(f"{table.path} is of table version {version}: {why}", table=table.path)
    if not all(orders):
        name_ordering(storage, table)
    Indexes.of(storage, described).require_kept(storage.uri)
    evolution.require_fit(storage, Timeline.load(storage), pipeline)
    if version == str(FORMER_VERSION):
        _begin(gateway, storage)


def _properties(table: Table) -> dict[str, str]:
    """The values that the table's properties must have, by the names of `_PROPERTIES`; empty if not set."""
    required_properties = {
        "name": table.name,
        "type": table.type.upper(),
        "partition field": table.partition.name if table.partition else "",
        **({_FOLDERS: "true"} if table.partition else {}),
    }
    if table.upsert is not None:
        required_properties |= {
            "record key": ",".join(table.upsert.record_key),
            _ORDERED: table.upsert.ordering_field or "",
            _MODE: f"{table.upsert.mode.upper()}_ORDERING",
            "partial update": "IGNORE_DEFAULTS" if table.upsert.partial_update else "",
            _DELETES: table.upsert.delete_marker or "",
        }
    return required_properties


def meta_client(gateway: Gateway, base: str) -> Any:
    """A meta client that has read the table's properties."""
    return gateway.meta_client(hadoop_path(base))


def new_instant_time(gateway: Gateway, base: str, meta: Any = None) -> str:
    """An instant time from Hudi's own generator; nothing is written. Callers with a meta client pass it as `meta`."""
    return str((meta or meta_client(gateway, base)).createNewInstantTime(False))


def request(gateway: Gateway, base: str, instant: str, action: str = COMMIT_ACTION, meta: Any = None) -> None:
    """Puts the instant on the timeline as REQUESTED, and lets tasks write files of it.

    Callers with a meta client that has not read the timeline yet pass it as `meta`.

    Args:
        gateway: to Hudi's classes.
        base: the URI of the table's folder.
        instant: the new instant's time.
        action: Hudi's name of it, such as commit.
        meta: a meta client that has not read the timeline yet.

    Raises:
        TableError: the table is being restored.
    """
    meta = meta or meta_client(gateway, base)
    timeline = meta.getActiveTimeline()
    if timeline.getRestoreTimeline().filterInflightsAndRequested().countInstants():
        raise TableError(
            f"{base}: the table is being restored; finish the restore, then run again", table=base, instant=instant
        )
    fencing.admit(Storage(base), instant)
    timeline.createNewInstant(gateway.requested(meta, instant, action))


def to_inflight(gateway: Gateway, base: str, instant: str, action: str = COMMIT_ACTION) -> None:
    """Moves the instant from REQUESTED to INFLIGHT.

    Args:
        gateway: to Hudi's classes.
        base: the URI of the table's folder.
        instant: one that is REQUESTED.
        action: Hudi's name of it, such as commit.
    """
    meta = meta_client(gateway, base)
    requested = gateway.requested(meta, instant, action)
    meta.getActiveTimeline().transitionRequestedToInflight(requested, gateway.hudi.common.util.Option.empty())
