"""Makes the table, and opens instants on its timeline, with Hudi's own classes (read in Hudi 1.2.0).

Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.exceptions import TableError, TableMismatch
from airflow_provider_slshudi.hudi import evolution
from airflow_provider_slshudi.hudi.gateway import Gateway, hadoop_path
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Timeline

ACTION = "commit"


def create_table(gateway: Gateway, pipeline: Pipeline) -> None:
    """Makes an empty table (hudi.apache.org/docs/sql_ddl)."""
    table = pipeline.table
    builder = (
        gateway.hudi.common.table.HoodieTableMetaClient.newTableBuilder()
        .setTableType("COPY_ON_WRITE")
        .setTableName(table.name)
        .setTableCreateSchema(avro_schema(pipeline))
    )
    if table.partition is None:
        builder = builder.setKeyGeneratorClassProp("org.apache.hudi.keygen.NonpartitionedKeyGenerator")
    else:
        builder = (
            builder.setPartitionFields(table.partition.name)
            .setKeyGeneratorClassProp("org.apache.hudi.keygen.SimpleKeyGenerator")
            .setHiveStylePartitioningEnable(True)
            .setUrlEncodePartitioning(True)
        )
    builder.initTable(gateway.storage_conf, hadoop_path(table.path))


def check_table(gateway: Gateway, pipeline: Pipeline) -> None:
    """Looks whether the table that is there is the one that the pipeline describes, or can become it.

    Raises:
        TableMismatch: it is another.
        ColumnMismatch: its columns cannot become the pipeline's.
    """
    table = pipeline.table
    config = gateway.meta_client(hadoop_path(table.path)).getTableConfig()
    fields = config.getPartitionFields()
    found = (
        str(config.getTableName()),
        ",".join(fields.get()) if fields.isPresent() else "",
        str(config.getTableType().name()),
    )
    wanted = (table.name, table.partition.name if table.partition else "", "COPY_ON_WRITE")
    if found != wanted:
        raise TableMismatch(
            f"{table.path} is a Hudi table with (name, partition field, type) {found}, but pipeline {pipeline.name} "
            f"describes {wanted}: correct the pipeline file or choose another path",
            table=table.path,
        )
    storage = Storage(table.path)
    evolution.require_fit(storage, Timeline.load(storage), pipeline)


def new_instant_time(gateway: Gateway, base: str) -> str:
    """An instant time from Hudi's own generator; nothing is written."""
    return str(gateway.meta_client(hadoop_path(base)).createNewInstantTime(False))


def request(gateway: Gateway, base: str, instant: str) -> None:
    """Puts the instant on the timeline as REQUESTED.

    Raises:
        TableError: the table is being restored.
    """
    meta = gateway.meta_client(hadoop_path(base))
    timeline = meta.getActiveTimeline()
    if timeline.getRestoreTimeline().filterInflightsAndRequested().countInstants():
        raise TableError(
            f"{base}: the table is being restored; finish the restore, then run again", table=base, instant=instant
        )
    timeline.createNewInstant(gateway.requested(meta, instant, ACTION))


def to_inflight(gateway: Gateway, base: str, instant: str) -> None:
    """Moves the instant from REQUESTED to INFLIGHT."""
    meta = gateway.meta_client(hadoop_path(base))
    requested = gateway.requested(meta, instant, ACTION)
    meta.getActiveTimeline().transitionRequestedToInflight(requested, gateway.hudi.common.util.Option.empty())
