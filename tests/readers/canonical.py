"""One text for each value, so that answers of different engines can be compared; uses the standard library alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def text_of(type_: str, value: Any) -> str | None:
    """The text of a value: floats as `repr`, days as ISO has them, times as microseconds since 1970 in UTC, bytes in
    hexadecimal digits, arrays, maps and structs as JSON with sorted entries. None for NULL."""
    if value is None:
        return None
    if type_ == "array<int>":
        return json.dumps([text_of("int", item) for item in value])
    if type_ == "map<string,double>":
        pairs = value.items() if isinstance(value, Mapping) else _pairs(value)
        return json.dumps(sorted([str(key), text_of("double", item)] for key, item in pairs))
    if type_.startswith("struct"):
        return json.dumps(_fields(value))
    if type_.startswith("decimal"):
        scale = int(type_.rstrip(")").split(",")[1])
        return f"{Decimal(value):.{scale}f}"
    return _SCALARS[type_](value)


def texts_of(types: Sequence[str], row: Iterable[Any]) -> list[str | None]:
    """The texts of a row whose values have these types."""
    return [text_of(type_, value) for type_, value in zip(types, row, strict=True)]


def value_of(type_: str, text: str) -> Any:
    """The value of a scalar's text."""
    if type_.startswith("decimal"):
        return Decimal(text)
    return _VALUES[type_](text)


def micros(value: Any) -> int:
    """Microseconds since 1970 of a time; one without a zone counts as UTC."""
    if isinstance(value, int):
        return value
    since: timedelta = (value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _pairs(entries: Iterable[Any]) -> list[tuple[Any, Any]]:
    """A map's entries, which some engines give as structs of key and value."""
    return [(entry["key"], entry["value"]) if isinstance(entry, Mapping) else (entry[0], entry[1]) for entry in entries]


def _fields(value: Any) -> list[str | None]:
    """The fields of the type `struct<a:int,b:string,c:double>`."""
    fields = [value[name] for name in ("a", "b", "c")] if isinstance(value, Mapping) else list(value)
    return [text_of(type_, field) for type_, field in zip(("int", "string", "double"), fields, strict=True)]


def _float(value: Any) -> str:
    return repr(struct.unpack("f", struct.pack("f", float(value)))[0])


def _day(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _bytes(value: Any) -> str:
    return (value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)).hex()


_SCALARS: dict[str, Callable[[Any], str]] = {
    "string": str,
    "binary": _bytes,
    "float": _float,
    "double": lambda value: repr(float(value)),
    "int": lambda value: str(int(value)),
    "bigint": lambda value: str(int(value)),
    "date": _day,
    "timestamp": lambda value: str(micros(value)),
    "boolean": lambda value: str(bool(value)).lower(),
}
_VALUES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "binary": bytes.fromhex,
    "float": float,
    "double": float,
    "int": int,
    "bigint": int,
    "date": date.fromisoformat,
    "timestamp": lambda text: _EPOCH + timedelta(microseconds=int(text)),
    "boolean": lambda text: text == "true",
}
