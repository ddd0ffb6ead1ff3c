"""The fields of structs within a column's type, as paths: `$.user.id`, `$.items[*].price`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_provider_slshudi.types.datatypes import Array, DataType, Map, Struct

_PLAIN = re.compile(r"[^.\[\]'*\s]+")


def has_fields(type_: DataType) -> bool:
    """Whether the type is or contains a struct."""
    return next(named_fields(type_, ""), None) is not None


def named_fields(type_: DataType, path: str) -> Iterator[str]:
    """The paths of all fields that the type's structs name, from the type's own `path` on."""
    if isinstance(type_, (Array, Map)):
        yield from named_fields(_items(type_), f"{path}[*]")
    elif isinstance(type_, Struct):
        for name, field in type_.fields:
            yield _below(path, name)
            yield from named_fields(field, _below(path, name))


def unnamed_fields(value: Any, type_: DataType, path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of each field of a JSON value that the struct in its place does not name, and so drops."""
    if isinstance(type_, (Array, Map)):
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in items:
            yield from unnamed_fields(item, _items(type_), f"{path}[*]")
    elif isinstance(type_, Struct) and isinstance(value, dict):
        named = dict(type_.fields)
        for name, item in value.items():
            if name in named:
                yield from unnamed_fields(item, named[name], _below(path, name))
            else:
                yield _below(path, name), item


def _items(type_: Array | Map) -> DataType:
    return type_.element if isinstance(type_, Array) else type_.value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if _PLAIN.fullmatch(name) else f"{path}['{name}']"
