"""The `table` of a pipeline file: its version, type, partitions and bounds, and its mirrors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from airflow_provider_slshudi.config.options import BOUNDS, require_allowed
from airflow_provider_slshudi.config.values import (
    ColumnName,
    Model,
    Names,
    Pause,
    Rule,
    Uri,
    Zone,
    pause,
    refuse_secret,
)

DELTA_SCHEMES = ("file:", "s3:", "s3a:")
"""How paths of tables begin that can have a Delta mirror."""


class IcebergMirror(Model):
    """An Iceberg table over the Hudi table's base files (iceberg.apache.org).

    `catalog` is an Airflow connection of type `slshudi_iceberg`, `table` the table's name there, with its namespace.
    `location`, by default the Hudi table's path and `_iceberg`, is where Iceberg keeps its metadata. At least `keep`
    snapshots stay for time travel, at most twice as many, unless a clean deletes their files.
    """

    catalog: str = Field(min_length=1)
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+$")]
    location: Uri | None = None
    keep: int = Field(10, gt=0, le=1000)


class DeltaMirror(Model):
    """A Delta table over the Hudi table's base files (delta.io): a folder `_delta_log` in the table's folder."""


class Mirrors(Model):
    """The mirrors of a table; each one follows the Hudi table's timeline."""

    iceberg: IcebergMirror | None = None
    delta: DeltaMirror | None = None

    @model_validator(mode="after")
    def _one_at_least(self) -> Mirrors:
        if self.iceberg is None and self.delta is None:
            raise ValueError("give iceberg, delta or both: `delta: {}` has no settings")
        return self


FORMER_VERSION = 6
"""The oldest that this package writes, with a timeline of another layout."""
NEWEST_VERSION = 9
"""What Hudi 1.2.0 makes tables of."""
MOST_BUCKETS = 10_000
"""The most buckets of a partition; each has at least one file."""


def _number(value: object) -> object:
    """A file's values come as texts, of which pydantic makes no literal number."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Version = Annotated[Literal[6, 8, 9], BeforeValidator(_number)]


class Bounds(Model):
    """How far event times may lie before (`late`) and after (`future`) the time at which their batch was planned.

    `rule` says what becomes of logs beyond that; by default the pipeline's `misfits`.
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
        """`late` and `future` in seconds."""
        late, future = (limit and int(pause(limit).total_seconds()) for limit in (self.late, self.future))
        return late or None, future or None


class EventTimePartition(Model):
    """One partition per hour, day or month of a timestamp column, held by the derived string column `name`.

    With `lateness` the ledger knows which partitions are complete: those of which all logs that the service received
    until so long after the partition's end are committed.
    """

    by: Literal["event_time"]
    column: str
    every: Literal["hour", "day", "month"] = "day"
    timezone: Zone = "UTC"
    name: ColumnName = "event_date"
    bounds: Bounds | None = None
    lateness: Pause | None = None

    @property
    def lateness_seconds(self) -> int | None:
        """`lateness` in seconds."""
        return None if self.lateness is None else int(pause(self.lateness).total_seconds())


class FieldPartition(Model):
    """One partition per value of a column."""

    by: Literal["field"]
    column: str

    @property
    def name(self) -> str:
        """The partition's column."""
        return self.column


Partition = Annotated[EventTimePartition | FieldPartition, Field(discriminator="by")]


class Upsert(Model):
    """Rows have keys: a log inserts, updates or deletes the row of its key, which is in one of a partition's buckets.

    `merge_mode` says which of two rows of a key wins (hudi.apache.org/docs/record_merger): the row with the greater
    `ordering_field`, of equal ones the later (`event_time`, the default if there is such a field), or the row that was
    written later (`commit_time`). With `partial_update` a NULL in the winner keeps the other's value. A row whose
    `delete_marker` is true deletes the row of its key. A key's bucket is its hash modulo `buckets`
    (hudi.apache.org/docs/indexes). A log without a value for its key or for the ordering field fails the batch, or is
    dropped and counted, as `missing_key` says.
    """

    record_key: Annotated[Names, Field(min_length=1)]
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
        """The columns for which every row must have a value."""
        return (*self.record_key, *([self.ordering_field] if self.ordering_field else []))

    @property
    def mode(self) -> Literal["event_time", "commit_time"]:
        """The merge mode, given or by default."""
        return "commit_time" if self.ordering_field is None else "event_time"


class Table(Model):
    """The Hudi table. `options` go to Hudi's write client, except options that the protocol rests on.

    Without `upsert` every log becomes a row of its own. `version` is Hudi's version of the table's layout, which says
    who can read it (hudi.apache.org/tech-specs): a new table is made of it, or of NEWEST_VERSION.
    """

    path: Uri
    name: ColumnName
    type: Literal["copy_on_write", "merge_on_read"] = "copy_on_write"
    partition: Partition | None = None
    upsert: Upsert | None = None
    version: Version | None = None
    options: dict[str, str] = Field(default_factory=dict)

    @property
    def version_of_new(self) -> int:
        """The version of which the table is made if there is none."""
        return self.version or NEWEST_VERSION

    def refusal_of(self, version: int) -> str:
        """Why a table of this version cannot be what the file describes; empty if it can."""
        try:
            Table.model_validate({**self.model_dump(), "version": version})
        except ValidationError as error:
            return error.errors()[0]["msg"].removeprefix("Value error, ")
        return ""

    @model_validator(mode="after")
    def _version_has_what_is_asked(self) -> Table:
        if self.version in (6, 8) and self.upsert is not None and self.upsert.partial_update:
            raise ValueError(
                f"version {self.version} has no partial_update: Hudi 1.2.0 and hudi-rs refuse such a table. Leave "
                "version out, or partial_update"
            )
        if self.version == FORMER_VERSION and self.type == "merge_on_read":
            raise ValueError(
                "version 6 has other log files, which this package does not write: leave version out, or make the type "
                "copy_on_write"
            )
        if self.version == FORMER_VERSION and self.options.get(BOUNDS, "").lower() == "true":
            raise ValueError(
                "version 6 does not say which columns have bounds, so readers might miss rows: leave version out, or "
                f"the option {BOUNDS}"
            )
        return self

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
            refuse_secret(key)
            require_allowed(key, self.options[key])
        return self


MOST_ROUTES = 32
"""The most routes of a pipeline: each batch has an instant on the timeline of each one's table."""


class Route(Model):
    """A table for the logs that meet `where` and no earlier route's condition, instead of the main table.

    It has the main table's columns and partitions. `name` is the table's in Hudi, `path` by default the main table's
    with the name behind it.
    """

    name: ColumnName
    where: Annotated[str, Field(min_length=1)]
    path: Uri | None = None
