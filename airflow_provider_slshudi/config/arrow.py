"""A column's type in Arrow, as files and tasks have it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.datatypes import Array, DataType, Decimal, Map, Struct, parse_type

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a base file's column."""
    return _arrow(parse_type(name))


def _arrow(type_: DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, Array):
        return pa.list_(pa.field("element", _arrow(type_.element)))
    if isinstance(type_, Map):
        return pa.map_(pa.string(), _arrow(type_.value))
    if isinstance(type_, Struct):
        return pa.struct([pa.field(name, _arrow(field)) for name, field in type_.fields])
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
    }
    return types[type_.name]
