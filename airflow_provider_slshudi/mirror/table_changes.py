"""Which base files a snapshot of the table has, and how each completed instant changes that; without a JVM.

Log files of Merge-On-Read tables are left out: neither Iceberg nor Delta can name them, so a mirror shows what was
compacted (hudi.apache.org/docs/file_layouts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import Instant, Phase
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage

INSTANT_KEY = "slshudi.instant"
"""In a snapshot's summary: the request time of the instant that it shows."""
ACTION_KEY = "slshudi.action"
FileGroup = tuple[str, str]
"""A partition's folder and a file id."""
_UNDONE = ("rollback", "restore")
"""Actions that take changes back; their records do not tell which files come back."""
_WRITES = (*CHANGES, "clustering", "compaction")
"""Actions that write base files, under the names that they have while they are pending, too."""
_BASE_FILE = re.compile(r"(?P<id>[^_.][^_]*)_[^_]+_(?P<instant>\d+)\.parquet")
_NONE = (None, "", "null")
_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True)
class BaseFile:
    """A base file: its path within the table, its rows and its bytes."""

    path: str
    rows: int
    size: int

    @property
    def partition(self) -> str:
        """The folder of its partition; empty in a table without partitions."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class Change:
    """What one completed instant does to the live base files.

    Attributes:
        instant: the completed instant.
        transaction: the id of our transaction; empty if the instant is of none.
        added: new base files with at least one row.
        superseded: file groups whose base files of before are live no more.
    """

    instant: Instant
    transaction: str
    added: tuple[BaseFile, ...]
    superseded: frozenset[FileGroup]

    @property
    def summary(self) -> dict[str, str]:
        """Instant, action and transaction for a snapshot's summary."""
        summary = {INSTANT_KEY: self.instant.time, ACTION_KEY: self.instant.action}
        return {**summary, TRANSACTION_KEY: self.transaction} if self.transaction else summary


@dataclass(frozen=True)
class Place:
    """How far a mirror has followed the timeline.

    An instant may complete after others that were requested later, so one time does not say which were mirrored.

    Attributes:
        completion: the latest completion time of the mirrored instants.
        newest: the latest request time on the timeline at that moment.
        pending: the request times of the instants that were not completed, or not mirrored yet.
    """

    completion: str
    newest: str
    pending: frozenset[str]

    @property
    def text(self) -> str:
        """The place as JSON, which `parse` reads."""
        return json.dumps({"completion": self.completion, "newest": self.newest, "pending": sorted(self.pending)})

    @classmethod
    def parse(cls, text: str | None) -> Place | None:
        """The place that a mirror's newest snapshot carries; None if it carries none that can be read."""
        try:
            read = json.loads(text or "")
            return cls(str(read["completion"]), str(read["newest"]), frozenset(map(str, read["pending"])))
        except (ValueError, TypeError, KeyError):
            return None

    @classmethod
    def at_end(cls, timeline: Timeline) -> Place:
        """The place of a mirror that shows every completed instant of the timeline."""
        return cls._with(timeline, max((str(one.completion) for one in _completed(timeline)), default=""), ())

    def after(self, change: Change, timeline: Timeline, unmirrored: Sequence[Change]) -> Place:
        """The place once `change` is mirrored and the changes `unmirrored` of the same timeline are not."""
        return self._with(timeline, max(self.completion, str(change.instant.completion)), unmirrored)

    @classmethod
    def _with(cls, timeline: Timeline, completion: str, unmirrored: Sequence[Change]) -> Place:
        pending = {one.time for one in timeline.pending()} | {change.instant.time for change in unmirrored}
        return cls(completion, max((one.time for one in timeline), default=""), frozenset(pending))

    def lacks(self, instant: Instant) -> bool:
        """Whether a completed instant is not mirrored yet."""
        return self._was_open(instant.time) or str(instant.completion) > self.completion

    def reaches(self, timeline: Timeline) -> bool:
        """Whether the timeline goes on from here: it is no older copy of itself, nor another table's, and every instant
        that is not mirrored yet is still active, as writes are archived in the order of their request.
        """
        writes = [one.time for one in timeline if one.action in _WRITES]
        goes_on = any(one.completion == self.completion for one in timeline)
        return goes_on and bool(writes) and min(writes) <= min((self.newest, *self.pending))

    def _was_open(self, time: str) -> bool:
        return time in self.pending or time > self.newest

    def never_had(self, times: Sequence[str]) -> bool:
        """Whether none of these instants was completed when the place was taken."""
        return all(self._was_open(time) for time in times)


def changes_since(timeline: Timeline, place: Place) -> list[Change] | None:
    """The changes that a mirror lacks, in the order of their completion; reads one record for each.

    None if single changes do not lead to the table's files of now: some were archived, or completed ones taken back.

    Raises:
        TimelineUnreadable: a record cannot be read.
    """
    if not place.reaches(timeline):
        return None
    changes = []
    for instant in _completed(timeline):
        if not place.lacks(instant):
            continue
        if instant.action in _UNDONE:
            if instant.action == "restore" or not place.never_had(_rolled_back(timeline, instant)):
                return None
        else:
            changes.append(change_of(timeline, instant))
    return changes


def change_of(timeline: Timeline, instant: Instant) -> Change:
    """The change that a completed write or table service makes, by its record alone."""
    record = timeline.record(instant)
    added, superseded = [], set(_replaced(record))
    for stat in _stats(record):
        path = str(stat["path"])
        if _BASE_FILE.fullmatch(path.rpartition("/")[2]) is None:  # a log file
            continue
        file = BaseFile(path, int(stat["numWrites"]), int(stat["fileSizeInBytes"]))
        if stat.get("prevCommit") not in _NONE:
            superseded.add(group_of(path))
        if file.rows:
            added.append(file)
    transaction = str((record.get("extraMetadata") or {}).get(TRANSACTION_KEY) or "")
    return Change(instant, transaction, tuple(added), frozenset(superseded))


def group_of(path: str) -> FileGroup:
    """The file group of a base file, by its path within the table."""
    folder, _, name = path.rpartition("/")
    return folder, name.partition("_")[0]


def live_files(storage: Storage, timeline: Timeline) -> dict[str, int]:
    """Path and bytes of every live base file as of the timeline; lists the whole table.

    Of each file group it is the newest file whose instant is completed, unless a completed instant replaced the group.
    An instant that is older than the timeline counts as completed, as Hudi's own readers take it.
    """
    completed = {one.time for one in timeline if one.phase is Phase.COMPLETED}
    replaced = {group for one in timeline.completed("replacecommit") for group in _replaced(timeline.record(one))}
    newest: dict[FileGroup, tuple[str, str, int]] = {}
    for path, size in storage.walk():
        name = _BASE_FILE.fullmatch(path.rpartition("/")[2])
        if name is None or not (name["instant"] in completed or name["instant"] < timeline.oldest):
            continue
        group = group_of(path)
        if group not in replaced:
            newest[group] = max(newest.get(group, ("", "", 0)), (name["instant"], path, size))
    return {path: size for _, path, size in newest.values()}


def with_rows(storage: Storage, sizes: Mapping[str, int]) -> list[BaseFile]:
    """The base files of these paths and bytes that have a row; reads the footer of each.

    Raises:
        TimelineUnreadable: a file is gone or cannot be read.
    """

    def read(path: str) -> BaseFile:
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(storage.full(path), filesystem=storage.filesystem)
        except (OSError, ValueError) as error:  # Arrow's own errors are ValueErrors
            raise TimelineUnreadable(f"{storage.uri}/{path}: {error}", table=storage.uri) from error
        return BaseFile(path, int(metadata.num_rows), sizes[path])

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return [file for file in pool.map(read, sorted(sizes)) if file.rows]


def _completed(timeline: Timeline) -> list[Instant]:
    """The completed instants that may change which files are live, in the order of their completion.

    A clean deletes only files that are not live. Of an instant that two drivers completed the earlier one counts,
    which is the one that settle leaves.
    """
    first: dict[tuple[str, bool], Instant] = {}
    for instant in sorted(timeline.completed(*CHANGES, *_UNDONE), key=lambda one: str(one.completion)):
        first.setdefault((instant.time, instant.action in _UNDONE), instant)
    return list(first.values())


def _rolled_back(timeline: Timeline, rollback: Instant) -> list[str]:
    return [str(time) for time in timeline.record(rollback).get("commitsRollback") or ()]


def _stats(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for stats in (record.get("partitionToWriteStats") or {}).values():
        yield from stats


def _replaced(record: Mapping[str, Any]) -> Iterator[FileGroup]:
    for partition, ids in (record.get("partitionToReplaceFileIds") or {}).items():
        yield from ((partition, str(file_id)) for file_id in ids)
