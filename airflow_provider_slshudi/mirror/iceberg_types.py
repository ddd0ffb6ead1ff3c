"""The table's columns as an Iceberg schema, and the name mapping by which readers find them in base files.

Base files carry no field ids, so readers go by names (iceberg.apache.org/spec/#column-projection).
"""

from __future__ import annotations

from datetime import date
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.datatypes import Array, DataType, Decimal, Map, Struct
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.mirror.following import Columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_UNUSED_ID = 1_000_000
"""The id of Hudi's first own column in name mappings; no schema has it. pyiceberg stops at a file with a column that
the mapping lacks."""
_PARTITION_ID = 1000


def schema_of(columns: Columns) -> Schema:
    """The columns as an Iceberg schema, all optional; a table gives them ids of its own."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    ids = count(1)
    numbered = [(next(ids), name, type_) for name, type_ in columns.types]
    return Schema(*(NestedField(id_, name, _iceberg(type_, ids), required=False) for id_, name, type_ in numbered))


def spec_of(columns: Columns, schema: Schema) -> PartitionSpec:
    """The partition's column as an identity transform."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    if columns.partition is None:
        return PartitionSpec()
    source = schema.find_field(columns.partition).field_id
    return PartitionSpec(
        PartitionField(source_id=source, field_id=_PARTITION_ID, transform=IdentityTransform(), name=columns.partition)
    )


def name_mapping(schema: Schema) -> str:
    """The schema's name mapping as JSON, with Hudi's own columns under ids that no schema has."""
    from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema

    hudis = [MappedField(field_id=_UNUSED_ID + number, names=[name]) for number, name in enumerate(META_COLUMNS)]
    return NameMapping([*create_mapping_from_schema(schema), *hudis]).model_dump_json()


def partition_value(text: str | None, type_: IcebergType) -> Any:
    """A partition's value as manifests have it."""
    from pyiceberg.types import DateType, IntegerType, LongType

    if text is None:
        return None
    if isinstance(type_, DateType):
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    return int(text) if isinstance(type_, (IntegerType, LongType)) else text


def _iceberg(type_: DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg import types

    if isinstance(type_, Decimal):
        return types.DecimalType(type_.precision, type_.scale)
    if isinstance(type_, Array):
        return types.ListType(next(ids), _iceberg(type_.element, ids), element_required=False)
    if isinstance(type_, Map):
        return types.MapType(next(ids), types.StringType(), next(ids), _iceberg(type_.value, ids), value_required=False)
    if isinstance(type_, Struct):
        fields = [
            types.NestedField(next(ids), name, _iceberg(part, ids), required=False) for name, part in type_.fields
        ]
        return types.StructType(*fields)
    scalars: dict[str, IcebergType] = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "binary": types.BinaryType(),
        "date": types.DateType(),
        "timestamp": types.TimestamptzType(),
    }
    return scalars[type_.name]
