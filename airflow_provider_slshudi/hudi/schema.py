"""A table's columns in the languages that have to agree: Arrow for base files, Avro for commits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config import EventTimePartition, Pipeline

if TYPE_CHECKING:
    import pyarrow as pa

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
_AVRO: dict[str, Any] = {
    "string": "string",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "map": {"type": "map", "values": ["null", "string"]},
}


def table_columns(pipeline: Pipeline) -> list[tuple[str, str]]:
    """(name, type) of each column of the table, in its order; type as in the pipeline file, or `map`."""
    columns = [(column.name, str(column.type)) for column in pipeline.columns]
    if pipeline.rest_column is not None:
        columns.append((pipeline.rest_column, "map"))
    if isinstance(pipeline.table.partition, EventTimePartition):
        columns.append((pipeline.table.partition.name, "string"))
    return columns


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a base file's column."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map": pa.map_(pa.string(), pa.string()),
    }
    return types[name]


def avro_schema(pipeline: Pipeline) -> str:
    """The table's schema as Hudi keeps it, every column nullable (avro.apache.org/docs/1.11.1/specification)."""
    fields = [
        {"name": name, "type": ["null", _AVRO[type_]], "default": None} for name, type_ in table_columns(pipeline)
    ]
    name = pipeline.table.name
    return json.dumps({"type": "record", "name": f"{name}_record", "namespace": f"hoodie.{name}", "fields": fields})
