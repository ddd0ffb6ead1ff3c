"""Tables beside the main one: the quarantine, and those of routes.

A batch has the same instant time in each table. The main table's instant decides: those beside it are committed or
rolled back as it is. So no owner of their instants is recorded; recovery finds it by the main table's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider_slshudi.config.columns import Column
from airflow_provider_slshudi.config.pipeline import Pipeline, Quarantine
from airflow_provider_slshudi.config.table import EventTimePartition, Route, Table
from airflow_provider_slshudi.exceptions import TableMismatch, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.handover.batch_files import QUARANTINE, ROUTE
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION, has_part
from airflow_provider_slshudi.hudi.layout import PROPERTIES, Instant, Phase
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage

COLUMNS: tuple[tuple[str, str], ...] = (
    ("shard", "int"),
    ("cursor", "bigint"),
    ("log_index", "int"),
    ("pipeline", "string"),
    ("transaction_id", "string"),
    ("planned", "timestamp"),
    ("log_time", "timestamp"),
    ("log_time_ns_part", "bigint"),
    ("topic", "binary"),
    ("source", "binary"),
    ("contents", "array<struct<key:binary,value:binary>>"),
    ("column_name", "string"),
    ("type_wanted", "string"),
    ("reason", "string"),
    ("value", "binary"),
)
"""The quarantine's columns. `contents` are the log's own keys and its tags; a log's values are kept as bytes."""

# The quarantine gets these of the main table's options, since they concern no column.
_SHARED_OPTIONS = "hoodie.metadata.compact."


def table_of(pipeline: Pipeline, path: str = "") -> Pipeline:
    """The pipeline with the quarantine as its table; `path` overrides the quarantine path of the pipeline's file."""
    name = pipeline.quarantine.name or f"{pipeline.table.name}_quarantine"
    options = {key: value for key, value in pipeline.table.options.items() if key.startswith(_SHARED_OPTIONS)}
    table = Table(path=path or pipeline.quarantine_path, name=name, options=options)
    columns = [Column(name=name, type=type_, format=_format(type_)) for name, type_ in COLUMNS]
    return _as_beside(pipeline, table, columns=columns, rest_column=None)


def _as_beside(pipeline: Pipeline, table: Table, **changes: Any) -> Pipeline:
    """The pipeline with a table beside as its own: what comes into it was judged, sorted and masked.

    A clustering sorts by the main table's columns, and mirrors are the main table's.
    """
    plain: dict[str, Any] = {"misfits": "nullify", "checks": [], "quarantine": Quarantine(), "mirror": None}
    plain |= {"where": None, "routes": [], "masks": [], "mask_key": None}
    plain["maintenance"] = pipeline.maintenance.model_copy(update={"clustering": None})
    return pipeline.model_copy(update={"table": table, **plain, **changes})


def _format(type_: str) -> str | None:
    return "micros" if type_ == "timestamp" else None


def route_table(pipeline: Pipeline, route: Route, path: str = "") -> Pipeline:
    """The pipeline with a route's table as its own; `path` overrides the one of the pipeline's file."""
    table = pipeline.table
    partition = table.partition
    if isinstance(partition, EventTimePartition):
        partition = partition.model_copy(update={"bounds": None, "lateness": None})
    place = {"path": path or pipeline.path_of(route), "name": route.name, "partition": partition}
    # In the catalog it has its own name.
    catalog = None if pipeline.catalog is None else pipeline.catalog.model_copy(update={"table": None})
    return _as_beside(pipeline, table.model_copy(update=place), catalog=catalog)


@dataclass(frozen=True)
class Beside:
    """A table beside a pipeline's main one.

    Attributes:
        key: its name among them.
        main_pipeline: the pipeline with the main table as its own.
        path: where it is; empty: where the pipeline's file has it. A route that is not in the file needs it.
    """

    key: str
    main_pipeline: Pipeline
    path: str = ""

    @classmethod
    def quarantine(cls, pipeline: Pipeline) -> Beside:
        """The quarantine of a pipeline."""
        return cls(QUARANTINE, pipeline)

    @cached_property
    def _route(self) -> Route:
        name = self.key.removeprefix(ROUTE)
        return next((item for item in self.main_pipeline.routes if item.name == name), Route(name=name, where="false"))

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline with this table as its own."""
        if self.key == QUARANTINE:
            return table_of(self.main_pipeline, self.path)
        return route_table(self.main_pipeline, self._route, self.path)

    @property
    def is_wanted(self) -> bool:
        """Whether the pipeline's file sends logs there."""
        return self.main_pipeline.quarantines if self.key == QUARANTINE else self._route in self.main_pipeline.routes

    @cached_property
    def storage(self) -> Storage:
        """The table's storage."""
        here = self.main_pipeline.quarantine_path if self.key == QUARANTINE else self.main_pipeline.path_of(self._route)
        return Storage(self.path or here)

    @cached_property
    def main(self) -> Storage:
        """The main table's storage."""
        return Storage(self.main_pipeline.table.path)

    def at(self, storage: Storage) -> Beside:
        """The same table at another place."""
        return Beside(self.key, self.main_pipeline, storage.uri)

    @property
    def called(self) -> str:
        """What messages call it."""
        return "quarantine" if self.key == QUARANTINE else f"table of route {self.key.removeprefix(ROUTE)}"

    @property
    def record(self) -> str:
        """A file of the main table that lists where it was made: so a missing one is told from one never made.

        It has a line for each place: instant and URI.
        """
        return f"{ROOT}/{self.key}"


def tables_beside(pipeline: Pipeline) -> list[Beside]:
    """The quarantine, which there need not be, and the tables of routes."""
    return [Beside(key, pipeline) for key in (QUARANTINE, *route_keys(pipeline))]


def route_keys(pipeline: Pipeline) -> list[str]:
    """The keys of the routes' tables, in the order of the file."""
    return [f"{ROUTE}{route.name}" for route in pipeline.routes]


@dataclass(frozen=True)
class Place:
    """Where a table beside was made; `since` is the first instant that may have a part in it, empty if not recorded."""

    storage: Storage
    since: str

    def is_at(self, storage: Storage) -> bool:
        """Whether it is at `storage`, however the URI is spelled."""
        return self.storage.full("") == storage.full("")


def require_there(beside: Beside) -> None:
    """Raises TimelineUnreadable if the table was made there and is missing now."""
    storage, called = beside.storage, beside.called
    if storage.read(PROPERTIES) is not None or not any(place.is_at(storage) for place in places(beside)):
        return
    if properties.is_cut_off(storage):
        raise TimelineUnreadable(
            f"{storage.uri}: a driver died while it changed {PROPERTIES} of the {called}; `slshudi recover PIPELINE` "
            "puts it back",
            table=storage.uri,
        )
    raise TimelineUnreadable(
        f"{storage.uri}: the {called} is not here any more ({PROPERTIES} is missing). It may still hold logs "
        "elsewhere, so no new one is made. See whether it is mounted, and whether this machine's settings lead to the "
        f"right store. If it was deleted on purpose, or moved, take its line out of {beside.main.full(beside.record)}",
        table=storage.uri,
    )


def require_known(beside: Beside) -> None:
    """As `require_there`; if no place of the table is recorded, looks through the main table's commits.

    Raises:
        TimelineUnreadable: the table is missing, or a commit put logs into it and it is not there.
    """
    require_there(beside)
    storage, main = beside.storage, beside.main
    if storage.exists(PROPERTIES) or main.exists(beside.record):
        return
    for commit in Timeline.load(main).commits():
        if has_part(commit.extra, beside.key):
            raise TimelineUnreadable(
                f"{storage.uri}: there is no {beside.called} here, but commit {commit.time} of {main.uri} put logs "
                "into one. See whether it is mounted, and whether this machine's settings lead to the right store. To "
                f"have a new one made here, create an empty file {main.full(beside.record)}",
                table=storage.uri,
                instant=commit.time,
            )


def places(beside: Beside) -> list[Place]:
    """Where the table was made, as recorded."""
    recorded_places = []
    for line in filter(None, map(str.strip, (beside.main.read(beside.record) or b"").decode().splitlines())):
        since, _, uri = line.partition(" ")
        recorded_places.append(Place(Storage(uri), since) if since.isdigit() else Place(Storage(line), ""))
    return recorded_places


def is_known(beside: Beside, made: Sequence[Place]) -> bool:
    """Whether the pipeline's file sends logs into the table, or it was `made` where it is to be."""
    return beside.is_wanted or any(place.is_at(beside.storage) for place in made)


def keep_place(beside: Beside, instant: str) -> None:
    """Records that the table was made where it is, for an instant that is about to be opened."""
    recorded_places = places(beside)
    if not any(place.is_at(beside.storage) for place in recorded_places):
        lines = (
            f"{place.since} {place.storage.uri}".strip() for place in [*recorded_places, Place(beside.storage, instant)]
        )
        beside.main.write(beside.record, "\n".join(lines).encode())


def require_part(beside: Beside, instant: str) -> None:
    """Checks that the table's part can be completed; call it before the main table's instant is completed.

    Raises:
        TimelineUnreadable: the table is not there.
        TableMismatch: it has no such instant, or another client gave it an index.
    """
    require_there(beside)
    storage, called = beside.storage, beside.called
    Indexes.of(storage).require_kept(storage.uri)
    timeline = Timeline.load(storage)
    if not may_complete(timeline, instant) and not is_completed(timeline, instant):
        raise TableMismatch(
            f"{storage.uri}: the batch has logs in this {called}, but instant {instant} is not there: a client rolled "
            f"it back, or replaced the {called}. Nothing is committed. `slshudi abandon PIPELINE TRANSACTION --reason "
            "WHY` gives the batch up; a later batch then reads its logs again",
            table=storage.uri,
            instant=instant,
        )


def may_complete(timeline: Timeline, instant: str) -> bool:
    """Whether the table's instant is INFLIGHT and no rollback of it is pending."""
    part = _part(timeline, instant)
    return part is not None and part.phase is Phase.INFLIGHT and instant not in timeline.rolling_back


def is_completed(timeline: Timeline, instant: str) -> bool:
    """Whether the table's timeline, or its archive, has the instant completed."""
    part = _part(timeline, instant)
    return part.phase is Phase.COMPLETED if part is not None else timeline.archived(instant) is not None


def is_pending(timeline: Timeline, instant: str) -> bool:
    """Whether the instant is on the timeline and not completed, or half rolled back."""
    part = _part(timeline, instant)
    return instant in timeline.rolling_back or (part is not None and part.phase is not Phase.COMPLETED)


def _part(timeline: Timeline, instant: str) -> Instant | None:
    """The batch's part; a rollback or clean of the table may have the time of a main table's instant by chance."""
    part = timeline.get(instant)
    return part if part is not None and part.action == COMMIT_ACTION else None


def gone(beside: Beside, instant: str, where: str = "") -> TableMismatch:
    """The error for a part of a batch that went after the main table's instant was completed."""
    table, called = where or beside.storage.uri, beside.called
    return TableMismatch(
        f"{table}: the main table has completed instant {instant}, but the {called} does not have it any more: "
        f"a client rolled it back, or replaced or restored the {called}. Its logs are in neither table. Restore both "
        "tables to before the instant, then run `slshudi ledger rebuild`: a later batch reads the logs again",
        table=table,
        instant=instant,
    )
