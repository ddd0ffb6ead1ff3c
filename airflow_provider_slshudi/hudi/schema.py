"""A table's columns as Arrow has them in base files and as Avro has them in commits, and back from Avro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.columns import REST
from airflow_provider_slshudi.config.datatypes import Array, DataType, Decimal, Map, Scalar, Struct, parse_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import EventTimePartition

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_KEY = "_hoodie_record_key"
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    RECORD_KEY,
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
}
_SCALARS = {avro: Scalar(name) for name, avro in _AVRO.items() if isinstance(avro, str)}


def table_columns(pipeline: Pipeline) -> list[tuple[str, str]]:
    """(name, type) of each column of the table, in its order; type as in the pipeline file, which is Spark's DDL."""
    columns = [(name, column.type) for column in pipeline.columns for name in (column.name, *column.renamed_from)]
    if pipeline.rest_column is not None:
        columns.append((pipeline.rest_column, REST))
    if isinstance(pipeline.table.partition, EventTimePartition):
        columns.append((pipeline.table.partition.name, "string"))
    return columns


def avro_schema(pipeline: Pipeline) -> str:
    """The table's schema as Hudi keeps it, every column nullable (avro.apache.org/docs/1.11.1/specification).

    Records and decimals within are named as Spark's writer names them, by the fields that lead to them.
    """
    return json.dumps(_table_record(pipeline))


def complete_schema(pipeline: Pipeline) -> str:
    """As `avro_schema`, with Hudi's own columns first, as log files carry it."""
    record = _table_record(pipeline)
    record["fields"] = [
        *({"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS),
        *record["fields"],
    ]
    return json.dumps(record)


def arrow_schema(pipeline: Pipeline) -> pa.Schema:
    """The table's columns as base files have them."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(type_)) for name, type_ in table_columns(pipeline)])


def _table_record(pipeline: Pipeline) -> dict[str, Any]:
    table = pipeline.table.name
    columns = tuple((name, parse_type(type_)) for name, type_ in table_columns(pipeline))
    return _record(f"{table}_record", f"hoodie.{table}", columns)


def nullable_field(name: str, type_: DataType, record: Mapping[str, Any]) -> dict[str, Any]:
    """A column as a field of the table's `record`, NULL where a file lacks it."""
    field: dict[str, Any] = _record(record["name"], record.get("namespace", ""), ((name, type_),))["fields"][0]
    return field


def type_of_avro(avro: Any) -> DataType | None:
    """The column type of a field's Avro schema, nullable or not; None if no column can have it."""
    if isinstance(avro, list):
        parts = [part for part in avro if part != "null"]
        return type_of_avro(parts[0]) if len(parts) == 1 else None
    if not isinstance(avro, dict):
        return _SCALARS.get(avro) if isinstance(avro, str) else None
    kind, logical = avro.get("type"), avro.get("logicalType")
    if logical == "decimal":
        return Decimal(avro["precision"], avro.get("scale", 0))
    if logical is not None:
        avro_type = {"type": kind, "logicalType": logical}
        return next((Scalar(name) for name, known in _AVRO.items() if known == avro_type), None)
    if kind in ("array", "map"):
        within = type_of_avro(avro["items" if kind == "array" else "values"])
        return within and (Array(within) if kind == "array" else Map(within))
    if kind == "record":
        fields = [(field["name"], type_of_avro(field["type"])) for field in avro["fields"]]
        known = tuple((name, type_) for name, type_ in fields if type_ is not None)
        return Struct(known) if len(known) == len(fields) else None
    return type_of_avro(kind)


def _record(name: str, namespace: str, fields: tuple[tuple[str, DataType], ...]) -> dict[str, Any]:
    within = f"{namespace}.{name}"
    avro_fields = [
        {"name": field, "type": ["null", _avro(type_, field, within)], "default": None} for field, type_ in fields
    ]
    return {"type": "record", "name": name, "namespace": namespace, "fields": avro_fields}


def decimal_bytes(type_: Decimal) -> int:
    """How many bytes a decimal has in commits and in base files."""
    return int((10**type_.precision - 1).bit_length() + 8) // 8


def _avro(type_: DataType, name: str, namespace: str) -> Any:
    if isinstance(type_, Decimal):
        fixed = {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": decimal_bytes(type_)}
        return {**fixed, "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if isinstance(type_, Array):
        return {"type": "array", "items": ["null", _avro(type_.element, name, namespace)]}
    if isinstance(type_, Map):
        return {"type": "map", "values": ["null", _avro(type_.value, name, namespace)]}
    if isinstance(type_, Struct):
        return _record(name, namespace, type_.fields)
    return _AVRO[type_.name]
