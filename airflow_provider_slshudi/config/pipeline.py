"""A pipeline as a whole: logstores into one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from airflow_provider_slshudi.config.columns import ALL, Column, Mask, NamedKeys
from airflow_provider_slshudi.config.datatypes import DataType, Decimal, Scalar, has_bounds, parse_type
from airflow_provider_slshudi.config.maintenance import Maintenance
from airflow_provider_slshudi.config.options import BOUNDS, BOUNDS_OF, names_in
from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.config.table import (
    DELTA_SCHEMES,
    FORMER_VERSION,
    MOST_ROUTES,
    EventTimePartition,
    FieldPartition,
    Mirrors,
    Route,
    Table,
)
from airflow_provider_slshudi.config.values import (
    ColumnName,
    Metastore,
    Model,
    Pause,
    Rule,
    Schedule,
    Size,
    Uri,
    Zone,
    every,
    is_archive,
    listed,
    parse_size,
    pause,
    refuse_secret,
    scheme_and_place,
)

if TYPE_CHECKING:
    from airflow_provider_slshudi.shaping.grammar import Expression

_SCHEDULE = "5m"
_SHORTEST = timedelta(seconds=10)
"""What starts more often starts as soon as the run before has ended."""
MOST_FILES = 10_000
"""The most files of a batch: its commit lists each of them, and must end while the lease lasts."""
KEY_TYPES = ("string", "int", "bigint")
"""The types of a record key's columns: every writer makes the same text of their values."""
ORDERING_TYPES = ("int", "bigint", "timestamp")


class Batch(Model):
    """Limits of one batch: raw bytes read, bytes of one base file, bytes that one Spark task reads at most.

    Where a batch leaves logs, since it is full, a run goes on with the next one for as long as `drain`, each committed
    on its own.
    """

    max_bytes: Size = parse_size("4GiB")
    target_file_bytes: Size = parse_size("128MiB")
    task_bytes: Size = parse_size("1GiB")
    drain: Pause | None = None


class Spark(Model):
    """How the append job is submitted: an Airflow connection and further Spark settings, none of them secret.

    `archive` is what `slshudi pack` made, a path or a URI that the cluster reads; null: executors have the package.
    """

    connection: str = "spark_default"
    conf: dict[str, str] = Field(default_factory=dict)
    archive: str | None = None

    @field_validator("archive")
    @classmethod
    def _is_an_archive(cls, archive: str | None) -> str | None:
        if archive is not None and not is_archive(archive):
            raise ValueError("expected an absolute path or a URI that ends in .tar.gz, without spaces and , # ? %")
        return archive

    @model_validator(mode="after")
    def _no_secrets(self) -> Spark:
        for key in self.conf:
            refuse_secret(key)
        return self


class Check(Model):
    """A condition that a batch must meet before it is committed, in one of three ways.

    `every` is an expression of Spark's SQL over each row, `batch` one of aggregates over all rows; NULL passes, as in
    SQL's CHECK. `freshness` is how old the newest log of a tail's batch may be.
    """

    name: ColumnName
    every: str | None = None
    batch: str | None = None
    freshness: Pause | None = None
    on_failure: Literal["fail", "warn"] = "fail"

    @property
    def seconds(self) -> int:
        """The bound of `freshness`."""
        return int(pause(str(self.freshness)).total_seconds())

    @model_validator(mode="after")
    def _one_of_three(self) -> Check:
        if sum(setting is not None for setting in (self.every, self.batch, self.freshness)) != 1:
            raise ValueError("give one of every, batch, freshness")
        return self


class Catalog(Model):
    """The Hive metastore that lists the table, by its own name or `table`; `times` is the type of timestamps there."""

    metastore: Metastore
    database: ColumnName = "default"
    table: ColumnName | None = None
    times: Literal["timestamp", "bigint"] = "timestamp"


class Quarantine(Model):
    """The table beside the main one for the logs that do not fit; by default named after the main one."""

    path: Uri | None = None
    name: ColumnName | None = None


def _require_no_circle(named: Mapping[str, Sequence[str]]) -> None:
    """Raises ValueError where a column's expression names the column, also through others."""

    def walk(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"columns' expressions name one another in a circle: {' -> '.join([*path, name])}")
        for other in named.get(name, ()):
            walk(other, (*path, name))

    for name in named:
        walk(name, ())


@lru_cache(256)
def _parse(text: str, types: tuple[tuple[str, str], ...]) -> Expression:
    """As `shaping.grammar.parse`, once for each text."""
    from airflow_provider_slshudi.shaping.grammar import parse

    return parse(text, dict(types))


class Pipeline(Model):
    """One logstore, or several, into one table.

    `schedule` says how often the tail runs; `freshness`, instead of it, how soon logs are to be in the table.
    `timezone` is the zone of cron expressions, by default Airflow's default zone.
    `rest_column` keeps the keys that no column names, as map<string, string>; without it they are dropped.
    `misfits` says what becomes of a log that does not fit, say with a value that does not convert to its column's type.
    A batch fails if a greater share of its logs than `max_misfits` does not fit. A batch must meet its `checks` before
    it is committed. `keep_values` says for how long ledger and pages keep a few values of logs, those that did not fit
    and those of keys that no column names; without it none leaves the tables. `where` is the condition that a log must
    meet to become a row (`shaping.grammar`); others are counted and left out. `routes` are tables beside this one for
    logs that meet their conditions. `masks` are applied to all logs that are
    kept; `mask_key` is the Airflow connection whose password is the key of those that hash.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    schedule: Schedule | None = None
    timezone: Zone | None = None
    freshness: Pause | None = None
    source: Source
    table: Table
    where: Annotated[str, Field(min_length=1)] | None = None
    routes: list[Route] = Field(default_factory=list, max_length=MOST_ROUTES)
    masks: list[Mask] = Field(default_factory=list)
    mask_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] | None = None
    columns: list[Column] = Field(min_length=1)
    rest_column: ColumnName | None = None
    misfits: Rule = "nullify"
    max_misfits: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    keep_values: Pause | None = None
    quarantine: Quarantine = Quarantine()
    batch: Batch = Batch()
    spark: Spark = Spark()
    checks: list[Check] = Field(default_factory=list)
    catalog: Catalog | None = None
    mirror: Mirrors | None = None
    maintenance: Maintenance = Maintenance()

    @property
    def named_keys(self) -> NamedKeys:
        """The keys of logs, and the fields of their JSON, that columns keep."""
        return NamedKeys(self.columns, self.rest_column, self.expression_keys)

    @property
    def computed(self) -> dict[str, Expression]:
        """The expressions of columns, by the columns' names."""
        return {
            column.name: self._parsed(f"column {column.name}: expr", column.expr, column.name)
            for column in self.columns
            if column.expr is not None
        }

    @property
    def condition(self) -> Expression | None:
        """The condition that a log must meet to become a row; None where all do."""
        return None if self.where is None else self._parsed("where", self.where)

    @property
    def route_conditions(self) -> list[Expression]:
        """The conditions of the routes, in their order."""
        return [self._parsed(f"routes: {route.name}", route.where) for route in self.routes]

    @property
    def expression_keys(self) -> list[str]:
        """The keys of logs that expressions name, each once."""
        conditions = [*self.route_conditions, *([] if self.condition is None else [self.condition])]
        expressions = [*self.computed.values(), *conditions]
        return list(dict.fromkeys(key for expression in expressions for key in expression.keys))

    def keys_of(self, column: Column) -> list[str]:
        """The keys of logs that fill a column, also through other columns, each once."""
        expression = self.computed.get(column.name)
        if expression is None:
            return [column.source_key]
        others = self.named_by(expression)
        return list(dict.fromkeys([*expression.keys, *(key for other in others for key in self.keys_of(other))]))

    def named_by(self, expression: Expression) -> list[Column]:
        """The columns that an expression names, also through others' expressions."""
        computed, names, rest = self.computed, set[str](), list(expression.columns)
        while rest:
            name = rest.pop()
            if name not in names:
                names.add(name)
                rest += computed[name].columns if name in computed else ()
        return [column for column in self.columns if column.name in names]

    def _parsed(self, what: str, text: str, own: str = "") -> Expression:
        """An expression of this file; within a column's own, the column's name is a key of the log."""
        types = tuple((column.name, column.type) for column in self.columns if column.name != own)
        try:
            return _parse(text, types)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error

    @property
    def in_order(self) -> bool:
        """Whether batches commit all logs of a key in the order in which they were put."""
        return self.source.order == "by_key" or self.table.upsert is not None

    @property
    def values_kept(self) -> timedelta | None:
        """For how long ledger and pages keep a few values of logs; None where they get none."""
        return None if self.keep_values is None else pause(self.keep_values)

    @property
    def clusters(self) -> bool:
        """Whether clustering makes larger files of small ones; rows with keys stay in their buckets' files."""
        return self.maintenance.clustering is not None and self.table.upsert is None

    @property
    def compacts(self) -> bool:
        """Whether compaction makes base files of log files."""
        return self.table.type == "merge_on_read"

    @model_validator(mode="after")
    def _schedule_or_freshness(self) -> Pipeline:
        if self.schedule is not None and self.freshness is not None:
            raise ValueError("give schedule or freshness: a schedule follows from the freshness")
        return self

    @model_validator(mode="after")
    def _expressions_fit(self) -> Pipeline:
        from airflow_provider_slshudi.shaping.grammar import FITTING

        if all(column.expr is None for column in self.columns):
            return self
        expressions = self.computed
        for column in self.columns:
            expression = expressions.get(column.name)
            if expression is None:
                continue
            if expression.type == "string":
                if column.type == "timestamp" and column.format is None:
                    raise ValueError(f"column {column.name}: a timestamp of a text needs `format`")
                continue
            if column.type not in FITTING[expression.type]:
                raise ValueError(
                    f"column {column.name}: its expr gives {expression.type}, and its type is {column.type}: "
                    f"it may be {', '.join(FITTING[expression.type])}, or CAST(... AS ...) within expr converts"
                )
            unused = [name for name in ("format", "timezone", "max_bytes") if getattr(column, name) is not None]
            unused += ["null_texts"] if column.null_texts else []
            if unused:
                raise ValueError(f"column {column.name}: {listed(unused)}: for texts, and expr gives {expression.type}")
        _require_no_circle({name: expression.columns for name, expression in expressions.items()})
        return self

    @model_validator(mode="after")
    def _conditions_are_such(self) -> Pipeline:
        names = [f"routes: {route.name}" for route in self.routes]
        conditions = dict(zip(names, self.route_conditions, strict=True))
        if self.condition is not None:
            conditions["where"] = self.condition
        for what, condition in conditions.items():
            if condition.type != "boolean":
                raise ValueError(f"{what}: expected a condition, like status >= 500, and it gives {condition.type}")
        return self

    @model_validator(mode="after")
    def _masks_fit(self) -> Pipeline:
        hashes = [mask for mask in self.masks if mask.by == "hash"]
        if bool(hashes) != (self.mask_key is not None):
            raise ValueError(
                "`mask_key` names the connection whose password is the key of masks by hash: give both, or none"
            )
        upsert = self.table.upsert
        names = [] if upsert is None else upsert.record_key
        sources = {key for column in self.columns for key in self.keys_of(column)}
        named = {key for mask in self.masks for key in mask.keys}
        if lost := (named & {column.name for column in self.columns}) - sources:
            raise ValueError(f"masks: {listed(lost)} is a column's name: masks name the log's keys that fill columns")
        for mask in self.masks:
            for column in self.columns:
                masked = [key for key in self.keys_of(column) if key in mask.keys or ALL in mask.keys]
                if masked and column.name in names and mask.by != "hash":
                    raise ValueError(
                        f"masks: {mask.by} of {masked[0]} would make one row of those whose keys differ in what "
                        f"it takes out ({column.name} is in table.upsert.record_key): use hash"
                    )
                is_text = column.expr is not None or (column.type == "string" and column.path is None)
                if column.source_key in mask.keys and not is_text:
                    raise ValueError(
                        f"masks: {mask.by} of {column.source_key} leaves no {column.path or column.type} for column "
                        f"{column.name}: make it a string without `path`, or leave the column out"
                    )
        return self

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
                    f"{listed(name for name, type_ in types.items() if type_ == 'timestamp')}"
                )
        elif partition is not None and types.get(partition.column) not in ("string", "int", "bigint", "date"):
            raise ValueError(
                f"table.partition.column {partition.column!r} must name a column of type string, int, bigint or date"
            )
        clustering = self.maintenance.clustering
        unknown = set(clustering.sort) - set(names) if clustering else set()
        if unknown:
            raise ValueError(f"maintenance.clustering.sort names {listed(unknown)}, not a column of {listed(names)}")
        ordered = {name for name, type_ in self._filled.items() if isinstance(type_, (Scalar, Decimal))}
        unordered = set(clustering.sort) & {*self._filled, self.rest_column} - ordered if clustering else set()
        if unordered:
            unordered_names = listed(unordered)
            raise ValueError(
                f"maintenance.clustering.sort names {unordered_names}: arrays, maps and structs have no order"
            )
        for what, kind_names in (("columns", names), ("checks", [check.name for check in self.checks])):
            twice = {name for name in kind_names if kind_names.count(name) > 1}
            if twice:
                raise ValueError(f"{what} named twice: {listed(twice)}")
        return self

    @model_validator(mode="after")
    def _quarantine_apart(self) -> Pipeline:
        if self.quarantines and self.table.upsert is not None:
            raise ValueError("a quarantine is for tables that are appended to: upsert has `nullify` and `fail`")
        if self.routes and self.table.upsert is not None:
            raise ValueError("routes are for tables that are appended to, without upsert")
        names = [self.table.name, self.quarantine.name, *(route.name for route in self.routes)]
        twice = {name for name in names if name is not None and names.count(name) > 1}
        if self.routes and twice:
            raise ValueError(f"routes: two tables are called {listed(twice)}")
        paths = {"quarantine.path": self.quarantine_path, "table.path": self.table.path}
        paths |= {f"the path of route {route.name}": self.path_of(route) for route in self.routes}
        for (one, path), (another, other_path) in combinations(paths.items(), 2):
            (scheme, table), (other, beside) = (scheme_and_place(f"{uri}/") for uri in (path, other_path))
            named = f"{one} {path} and {another} {other_path}"
            if "oss" in (scheme, other) and "file" not in (scheme, other) and scheme != other:
                raise ValueError(f"{named} are in two object stores, and a machine's settings lead to one")
            if (scheme == "file") == (other == "file") and (table.startswith(beside) or beside.startswith(table)):
                raise ValueError(f"{named} share a folder")
        return self

    @model_validator(mode="after")
    def _mirrors_fit(self) -> Pipeline:
        """Iceberg's DROP may remove all that is in a mirror's location; and pyiceberg takes `#` for a fragment."""
        if self.mirror is None:
            return self
        path = self.table.path
        if "#" in path:
            raise ValueError(
                f"table.path {path} has `#` in it: a table with mirrors must not, since readers stop there"
            )
        if self.mirror.delta is not None and not path.startswith(DELTA_SCHEMES):
            raise ValueError(
                "mirror.delta is for tables on file://, s3:// and s3a://: deltalake writes no others safely"
            )
        iceberg = self.mirror.iceberg
        location = iceberg.location if iceberg is not None else None
        if location is not None:
            (scheme, table), (other, beside) = (scheme_and_place(f"{uri}/") for uri in (path, location))
            if (scheme == "file") == (other == "file") and (table.startswith(beside) or beside.startswith(table)):
                raise ValueError(f"mirror.iceberg.location {location} and table.path {path} share a folder")
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
            column_type = next((column.type for column in self.columns if column.name == name), None)
            if column_type is None or column_type not in types:
                derived = isinstance(self.table.partition, EventTimePartition) and self.table.partition.name == name
                why = (
                    "the partition's own, which no log fills"
                    if derived
                    else f"of type {column_type}"
                    if column_type
                    else "not there"
                )
                fitting = listed(column.name for column in self.columns if column.type in types)
                raise ValueError(
                    f"table.upsert.{field} {name!r} is {why}: it must name a column of type {', '.join(types)} "
                    f"({fitting})"
                )
        return self

    @model_validator(mode="after")
    def _bounds_are_right(self) -> Pipeline:
        if not self.bounded:
            return self
        types = self._filled
        fitting = listed(name for name, type_ in types.items() if has_bounds(type_))
        for name in sorted(names_in(self.table.options.get(BOUNDS_OF, ""))):
            if name not in types or not has_bounds(types[name]):
                raise ValueError(
                    f"table.options.{BOUNDS_OF} names {name!r}, {types.get(name, 'no column')}: only columns of type "
                    f"int, bigint, date or timestamp may have bounds ({fitting}); by others' bounds readers miss rows"
                )
        upsert = self.table.upsert
        if upsert is not None and upsert.partial_update and self.table.type == "merge_on_read":
            raise ValueError(
                f"table.options.{BOUNDS} is not for merge_on_read with partial_update: a row has values of several "
                "files there, and by the bounds of each readers miss rows"
            )
        texts = [name for name in upsert.record_key if types[name] == Scalar("string")] if upsert else []
        if texts:
            raise ValueError(
                f"table.options.{BOUNDS} is for tables without texts in their record_key ({listed(texts)}): Hudi "
                "keeps bounds of keys, too, and by those of long texts readers miss rows"
            )
        return self

    @property
    def _filled(self) -> dict[str, DataType]:
        """The types of the columns that logs fill, by all their names."""
        return {
            name: parse_type(column.type) for column in self.columns for name in (column.name, *column.renamed_from)
        }

    @property
    def bounded(self) -> frozenset[str]:
        """The columns of which Hudi is to keep bounds.

        By default the columns by which clustering sorts: there bounds pay, and each costs (docs/decisions/0028).
        Timestamps only if an option names them: Hudi's bounds of old times are wrong.
        """
        options = self.table.options
        if options.get(BOUNDS, "true").lower() != "true" or self.table.version == FORMER_VERSION:
            return frozenset()
        if BOUNDS_OF in options:
            return names_in(options[BOUNDS_OF])
        right = {name for name, type_ in self._filled.items() if has_bounds(type_) and type_ != Scalar("timestamp")}
        if BOUNDS in options:
            return frozenset(right)
        clustering = self.maintenance.clustering
        return frozenset(right.intersection(clustering.sort if clustering is not None and self.clusters else ()))

    @property
    def escapes_folders(self) -> bool:
        """Whether the table says that its folders' names are escaped; only partitions by text need that.

        If it says so, Spark fails at filters once a row has no partition (docs/decisions/0028).
        """
        partition = self.table.partition
        types = {column.name: column.type for column in self.columns}
        return isinstance(partition, FieldPartition) and types[partition.column] == "string"

    @property
    def quarantine_path(self) -> str:
        """The quarantine's path."""
        return self.quarantine.path or f"{self.table.path}_quarantine"

    @property
    def table_paths(self) -> list[str]:
        """The paths of all its tables, the main one's first."""
        aside = [self.quarantine_path] if self.quarantines else []
        return [self.table.path, *aside, *map(self.path_of, self.routes)]

    def path_of(self, route: Route) -> str:
        """The path of a route's table."""
        return route.path or f"{self.table.path}_{route.name}"

    @property
    def quarantines(self) -> bool:
        """Whether some logs go to the quarantine."""
        partition = self.table.partition
        bounds = partition.bounds if isinstance(partition, EventTimePartition) else None
        return "quarantine" in (self.misfits, bounds and bounds.rule)

    @property
    def lateness(self) -> int | None:
        """The declared lateness in seconds, by which partitions of event times are complete; None without any."""
        partition = self.table.partition
        return partition.lateness_seconds if isinstance(partition, EventTimePartition) else None

    @property
    def promised(self) -> timedelta | None:
        """How soon after their receipt logs are to be in the table; None if the file promises nothing."""
        return None if self.freshness is None else pause(self.freshness)

    @property
    def every(self) -> timedelta | str:
        """The schedule as Airflow takes it; of a promise a third, since a log waits for a batch and for its end."""
        if self.promised is None:
            return every(self.schedule or _SCHEDULE)
        third = self.promised // 3
        return third if third >= _SHORTEST else "@continuous"
