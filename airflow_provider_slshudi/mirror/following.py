"""Brings a mirror from where it stands to the table's newest completed instant; may be repeated at any time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_slshudi.config.datatypes import DataType
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import MirrorFailed, MirrorRefused, SlsHudiError
from airflow_provider_slshudi.hudi.evolution import TableSchema
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, type_of_avro
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.mirror.table_changes import (
    ACTION_KEY,
    BaseFile,
    Change,
    Place,
    changes_since,
    live_files,
    with_rows,
)
from airflow_provider_slshudi.storage.files import Storage

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Columns:
    """Name and type of each column in the table's order, and the partition's column; None without partitions."""

    types: tuple[tuple[str, DataType], ...]
    partition: str | None

    @classmethod
    def of(cls, pipeline: Pipeline, schema: TableSchema) -> Columns:
        """The columns of the table's schema.

        Raises:
            MirrorRefused: a column has a type that no pipeline file can ask for.
        """
        types = []
        for field in schema.record["fields"]:
            name = field["name"]
            if name in META_COLUMNS:
                continue
            type_ = type_of_avro(field["type"])
            if type_ is None:
                raise MirrorRefused(
                    f"{pipeline.table.path}: column {name} has type {field['type']}, which a mirror cannot show",
                    pipeline=pipeline.name,
                    mirror="",
                )
            types.append((name, type_))
        partition = pipeline.table.partition
        return cls(tuple(types), None if partition is None else partition.name)

    def partition_value(self, folder: str) -> str | None:
        """The partition's value as text, from its folder `name=value`; None for NULL, and without partitions."""
        text = folder.partition("=")[2]
        if self.partition is None or text == NULL_FOLDER:
            return None
        return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)


PLACE_KEY = "slshudi.place"
"""In a snapshot's summary: the mirror's `Place`, so that files and place are one change."""
ROWS_KEY = "slshudi.rows"
COMPACTED = "compacted: rows in log files are not shown"
"""The value of ROWS_KEY in mirrors of Merge-On-Read tables."""
RECONCILED = "reconciled"
"""The action of a snapshot that was made by listing the table."""


@dataclass(frozen=True)
class Followed:
    """What one run did: the instants that it mirrored one by one, and whether it compared all files instead."""

    instants: tuple[str, ...]
    reconciled: bool


class Mirror(Protocol):
    """A table format's metadata over the same base files. Each method that writes makes one snapshot, in one step."""

    def place(self) -> Place | None:
        """Loads the mirror, which leaves a snapshot of another client first; None: all files have to be compared."""

    def files(self) -> frozenset[str]:
        """The paths within the table of the files that the newest snapshot names; empty without a mirror. Files of
        other folders are left out."""

    def apply(self, change: Change, columns: Columns, summary: Mapping[str, str]) -> None:
        """Adds a snapshot with one instant's change."""

    def reconcile(
        self, added: list[BaseFile], live: frozenset[str], columns: Columns, summary: Mapping[str, str]
    ) -> None:
        """Makes the mirror if there is none, and adds a snapshot that names `live` and nothing else.

        `added` are those of `live` that the newest snapshot does not name.

        Args:
            added: see above.
            live: paths within the table of all files.
            columns: the table's.
            summary: the snapshot's metadata.
        """


class Telling:
    """Makes the errors of a table format's client the mirror's own.

    Args:
        pipeline: the pipeline's name.
        mirror: iceberg or delta.
        title: how messages name the mirror.
    """

    def __init__(self, pipeline: str, mirror: str, title: str) -> None:
        self._told = {"pipeline": pipeline, "mirror": mirror}
        self._title = title

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Makes errors of the client, which have no common base, ours."""
        try:
            yield
        except SlsHudiError:
            raise
        except Exception as error:
            raise self._failed(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}") from error

    def _failed(self, why: str) -> MirrorFailed:
        return MirrorFailed(f"{self._title}: {why}", **self._told)

    def _refused(self, why: str) -> MirrorRefused:
        return MirrorRefused(f"{self._title}: {why}", **self._told)


def follow(mirror: Mirror, storage: Storage, timeline: Timeline, columns: Columns, rows: str) -> Followed:
    """Mirrors the completed instants that the mirror lacks: one snapshot for each, in the order of their completion.

    Where the mirror's place is unknown, or single changes do not lead on from it, one snapshot is made by comparing the
    mirror's files with the table's.

    Args:
        mirror: the mirror.
        storage: the table's file system.
        timeline: the table's timeline; later instants are left to the next run.
        columns: the table's columns as of the timeline.
        rows: what the snapshots' summaries say of the rows that are shown; empty if it is all of them.

    Raises:
        MirrorFailed: the mirror did not change, or its answer was lost; repeat it.
        MirrorRefused: the mirror cannot show the table.
        TimelineUnreadable: the table cannot be read.
    """
    place = mirror.place()
    changes = None if place is None else changes_since(timeline, place)
    summary = {ROWS_KEY: rows} if rows else {}
    if place is None or changes is None:
        _reconcile(mirror, storage, timeline, columns, summary)
        return Followed((), True)
    for number, change in enumerate(changes, 1):
        place = place.after(change, timeline, changes[number:])
        mirror.apply(change, columns, {**summary, **change.summary, PLACE_KEY: place.text})
    return Followed(tuple(change.instant.time for change in changes), False)


def _reconcile(mirror: Mirror, storage: Storage, timeline: Timeline, columns: Columns, told: Mapping[str, str]) -> None:
    live, named = live_files(storage, timeline), mirror.files()
    added = with_rows(storage, {path: size for path, size in live.items() if path not in named})
    common_paths = named & live.keys()
    summary = {**told, ACTION_KEY: RECONCILED, PLACE_KEY: Place.at_end(timeline).text}
    mirror.reconcile(added, common_paths | {file.path for file in added}, columns, summary)
