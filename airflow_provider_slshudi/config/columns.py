"""The `columns` and `masks` of a pipeline file, and the keys and fields of structs that columns name."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from airflow_provider_slshudi.config.datatypes import Array, DataType, Map, Scalar, Struct, holds, parse_type
from airflow_provider_slshudi.config.timepattern import FORMATS, parse_pattern
from airflow_provider_slshudi.config.values import (
    ColumnName,
    ColumnType,
    JsonPath,
    Model,
    Names,
    Size,
    TimeFormat,
    Zone,
)

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


REST = "map<string,string>"
"""The type of the column that keeps the keys that no column names."""


class Column(Model):
    """A column, filled by the value of a log's key (the column's own name unless given), or by a part of it.

    `type` is one of Spark's as its DDL writes it (`config.datatypes`); arrays, maps and structs come from JSON.
    `format` says how timestamps are written in the log: a count since 1970, ISO 8601, or a pattern
    (`config.timepattern`); dates may have a pattern. `timezone` is the zone of times without offset. `path` leads into
    a JSON value (`config.values`). A log does not fit if it has no value for a `required` column, or one longer than
    `max_bytes`. A value that is exactly one of `null_texts`, such as `-`, counts as none. `renamed_from` are former
    names, under which the table goes on to have the same values. `expr`, instead of `key` and `path`, computes the
    value from keys and other columns (`shaping.grammar`); a text that it gives converts as a log's does.
    """

    name: ColumnName
    type: ColumnType = "string"
    key: str = ""
    format: TimeFormat | None = None
    timezone: Zone | None = None
    path: JsonPath | None = None
    expr: Annotated[str, Field(min_length=1)] | None = None
    required: bool = False
    max_bytes: Size | None = None
    renamed_from: list[ColumnName] = Field(default_factory=list)
    null_texts: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _format_of_times(self) -> Column:
        type_ = parse_type(self.type)
        if holds(type_, "timestamp"):
            if self.format is None and self.expr is None:
                raise ValueError(
                    f"a timestamp needs `format` ({', '.join(FORMATS)}, or a pattern like yyyy-MM-dd HH:mm:ss)"
                )
            if holds(type_, "date") and self.format is not None and self.format not in FORMATS:
                raise ValueError("dates and timestamps in one column cannot share a pattern: use iso8601")
        elif self.format is not None and (type_ != Scalar("date") or self.format in FORMATS):
            raise ValueError("`format` is for timestamps, and as a pattern for dates; other types have none")
        return self

    @model_validator(mode="after")
    def _zone_of_local_times(self) -> Column:
        if self.timezone is None:
            return self
        is_pattern = self.format is not None and self.format not in FORMATS
        if not holds(parse_type(self.type), "timestamp") or (self.format != "iso8601" and not is_pattern):
            raise ValueError("`timezone` is for timestamps by iso8601 or a pattern; counts since 1970 have none")
        if is_pattern and parse_pattern(str(self.format)).has_zone:
            raise ValueError(f"`timezone` is given, but each time of format {self.format!r} names its own offset")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Column:
        if self.expr is not None and (self.key or self.path is not None):
            raise ValueError("give `expr`, or `key` and `path`: an expression names keys itself")
        return self

    @field_validator("key")
    @classmethod
    def _key_of_a_log(cls, value: str) -> str:
        if value == "__rest__":
            raise ValueError("`rest_column` holds the keys that no column names")
        return value

    @property
    def source_key(self) -> str:
        """The log key that fills this column."""
        return self.key or self.name


def place_of(key: str, path: str) -> str:
    """How a field at `path` within the JSON of `key` is told: as a key of its own."""
    return f"{key} {path}"


class NamedKeys(Container[str]):
    """The keys that columns name, and the places within their JSON.

    Args:
        columns: the pipeline's.
        rest: the column that keeps all other keys; None where they are dropped.
        computed: the keys that expressions name.
    """

    def __init__(self, columns: Iterable[Column], rest: str | None, computed: Iterable[str] = ()) -> None:
        self._rest = rest
        self._named: set[str] = set(computed)
        self._structs: set[str] = set()
        for column in columns:
            if column.expr is not None:
                continue
            key, path, type_ = column.source_key, column.path or "$", parse_type(column.type)
            self._named |= {
                key,
                place_of(key, path),
                *(place_of(key, field_path) for field_path in named_fields(type_, path)),
            }
            if has_fields(type_):
                self._structs.add(key)

    def __contains__(self, key: object) -> bool:
        if key in self._named:
            return True
        source_key, is_field, _ = str(key).partition(" $")
        # Other types than structs keep all fields of a JSON text.
        return bool(is_field) and source_key in self._named - self._structs

    def kept_in(self, key: str) -> str | None:
        """The column that keeps a key which no column names; None where it is dropped, as fields of structs are."""
        source_key, is_field, _ = key.partition(" $")
        return None if is_field and source_key in self._structs else self._rest


READY = ("cn_mobile", "cn_id_card", "bank_card", "email", "ip")
"""The patterns that have names, see `shaping.masks`."""
ALL = "*"
"""Stands for all keys in a mask."""


class Mask(Model):
    """What becomes of the values of some keys of logs before anything else sees them but the pipeline's `where`.

    `keys` are keys of logs, or `*` for all. `by` is `hash` (a keyed hash, equal for equal values), `redact` (what
    matches one of `patterns`, names of `READY` or regular expressions, becomes `***`), `truncate` (the first
    `characters` stay) or `drop` (the value becomes NULL).
    """

    keys: Names = Field(min_length=1)
    by: Literal["hash", "redact", "truncate", "drop"]
    patterns: Names = Field(default_factory=list)
    characters: int | None = Field(None, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Mask:
        if (self.by == "redact") != bool(self.patterns):
            raise ValueError(f"`patterns` is for redact, which needs some: {', '.join(READY)}, or regular expressions")
        for key in self.keys:
            if (ALL in key and key != ALL) or key in (
                "__cursor__",
                "__index__",
                "__time__",
                "__time_ns_part__",
                "__rest__",
            ):
                raise ValueError(
                    f"key {key}: expected the name of a log's key, `__topic__`, `__source__`, or `*` for all"
                )
        if ALL in self.keys and self.by != "redact":
            raise ValueError(f"`*` is for redact: {self.by} of all keys would leave no value as it is")
        if (self.by == "truncate") != (self.characters is not None):
            raise ValueError("`characters` is for truncate, which needs it: how many stay")
        from airflow_provider_slshudi.shaping.regex import require_pattern

        for pattern in self.patterns:
            if pattern not in READY:
                require_pattern(pattern)
                if re.fullmatch(r"[\w -]*", pattern):
                    raise ValueError(
                        f"pattern {pattern!r}: it has no signs of a regular expression; names are {', '.join(READY)}"
                    )
        return self
