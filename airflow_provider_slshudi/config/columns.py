"""The columns of a pipeline, and the part of a log that fills each."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from airflow_provider_slshudi.config.values import ColumnName, ColumnType, JsonPath, Model, Size, TimeFormat, Zone
from airflow_provider_slshudi.types.datatypes import Scalar, holds, parse_type
from airflow_provider_slshudi.types.timepattern import FORMATS, parse_pattern

REST = "map<string,string>"
"""The type of the column that keeps the keys that no column names."""


class Column(Model):
    """A column, filled by the value of a log's key (the column's own name unless given), or by a part of it.

    `type` is one of Spark's as its DDL writes it (`types.datatypes`); arrays, maps and structs come from JSON.
    `format` says how timestamps are written in the log: a count since 1970, ISO 8601, or a pattern
    (`types.timepattern`); dates may have a pattern. `timezone` is the zone of times without offset. `path` leads into a
    JSON value (`types.jsonpath`). A log does not fit if it has no value for a `required` column, or one longer than
    `max_bytes`. A value that is exactly one of `null_texts`, such as `-`, counts as none. `renamed_from` are former
    names, under which the table goes on to have the same values.
    """

    name: ColumnName
    type: ColumnType = "string"
    key: str = ""
    format: TimeFormat | None = None
    timezone: Zone | None = None
    path: JsonPath | None = None
    required: bool = False
    max_bytes: Size | None = None
    renamed_from: list[ColumnName] = Field(default_factory=list)
    null_texts: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _format_of_times(self) -> Column:
        type_ = parse_type(self.type)
        if holds(type_, "timestamp"):
            if self.format is None:
                raise ValueError(
                    f"a timestamp needs `format` ({', '.join(FORMATS)}, or a pattern like yyyy-MM-dd HH:mm:ss)"
                )
            if holds(type_, "date") and self.format not in FORMATS:
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
