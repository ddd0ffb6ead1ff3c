"""What a pipeline is: a YAML file, checked when it is loaded, before anything runs.

Every refusal is a `ConfigError` that names the file, the line, the field, the value found, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from airflow_provider_slshudi.datatypes import Decimal, Scalar, has_bounds, holds, parse_type
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.jsonpath import parse_path
from airflow_provider_slshudi.timepattern import FORMATS, parse_pattern

_SIZE_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_PAUSE = r"[1-9]\d*[smhd]"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# What every write client of ours runs with: an instant that is written but not committed stays until somebody decides
# (hudi.apache.org/docs/concurrency_control, docs/design.md). A pipeline that changed one could lose data.
PROTOCOL_OPTIONS = {
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    "hoodie.clean.failed.writes.policy": "NEVER",
    "hoodie.cleaner.policy.failed.writes": "NEVER",
    "hoodie.metadata.streaming.write.enabled": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.multiple.enabled": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.fail.on.timeline.archiving": "true",
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.write.markers.type": "DIRECT",
}
# What Hudi does in a commit of its own, and ours does not; and how only Hudi's own writers write.
_NOT_SERVED = (
    "hoodie.write.commit.callback.on",
    "hoodie.schema.on.read.enable",
    "hoodie.write.table.version",
    "hoodie.table.base.file.format",
    "hoodie.parquet.outputtimestamptype",
    "hoodie.clustering.preserve.commit.metadata",
    "hoodie.datasource.write.drop.partition.columns",
)
# Set from the pipeline's own fields.
_TABLE_OPTIONS = (
    "hoodie.table.name",
    "hoodie.populate.meta.fields",
    "hoodie.datasource.write.partitionpath.field",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.table.type",
    "hoodie.table.timeline.timezone",
    "hoodie.datasource.write.table.type",
    "hoodie.table.recordkey.fields",
    "hoodie.datasource.write.recordkey.field",
    "hoodie.table.ordering.fields",
    "hoodie.table.precombine.field",
    "hoodie.datasource.write.precombine.field",
    "hoodie.record.merge.mode",
    "hoodie.write.record.merge.mode",
    "hoodie.table.partial.update.mode",
    "hoodie.datasource.write.payload.class",
    "hoodie.compaction.payload.class",
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.index.type",
    "hoodie.index.bucket.engine",
    "hoodie.bucket.index.num.buckets",
    "hoodie.bucket.index.hash.field",
    "hoodie.clean.policy",
    "hoodie.cleaner.policy",
    "hoodie.clean.hours.retained",
    "hoodie.cleaner.hours.retained",
    "hoodie.clean.commits.retained",
    "hoodie.cleaner.commits.retained",
    "hoodie.keep.min.commits",
    "hoodie.keep.max.commits",
    "hoodie.compact.inline.trigger.strategy",
    "hoodie.compact.inline.max.delta.commits",
)

BOUNDS = "hoodie.metadata.index.column.stats.enable"
BOUNDS_OF = "hoodie.metadata.index.column.stats.column.list"
"""Options by which Hudi keeps the least and the greatest value of columns in its metadata table, for each file."""
_OTHER_INDEX = re.compile(
    r"hoodie\.metadata\.(index\.(?!column\.stats\.|partition\.stats\.).*|([a-z]+\.)?record\.(level\.)?index)\.enable"
)
MOST_FILES = 10_000
"""Of a batch: its commit tells the table of each, within a time that a lease covers."""
MOST_BUCKETS = 10_000
"""Of a partition; each is a file at least."""
KEY_TYPES = ("string", "int", "bigint")
"""Types of a record key's columns: their text is the same to every writer."""
ORDERING_TYPES = ("int", "bigint", "timestamp")

SHARD_BYTES_PER_SECOND = 10_000_000
SHARD_READS_PER_SECOND = 100.0
"""What a shard gives: https://www.alibabacloud.com/help/en/sls/product-overview/shard. Bytes are counted raw, since it
is not said whether the service counts compressed ones."""

PROTECTED_OPTIONS = frozenset((*PROTOCOL_OPTIONS, *_NOT_SERVED, *_TABLE_OPTIONS))


def parse_size(value: object) -> int:
    """Bytes of `512MiB`, `2GB` or a plain number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B|)\s*", str(value))
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError("expected bytes, as a number or like 512MiB, 2GB")
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def parse_schedule(value: object) -> str:
    """A pause between runs (`30s`, `5m`, `1h`), `@continuous`, another Airflow preset, or a cron expression."""
    text = str(value).strip()
    if not (re.fullmatch(_PAUSE, text) or text.startswith("@") or len(text.split()) == 5):
        raise ValueError("expected a pause like 30s, 5m, 1h, or @continuous, or a cron expression of five fields")
    return text


def _every(schedule: str) -> timedelta | str:
    return _pause(schedule) if re.fullmatch(_PAUSE, schedule) else schedule


def _pause(text: str) -> timedelta:
    return timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])


def _check_pause(value: str) -> str:
    if not re.fullmatch(_PAUSE, value):
        raise ValueError("expected a time like 30s, 15m, 1h, 7d")
    return value


def _check_metastore(value: str) -> str:
    if not re.fullmatch(r"thrift://[^\s,/:]+:\d+(,thrift://[^\s,/:]+:\d+)*", value):
        raise ValueError("expected thrift://host:port, or several with commas between")
    return value


def _check_path(value: str) -> str:
    """Taken as it stands, as Hadoop does: `#`, `%`, spaces and letters of any script are parts of names."""
    if not re.fullmatch(r"(file:(//)?(?=/[^/])|s3a?://[^/]+(?=//?[^/]))/.+", value, re.DOTALL):
        raise ValueError("expected a URI like file:///lake/events or s3a://bucket/lake/events")
    path = value.rstrip("/")
    if odd := sorted({letter for letter in path if letter in "*?[]{}\\" or not letter.isprintable()}):
        raise ValueError(
            f"expected none of {' '.join(map(repr, odd))} in it: Spark takes * ? [ ] {{ }} \\ for a pattern of paths, "
            "and control characters are no part of a name"
        )
    if {"", ".", ".."} & set(path.partition(":")[2].removeprefix("//").lstrip("/").split("/")):
        raise ValueError("expected no empty folder's name in it, nor `.` or `..`: one table would have several paths")
    return path


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("expected an IANA time zone like UTC or Asia/Shanghai") from error
    return value


_SPARKS = ("_tmp_metadata_row_index",)


def _check_column(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", value) or value.startswith("_hoodie_"):
        raise ValueError("expected lower-case letters, digits and _, not starting with a digit or _hoodie_")
    if value in _SPARKS:
        raise ValueError(f"{value} is Spark's own: it stops at a table with such a column")
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_format(value: str) -> str:
    if value not in FORMATS:
        try:
            parse_pattern(value)
        except ValueError as error:
            raise ValueError(f"expected {', '.join(FORMATS)} or a pattern: {error}") from error
    return value


def _check_json_path(value: str) -> str:
    parse_path(value)
    return value


def _refuse_secret(key: str) -> None:
    if re.search(r"secret|password|token|access\.?key", key, re.IGNORECASE):
        raise ValueError(f"{key} looks like a secret, which does not belong into a file: use a connection")


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
Schedule = Annotated[str, BeforeValidator(parse_schedule)]
Pause = Annotated[str, AfterValidator(_check_pause)]
Rule = Literal["nullify", "fail", "quarantine"]
"""What becomes of a log that does not fit its table."""
ColumnName = Annotated[str, AfterValidator(_check_column)]
ColumnType = Annotated[str, AfterValidator(lambda text: str(parse_type(text)))]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Model):
    """Where the logs are.

    `start`: where a shard that exists when the pipeline first runs is read from: its first retained log
    (`begin`), only what comes after (`end`), or a receive time in unix seconds. A shard that appears later is
    always read from its first log.

    `read_bytes_per_second` (raw) and `reads_per_second` are taken of each shard at most, by all tasks of a batch
    together; `total_bytes_per_second` of all shards.
    """

    connection: str = "sls_default"
    project: str = Field(min_length=1)
    logstore: str = Field(min_length=1)
    start: Literal["begin", "end"] | Annotated[int, Field(gt=0)] = "begin"
    on_expired: Literal["fail", "skip"] = "fail"
    read_bytes_per_second: Size = SHARD_BYTES_PER_SECOND
    reads_per_second: float = Field(SHARD_READS_PER_SECOND, gt=0, allow_inf_nan=False)
    total_bytes_per_second: Size | None = None

    @property
    def identity(self) -> str:
        """What the ledger knows the source by."""
        return f"sls://{self.project}/{self.logstore}"


class Bounds(_Model):
    """How far event times may lie before (`late`) and after (`future`) the moment when their batch was planned.

    `rule` says what becomes of logs beyond; the pipeline's `misfits` where it is left out.
    """

    late: Pause | None = None
    future: Pause | None = None
    rule: Rule | None = None

    @model_validator(mode="after")
    def _one_at_least(self) -> Bounds:
        if self.late is None and self.future is None:
            raise ValueError("give late, future or both")
        return self

    @property
    def seconds(self) -> tuple[int | None, int | None]:
        """`late` and `future`."""
        late, future = (limit and int(_pause(limit).total_seconds()) for limit in (self.late, self.future))
        return late or None, future or None


class EventTimePartition(_Model):
    """One partition per hour, day or month of a timestamp column, held by the derived string column `name`."""

    by: Literal["event_time"]
    column: str
    every: Literal["hour", "day", "month"] = "day"
    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    name: ColumnName = "event_date"
    bounds: Bounds | None = None


class FieldPartition(_Model):
    """One partition per value of a column."""

    by: Literal["field"]
    column: str

    @property
    def name(self) -> str:
        """The partition's column."""
        return self.column


Partition = Annotated[EventTimePartition | FieldPartition, Field(discriminator="by")]


class Upsert(_Model):
    """Rows have keys: a log inserts, updates or deletes the row of its key, which is in one of a partition's buckets.

    `merge_mode` says which of two rows of a key wins (hudi.apache.org/docs/record_merger): that of the greater
    `ordering_field`, the later one among equals (`event_time`, the default where there is such a field), or the one
    that was written later (`commit_time`). With `partial_update` a NULL in the winner leaves the other's value as it
    is. A row whose `delete_marker` is true deletes its key's. A key's bucket is its hash modulo `buckets`
    (hudi.apache.org/docs/indexes). `missing_key` says what becomes of a log without a value for its key or for the
    ordering field: it fails the batch, or is dropped and counted.
    """

    record_key: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
    ordering_field: str | None = None
    delete_marker: str | None = None
    merge_mode: Literal["event_time", "commit_time"] | None = None
    partial_update: bool = False
    missing_key: Literal["fail", "drop"] = "fail"
    buckets: int = Field(gt=0, le=MOST_BUCKETS)

    @model_validator(mode="after")
    def _mode_has_its_field(self) -> Upsert:
        if self.merge_mode == "event_time" and self.ordering_field is None:
            raise ValueError("merge_mode event_time needs ordering_field, the column whose greater value wins")
        if self.merge_mode == "commit_time" and self.ordering_field is not None:
            raise ValueError("merge_mode commit_time looks at no ordering_field: leave one of the two out")
        if self.partial_update and self.delete_marker is not None:
            raise ValueError("partial_update and delete_marker do not go together: leave one of the two out")
        if len(set(self.record_key)) < len(self.record_key):
            raise ValueError(f"record_key names a column twice: {', '.join(self.record_key)}")
        return self

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns for which every row has a value."""
        return (*self.record_key, *([self.ordering_field] if self.ordering_field else []))

    @property
    def mode(self) -> Literal["event_time", "commit_time"]:
        """The merge mode that is meant."""
        return "commit_time" if self.ordering_field is None else "event_time"


class Table(_Model):
    """The Hudi table. `options` are passed to Hudi's write client, but for those the protocol rests on.

    Without `upsert` every log becomes a row of its own.
    """

    path: Annotated[str, AfterValidator(_check_path)]
    name: ColumnName
    type: Literal["copy_on_write", "merge_on_read"] = "copy_on_write"
    partition: Partition | None = None
    upsert: Upsert | None = None
    options: dict[str, str] = {}

    @model_validator(mode="after")
    def _logs_are_for_upserts(self) -> Table:
        if self.type == "merge_on_read" and self.upsert is None:
            raise ValueError(
                "type merge_on_read is for tables with `upsert`: logs that are only appended need no merging"
            )
        return self

    @model_validator(mode="after")
    def _options_allowed(self) -> Table:
        for key in self.options:
            _refuse_secret(key)
            if not key.startswith("hoodie.") or key in PROTECTED_OPTIONS:
                raise ValueError(
                    f"option {key} may not be set: options start with hoodie. and are none that exactly-once rests on "
                    f"({', '.join(sorted(PROTECTED_OPTIONS))})"
                )
            if _OTHER_INDEX.fullmatch(key) and self.options[key].lower() != "false":
                raise ValueError(
                    f"option {key} may not be set: of Hudi's indexes batches keep only bounds of columns "
                    f"({BOUNDS}); by others they fail at some values (docs/decisions/0028)"
                )
        return self


class Column(_Model):
    """A column and what of a log fills it: the value of a key (the column's own name unless given), or a part of it.

    `type` is one of Spark's as its DDL writes it (`datatypes.py`); arrays, maps and structs are made of JSON.
    `format` says how timestamps are written in the log: a count since 1970, ISO 8601, or a pattern (`timepattern.py`);
    dates may have a pattern. `timezone` is that of times that name no offset. `path` leads into a JSON value
    (`jsonpath.py`). A log without a value does not fit where it is `required`, nor one whose value is longer than
    `max_bytes`. `renamed_from` are former names, under which the table has the same values further on.
    """

    name: ColumnName
    type: ColumnType = "string"
    key: str = ""
    format: Annotated[str, AfterValidator(_check_format)] | None = None
    timezone: Annotated[str, AfterValidator(_check_zone)] | None = None
    path: Annotated[str, AfterValidator(_check_json_path)] | None = None
    required: bool = False
    max_bytes: Size | None = None
    renamed_from: list[ColumnName] = []

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


class Batch(_Model):
    """Limits of one batch: raw bytes read, bytes of one base file, bytes that one Spark task reads at most."""

    max_bytes: Size = parse_size("4GiB")
    target_file_bytes: Size = parse_size("128MiB")
    task_bytes: Size = parse_size("1GiB")


class Spark(_Model):
    """How the append job is submitted: an Airflow connection and further Spark settings, none of them secret."""

    connection: str = "spark_default"
    conf: dict[str, str] = {}

    @model_validator(mode="after")
    def _no_secrets(self) -> Spark:
        for key in self.conf:
            _refuse_secret(key)
        return self


class Keep(_Model):
    """How long replaced files stay for whoever reads an older snapshot: hours, or until so many later commits."""

    hours: Annotated[int, Field(gt=0)] | None = None
    commits: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Keep:
        if (self.hours is None) == (self.commits is None):
            raise ValueError("give either hours or commits")
        return self


class Clustering(_Model):
    """Files below `small_file` become files of up to `target_file` bytes (hudi.apache.org/docs/clustering).

    With `sort` their rows are put in the order of these columns, one after the other (`linear`) or along a curve
    through all of them (`zorder`), so that queries that filter by them skip files.
    """

    small_file: Size = parse_size("64MiB")
    target_file: Size = parse_size("256MiB")
    sort: list[str] = []
    order: Literal["linear", "zorder"] = "linear"

    @model_validator(mode="after")
    def _leaves_no_small_files(self) -> Clustering:
        if self.small_file >= self.target_file:
            raise ValueError(
                "expected small_file < target_file, or files would be rewritten again and again; found "
                f"{self.small_file}, {self.target_file}"
            )
        if self.order == "zorder" and len(self.sort) < 2:
            raise ValueError("order zorder needs two columns in `sort` at least")
        return self


class Check(_Model):
    """What is asked of a batch before it is committed, in one of three ways, as SQL of Spark where it is an expression.

    `every` holds of each row, `batch` is made of aggregates over all of them; NULL passes, as in SQL's CHECK.
    `freshness` is how old the newest log of a tail's batch may be.
    """

    name: ColumnName
    every: str | None = None
    batch: str | None = None
    freshness: Pause | None = None
    on_failure: Literal["fail", "warn"] = "fail"

    @property
    def seconds(self) -> int:
        """The bound of `freshness`."""
        return int(_pause(str(self.freshness)).total_seconds())

    @model_validator(mode="after")
    def _one_of_three(self) -> Check:
        if sum(given is not None for given in (self.every, self.batch, self.freshness)) != 1:
            raise ValueError("give one of every, batch, freshness")
        return self


class Catalog(_Model):
    """The Hive metastore that knows the table by name; `table` is its name there, the table's own unless given."""

    metastore: Annotated[str, AfterValidator(_check_metastore)]
    database: ColumnName = "default"
    table: ColumnName | None = None


class Maintenance(_Model):
    """How often the table's services run, and what they keep.

    Cleaning deletes replaced files (hudi.apache.org/docs/cleaning). Beyond `max_commits` on the active timeline
    archival moves the oldest into the archive, down to `min_commits` (hudi.apache.org/docs/archival). With
    `clustering: null` small files stay as they are. After `compact_after` commits the log files of a Merge-On-Read
    table become base files (hudi.apache.org/docs/compaction).
    """

    schedule: Schedule = "1h"
    keep: Keep = Keep(hours=24)
    min_commits: int = Field(100, gt=0)
    max_commits: int = 150
    clustering: Clustering | None = Clustering()
    compact_after: int = Field(10, gt=0)

    @property
    def every(self) -> timedelta | str:
        """The schedule as Airflow takes it."""
        return _every(self.schedule)

    @model_validator(mode="after")
    def _archival_keeps_more(self) -> Maintenance:
        if not (self.keep.commits or 0) < self.min_commits < self.max_commits:
            raise ValueError(
                "expected keep.commits < min_commits < max_commits, found "
                f"{self.keep.commits or 0}, {self.min_commits}, {self.max_commits}"
            )
        return self


class Quarantine(_Model):
    """The table beside the main one that takes the logs which do not fit; by default named after the main one."""

    path: Annotated[str, AfterValidator(_check_path)] | None = None
    name: ColumnName | None = None


class Pipeline(_Model):
    """One logstore into one table.

    `rest_column` keeps the keys that no column names, as map<string, string>; without it they are dropped.
    `misfits` says what becomes of a log that does not fit: a value that does not convert to its column's type, say. A
    batch fails of whose logs more than the share `max_misfits` do not fit. `checks` is what is asked of a batch before
    it is committed.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    schedule: Schedule = "5m"
    source: Source
    table: Table
    columns: list[Column] = Field(min_length=1)
    rest_column: ColumnName | None = None
    misfits: Rule = "nullify"
    max_misfits: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    quarantine: Quarantine = Quarantine()
    batch: Batch = Batch()
    spark: Spark = Spark()
    checks: list[Check] = []
    catalog: Catalog | None = None
    maintenance: Maintenance = Maintenance()

    @property
    def clusters(self) -> bool:
        """Whether small files are made larger ones; rows that have keys stay in the files of their buckets."""
        return self.maintenance.clustering is not None and self.table.upsert is None

    @property
    def compacts(self) -> bool:
        """Whether there are log files that become base files."""
        return self.table.type == "merge_on_read"

    @model_validator(mode="after")
    def _columns_agree(self) -> Pipeline:
        types = {column.name: column.type for column in self.columns}
        names = [name for column in self.columns for name in (column.name, *column.renamed_from)]
        if self.rest_column is not None:
            names.append(self.rest_column)
        partition = self.table.partition
        if isinstance(partition, EventTimePartition):
            names.append(partition.name)
            if types.get(partition.column) != "timestamp":
                raise ValueError(
                    f"table.partition.column {partition.column!r} must name a timestamp column: "
                    f"{_listed(name for name, type_ in types.items() if type_ == 'timestamp')}"
                )
        elif partition is not None and types.get(partition.column) not in ("string", "int", "bigint", "date"):
            raise ValueError(
                f"table.partition.column {partition.column!r} must name a column of type string, int, bigint or date"
            )
        clustering = self.maintenance.clustering
        unknown = set(clustering.sort) - set(names) if clustering else set()
        if unknown:
            raise ValueError(f"maintenance.clustering.sort names {_listed(unknown)}, not a column of {_listed(names)}")
        nested = {
            name
            for column in self.columns
            for name in (column.name, *column.renamed_from)
            if not isinstance(parse_type(column.type), (Scalar, Decimal))
        }
        unordered = {*nested, self.rest_column}.intersection(clustering.sort if clustering else ())
        if unordered:
            told = _listed(name for name in unordered if name is not None)
            raise ValueError(f"maintenance.clustering.sort names {told}: arrays, maps and structs have no order")
        for what, given in (("columns", names), ("checks", [check.name for check in self.checks])):
            twice = {name for name in given if given.count(name) > 1}
            if twice:
                raise ValueError(f"{what} named twice: {_listed(twice)}")
        return self

    @model_validator(mode="after")
    def _quarantine_apart(self) -> Pipeline:
        if self.quarantines and self.table.upsert is not None:
            raise ValueError("a quarantine is for tables that are appended to: upsert has `nullify` and `fail`")
        # s3:// and s3a:// are one store.
        table, beside = (f"{path}/".replace("s3a://", "s3://") for path in (self.table.path, self.quarantine_path))
        if table.startswith(beside) or beside.startswith(table):
            raise ValueError(f"quarantine.path {self.quarantine_path} and table.path {self.table.path} share a folder")
        return self

    @model_validator(mode="after")
    def _upsert_names_columns(self) -> Pipeline:
        upsert = self.table.upsert
        if upsert is None:
            return self
        if any(check.freshness is None for check in self.checks):
            raise ValueError("checks of rows (every, batch) are for tables without `upsert`, whose files hold a batch")
        named: list[tuple[str, str, tuple[str, ...]]]
        named = [("record_key", name, KEY_TYPES) for name in upsert.record_key]
        if upsert.ordering_field is not None:
            named.append(("ordering_field", upsert.ordering_field, ORDERING_TYPES))
        if upsert.delete_marker is not None:
            named.append(("delete_marker", upsert.delete_marker, ("boolean",)))
        for field, name, types in named:
            found = next((column.type for column in self.columns if column.name == name), None)
            if found is None or found not in types:
                derived = isinstance(self.table.partition, EventTimePartition) and self.table.partition.name == name
                why = (
                    "the partition's own, which no log fills"
                    if derived
                    else f"of type {found}"
                    if found
                    else "not there"
                )
                fitting = _listed(column.name for column in self.columns if column.type in types)
                raise ValueError(
                    f"table.upsert.{field} {name!r} is {why}: it must name a column of type {', '.join(types)} "
                    f"({fitting})"
                )
        return self

    @model_validator(mode="after")
    def _bounds_are_right(self) -> Pipeline:
        if not self.bounded:
            return self
        types = {name: column.type for column in self.columns for name in (column.name, *column.renamed_from)}
        fitting = _listed(name for name, type_ in types.items() if has_bounds(parse_type(type_)))
        for name in sorted(_names(self.table.options.get(BOUNDS_OF, ""))):
            if name not in types or not has_bounds(parse_type(types[name])):
                raise ValueError(
                    f"table.options.{BOUNDS_OF} names {name!r}, {types.get(name, 'no column')}: by bounds of others "
                    f"than int, bigint, decimal, date and timestamp readers leave out rows that are there ({fitting})"
                )
        upsert = self.table.upsert
        texts = [name for name in upsert.record_key if types[name] == "string"] if upsert else []
        if texts:
            raise ValueError(
                f"table.options.{BOUNDS} is for tables without texts in their record_key ({_listed(texts)}): Hudi "
                "keeps bounds of keys, too, and by those of long texts readers leave out rows that are there"
            )
        return self

    @property
    def bounded(self) -> frozenset[str]:
        """The columns of which Hudi is to keep bounds.

        As it comes those that files are sorted by: there they pay, and each costs (docs/decisions/0028). Timestamps
        only where an option names them: Hudi's bounds of old times are off.
        """
        options = self.table.options
        if options.get(BOUNDS, "true").lower() != "true":
            return frozenset()
        if BOUNDS_OF in options:
            return _names(options[BOUNDS_OF])
        right = {
            name
            for column in self.columns
            for name in (column.name, *column.renamed_from)
            if has_bounds(parse_type(column.type)) and column.type != "timestamp"
        }
        if BOUNDS in options:
            return frozenset(right)
        clustering = self.maintenance.clustering
        return frozenset(right.intersection(clustering.sort if clustering is not None and self.clusters else ()))

    @property
    def escapes_folders(self) -> bool:
        """Whether Hudi is told that folders' names are escaped, as only those of texts need it.

        Where it is, Spark fails at a filter of a table with a row without a partition (docs/decisions/0028).
        """
        partition = self.table.partition
        types = {column.name: column.type for column in self.columns}
        return isinstance(partition, FieldPartition) and types[partition.column] == "string"

    @property
    def quarantine_path(self) -> str:
        """Where the quarantine is."""
        return self.quarantine.path or f"{self.table.path}_quarantine"

    @property
    def quarantines(self) -> bool:
        """Whether some logs go to the quarantine."""
        partition = self.table.partition
        bounds = partition.bounds if isinstance(partition, EventTimePartition) else None
        return "quarantine" in (self.misfits, bounds and bounds.rule)

    @property
    def every(self) -> timedelta | str:
        """The schedule as Airflow takes it."""
        return _every(self.schedule)


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline that the file at `path` describes.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or describes no valid pipeline.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", source=str(path)) from error
    return parse_pipeline(text, source=str(path))


def parse_pipeline(text: str, source: str) -> Pipeline:
    """The pipeline that a YAML text describes; `source` is named in errors.

    Raises:
        ConfigError: as `load_pipeline`.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"{source}:{where} is no YAML: {problem}", source=source) from error
    if not isinstance(data, dict) or node is None:
        raise ConfigError(f"{source}: a pipeline is a mapping with name, source, table, columns", source=source)
    for field, line in _repeated_keys(node):
        raise ConfigError(f"{source} line {line}: {field} is given twice; keep one", source=source, field=field)
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        raise _refusal(error, node, source) from None


def _refusal(error: ValidationError, node: yaml.Node, source: str) -> ConfigError:
    problems = []
    for problem in error.errors(include_url=False):
        location, line = _locate(node, problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        found = "" if problem["type"] == "missing" or isinstance(problem["input"], dict) else f": {problem['input']!r}"
        problems.append(
            (location, problem["input"], f"{source} line {line}: {location or 'pipeline'}{found}: {message}")
        )
    field, value, _ = problems[0]
    return ConfigError("\n".join(text for *_, text in problems), source=source, field=field, value=value)


def _locate(node: yaml.Node, loc: tuple[int | str, ...]) -> tuple[str, int]:
    """The dotted field and the line of the deepest part of `loc` that the file has.

    A part that the file lacks is either a missing field, which is named, or a tag of a union, which is not.
    """
    line, field = node.start_mark.line + 1, ""
    for depth, part in enumerate(loc):
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                if depth == len(loc) - 1:
                    field += f".{part}" if field else str(part)
                continue
            node, line = found[1], found[0].start_mark.line + 1
            field += f".{part}" if field else str(part)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            field += f"[{part}]"
    return field, line


def _repeated_keys(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    """YAML lets a key stand twice and keeps the last one silently."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated_keys(item, f"{prefix}[{index}]")
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            field = f"{prefix}.{key.value}" if prefix else str(key.value)
            if key.value in seen:
                yield field, key.start_mark.line + 1
            seen.add(key.value)
            yield from _repeated_keys(value, field)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "there is none"
