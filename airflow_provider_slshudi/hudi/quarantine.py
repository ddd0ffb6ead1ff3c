"""The quarantine: a Hudi table beside the main one for the logs that do not fit it.

A batch has the same instant time in both tables. The main table's instant decides: the quarantine's is committed or
rolled back as it is. So no owner of a quarantine's instant is recorded; recovery finds it by the main table's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_slshudi.config.columns import Column
from airflow_provider_slshudi.config.pipeline import Pipeline, Quarantine
from airflow_provider_slshudi.config.table import Table
from airflow_provider_slshudi.exceptions import TableMismatch, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION, QUARANTINE_KEY
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

_PLACE = f"{ROOT}/quarantine"
"""Lists quarantines that were made, one line each: instant and URI. So a missing one is told from one never made."""

# The quarantine gets these of the main table's options, since they concern no column.
_SHARED_OPTIONS = "hoodie.metadata.compact."


def table_of(pipeline: Pipeline, path: str = "") -> Pipeline:
    """The pipeline with the quarantine as its table; `path` overrides the quarantine path of the pipeline's file."""
    name = pipeline.quarantine.name or f"{pipeline.table.name}_quarantine"
    options = {key: value for key, value in pipeline.table.options.items() if key.startswith(_SHARED_OPTIONS)}
    table = Table(path=path or pipeline.quarantine_path, name=name, options=options)
    columns = [Column(name=name, type=type_, format=_format(type_)) for name, type_ in COLUMNS]
    plain: dict[str, Any] = {"rest_column": None, "misfits": "nullify", "checks": [], "quarantine": Quarantine()}
    # What comes into it was judged and masked.
    plain |= {"where": None, "masks": [], "mask_key": None}
    # A clustering sorts by the main table's columns, and mirrors are the main table's.
    plain["maintenance"] = pipeline.maintenance.model_copy(update={"clustering": None})
    plain["mirror"] = None
    return pipeline.model_copy(update={"table": table, "columns": columns, **plain})


@dataclass(frozen=True)
class Place:
    """Where a quarantine was made; `since` is the first instant that may have a part in it, empty if not recorded."""

    storage: Storage
    since: str

    def is_at(self, storage: Storage) -> bool:
        """Whether it is at `storage`, however the URI is spelled."""
        return self.storage.full("") == storage.full("")


def require_there(main: Storage, aside: Storage) -> None:
    """Raises TimelineUnreadable if a quarantine was made at `aside` and is missing now."""
    if aside.read(PROPERTIES) is not None or not any(place.is_at(aside) for place in places(main)):
        return
    if properties.is_cut_off(aside):
        raise TimelineUnreadable(
            f"{aside.uri}: a driver died while it changed {PROPERTIES} of the quarantine; `slshudi recover PIPELINE` "
            "puts it back",
            table=aside.uri,
        )
    raise TimelineUnreadable(
        f"{aside.uri}: the quarantine is not here any more ({PROPERTIES} is missing). It may still hold logs "
        "elsewhere, so no new one is made. See whether it is mounted, and whether this machine's settings lead to the "
        f"right store. If it was deleted on purpose, or moved, take its line out of {main.full(_PLACE)}",
        table=aside.uri,
    )


def require_known(main: Storage, aside: Storage) -> None:
    """As `require_there`; if no quarantine's place is recorded, looks through the main table's commits.

    Raises:
        TimelineUnreadable: the quarantine is missing, or a commit put logs aside and there is no quarantine here.
    """
    require_there(main, aside)
    if aside.exists(PROPERTIES) or main.exists(_PLACE):
        return
    for commit in Timeline.load(main).commits():
        if QUARANTINE_KEY in commit.extra:
            raise TimelineUnreadable(
                f"{aside.uri}: there is no quarantine here, but commit {commit.time} of {main.uri} put logs into one. "
                "See whether it is mounted, and whether this machine's settings lead to the right store. To have a new "
                f"one made here, create an empty file {main.full(_PLACE)}",
                table=aside.uri,
                instant=commit.time,
            )


def places(main: Storage) -> list[Place]:
    """The recorded quarantines of this table."""
    recorded_places = []
    for line in filter(None, map(str.strip, (main.read(_PLACE) or b"").decode().splitlines())):
        since, _, uri = line.partition(" ")
        recorded_places.append(Place(Storage(uri), since) if since.isdigit() else Place(Storage(line), ""))
    return recorded_places


def is_known(pipeline: Pipeline, aside: Storage, made: Sequence[Place]) -> bool:
    """Whether the pipeline's file asks for a quarantine, or one was `made` at `aside`."""
    return pipeline.quarantines or any(place.is_at(aside) for place in made)


def keep_place(main: Storage, aside: Storage, instant: str) -> None:
    """Records that a quarantine was made at `aside`, for an instant that is about to be opened."""
    recorded_places = places(main)
    if not any(place.is_at(aside) for place in recorded_places):
        lines = (f"{place.since} {place.storage.uri}".strip() for place in [*recorded_places, Place(aside, instant)])
        main.write(_PLACE, "\n".join(lines).encode())


def require_part(pipeline: Pipeline, instant: str) -> None:
    """Checks that the quarantine's part can be completed; call it before the main table's instant is completed.

    Raises:
        TimelineUnreadable: the quarantine is not there.
        TableMismatch: it has no such instant, or another client gave it an index.
    """
    quarantine = table_of(pipeline)
    aside = Storage(quarantine.table.path)
    require_there(Storage(pipeline.table.path), aside)
    Indexes.of(aside).require_kept(aside.uri)
    timeline = Timeline.load(aside)
    if not may_complete(timeline, instant) and not is_completed(timeline, instant):
        raise TableMismatch(
            f"{aside.uri}: the batch has logs in this quarantine, but instant {instant} is not there: a client rolled "
            "it back, or replaced the quarantine. Nothing is committed. `slshudi abandon PIPELINE TRANSACTION --reason "
            "WHY` gives the batch up; a later batch then reads its logs again",
            table=aside.uri,
            instant=instant,
        )


def may_complete(timeline: Timeline, instant: str) -> bool:
    """Whether the quarantine's instant is INFLIGHT and no rollback of it is pending."""
    part = _part(timeline, instant)
    return part is not None and part.phase is Phase.INFLIGHT and instant not in timeline.rolling_back


def is_completed(timeline: Timeline, instant: str) -> bool:
    """Whether the quarantine's timeline, or its archive, has the instant completed."""
    part = _part(timeline, instant)
    return part.phase is Phase.COMPLETED if part is not None else timeline.archived(instant) is not None


def is_pending(timeline: Timeline, instant: str) -> bool:
    """Whether the instant is on the timeline and not completed, or half rolled back."""
    part = _part(timeline, instant)
    return instant in timeline.rolling_back or (part is not None and part.phase is not Phase.COMPLETED)


def _part(timeline: Timeline, instant: str) -> Instant | None:
    """The batch's part; a rollback or clean of the quarantine may have the time of a main table's instant by chance."""
    part = timeline.get(instant)
    return part if part is not None and part.action == COMMIT_ACTION else None


def gone(table: str, instant: str) -> TableMismatch:
    """The error for a quarantined batch whose instant went after the main table's was completed."""
    return TableMismatch(
        f"{table}: the main table has completed instant {instant}, but the quarantine does not have it any more: "
        "a client rolled it back, or replaced or restored the quarantine. Its logs are in neither table. Restore both "
        "tables to before the instant, then run `slshudi ledger rebuild`: a later batch reads the logs again",
        table=table,
        instant=instant,
    )


def _format(type_: str) -> str | None:
    return "micros" if type_ == "timestamp" else None
