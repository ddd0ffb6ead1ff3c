"""A table's timeline, read without a JVM (hudi.apache.org/docs/timeline); `hudi.layout` knows its files.

Reading it is one listing of the active timeline, which archival keeps short, however old the table is. Only Hudi's own
classes write it (`hudi.client`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.archive import Archive, archive_of
from airflow_provider_slshudi.hudi.layout import (
    CLUSTERING,
    LAYOUT_1,
    LAYOUT_2,
    METADATA_FOLDER,
    MOVING,
    PROPERTIES,
    REPLACE,
    Instant,
    Layout,
    Phase,
    is_whole,
    record_of,
)
from airflow_provider_slshudi.storage.files import Storage

COMMITS = ("commit", "deltacommit")
"""The actions that write rows: of copy-on-write and of merge-on-read tables."""
CHANGES = (*COMMITS, REPLACE)
"""Actions that change which files a snapshot has."""
_WRITES = (*CHANGES, "compaction", CLUSTERING, "logcompaction")


class Commit(NamedTuple):
    """A completed commit.

    Attributes:
        time: of its request.
        completion: its completion time.
        extra: the extra metadata that its committer left.
        partitions: rows that it wrote by the path of their partition, `""` of a table without any; None where its
            record does not tell.
    """

    time: str
    completion: str
    extra: Mapping[str, str]
    partitions: dict[str, int] | None

    @classmethod
    def of(cls, time: str, completion: str, record: Mapping[str, Any]) -> Commit:
        """The commit with this record."""
        stats = record.get("partitionToWriteStats")
        rows = None if stats is None else {path: sum(map(_rows, stats[path])) for path in sorted(stats)}
        return cls(time, completion, record.get("extraMetadata") or {}, rows)


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The files, by their paths within the table, and the whole partitions that a clean is to delete.

    `outside` are files that are not in the table's folder, as the plan names them. Snapshots of instants from `until`
    on keep all their files; empty where the plan does not tell.
    """

    files: list[str]
    partitions: list[str]
    outside: list[str] = field(default_factory=list)
    until: str = ""


class Timeline:
    """The active timeline as it stood when it was loaded.

    Attributes:
        storage: the table's.
        layout: how it is laid out.
        unnamed: files that did not get their name, because a disk was full or their writer died, or do not have it yet.
    """

    def __init__(
        self,
        storage: Storage,
        instants: dict[str, list[Instant]],
        unnamed: Sequence[str] = (),
        layout: Layout = LAYOUT_2,
    ) -> None:
        self.storage = storage
        self._instants = instants
        self.unnamed = unnamed
        self.layout = layout
        self._read_last: tuple[str, dict[str, Any]] | None = None

    @classmethod
    def load(cls, storage: Storage, moving: bool = False) -> Timeline:
        """Reads the timeline; it is empty if the table does not exist.

        Only who moves a timeline into another layout reads it while it is `moving`.

        Raises:
            TimelineUnreadable: the storage did not answer, the timeline is moving, or the table's version is not one
                that we know.
        """
        layout, names = files_of(storage, moving)
        furthest: dict[tuple[str, str], Instant] = {}
        completed: list[Instant] = []
        for instant in filter(None, map(layout.instant, sorted(names))):
            if instant.phase is Phase.COMPLETED:
                completed.append(instant)
                continue
            key = instant.time, instant.action
            if key not in furthest or furthest[key].phase is Phase.REQUESTED:
                furthest[key] = instant
        instants: dict[str, list[Instant]] = {}
        for instant in completed:
            instants.setdefault(instant.time, []).append(instant)
        for instant in furthest.values():
            time_instants = instants.setdefault(instant.time, [])
            # A write may complete under another name, as a compaction does; a rollback of the same time is another.
            if all(_kind(one) != _kind(instant) for one in time_instants):
                time_instants.append(_as_clustering(storage, instant) if layout is LAYOUT_1 else instant)
        return cls(storage, dict(sorted(instants.items())), list(filter(layout.is_unnamed, names)), layout)

    def __iter__(self) -> Iterator[Instant]:
        for instants in self._instants.values():
            yield from instants

    def get(self, time: str) -> Instant | None:
        """The instant requested at `time`, None where the active timeline has none.

        Of a write and a rollback or clean of the same millisecond it is the write.

        Raises:
            TimelineUnreadable: two completed instants share the time, which no well-behaved committer leaves.
        """
        instants = self._instants.get(time, [])
        instants = [one for one in instants if one.action in _WRITES] or instants
        if len(instants) > 1:
            raise TimelineUnreadable(
                f"{self.storage.uri}: instant {time} was completed {len(instants)} times "
                f"({', '.join(instant.file for instant in instants)}); remove the extra file after comparing them",
                table=self.storage.uri,
                instant=time,
            )
        return instants[0] if instants else None

    def completed_twice(self) -> list[list[Instant]]:
        """The completions of each change that has more than one, the earliest first."""
        completions = ([one for one in several if one.action in CHANGES] for several in self._instants.values())
        return [sorted(several, key=lambda one: str(one.completion)) for several in completions if len(several) > 1]

    def cut_completions(self, times: Container[str] = ()) -> list[Instant]:
        """Completed instants whose file was cut off, by a full disk or a power loss: the newest of each action, and
        those of `times`. Another process may be writing such a file, unless the caller holds the lease.
        """
        completed = [one for one in self if one.phase is Phase.COMPLETED]
        newest = {one.action: one for one in sorted(completed, key=lambda one: str(one.completion))}
        return [one for one in completed if one in newest.values() or one.time in times if not self.is_whole(one)]

    def is_whole(self, completed: Instant) -> bool:
        """Whether the file of a completed instant has a record and its end."""
        return is_whole(self._content(completed.file, completed.time))

    def cut_plans(self, *actions: str) -> list[Instant]:
        """Pending table services of these actions whose plan was cut off."""
        planned = [one for one in self.pending() if one.action in actions]
        return [one for one in planned if not is_whole(self._content(self._plan_file(one), one.time))]

    def remove(self, instant: Instant) -> list[str]:
        """Removes a completion, or the plan of a pending service, with the checksums that Hadoop keeps beside them.

        The caller holds the lease. Returns the files; the timeline in memory stays as it was.
        """
        files = [instant.file]
        if instant.phase is not Phase.COMPLETED:
            # The plan goes last: without it, Hudi could not tell what the inflight service is.
            files = [self.layout.pending_file(instant, Phase.INFLIGHT), self._plan_file(instant)]
        for file in files:
            folder, _, name = file.rpartition("/")
            self.storage.delete(f"{folder}/.{name}.crc")
            self.storage.delete(file)
        return files

    def remove_unnamed(self) -> None:
        """Removes the files that did not get their name. The caller holds the lease, so nothing is writing one."""
        for name in self.unnamed:
            self.storage.delete(f"{self.layout.folder}/{name}")

    def say_the_same(self, completions: list[Instant]) -> bool:
        """Whether completed instants have the same content."""
        first, *others = (self._record(one) for one in completions)
        return all(other == first for other in others)

    @property
    def oldest(self) -> str:
        """The time of the oldest instant; older ones were archived. Empty if the timeline is."""
        return next(iter(self._instants), "")

    def pending(self) -> list[Instant]:
        """Instants that are requested or inflight, oldest first."""
        return [instant for instant in self if instant.phase is not Phase.COMPLETED]

    @cached_property
    def rolling_back(self) -> dict[str, Instant]:
        """The pending rollbacks by the time of the instant that each names.

        Hudi deletes that instant's files first, then the instant, and completes the rollback last, so the instant
        may look INFLIGHT, REQUESTED or be gone. Reads one file per pending rollback; mostly there is none.

        Raises:
            TimelineUnreadable: the plan of a rollback that has begun cannot be read.
        """
        rollbacks: dict[str, Instant] = {}
        for rollback in self.pending():
            if rollback.action == "rollback" and (time := self._planned(rollback)) is not None:
                rollbacks.setdefault(time, rollback)
        return rollbacks

    def _planned(self, rollback: Instant) -> str | None:
        file = self._plan_file(rollback)
        try:
            return str(self._record_in(file, rollback.time)["instantToRollback"]["commitTime"])
        except (TimelineUnreadable, KeyError, TypeError) as error:
            if rollback.phase is Phase.REQUESTED:
                # The plan was cut off, so the rollback deleted nothing; Hudi throws such a plan away.
                return None
            raise TimelineUnreadable(
                f"{self.storage.uri}: {file} does not tell what is being rolled back: {error!r}",
                table=self.storage.uri,
                instant=rollback.time,
            ) from error

    def completed(self, *actions: str) -> list[Instant]:
        """Completed instants of these actions, in the order of their request."""
        return [instant for instant in self if instant.phase is Phase.COMPLETED and instant.action in actions]

    def extra_metadata(self, instant: Instant) -> dict[str, str]:
        """The extra metadata that the committer left with a completed commit."""
        return self._record(instant).get("extraMetadata") or {}

    def extra_of(self, time: str) -> dict[str, str] | None:
        """The extra metadata of the commit requested at `time`, archived or not; None if it is not completed."""
        instant = self.get(time)
        if instant is not None:
            return self.extra_metadata(instant) if instant.phase is Phase.COMPLETED else None
        archived = self.archived(time)
        return None if archived is None else archived[1]

    def record(self, instant: Instant) -> dict[str, Any]:
        """All that the committer wrote of a completed change."""
        return self._record(instant)

    def operation(self, instant: Instant) -> str:
        """Hudi's name for the operation of a completed commit: BULK_INSERT, CLUSTER, DELETE, ..."""
        return str(self._record(instant).get("operationType") or "UNKNOWN")

    def action(self, time: str) -> str:
        """The action of an instant, even if its pending rollback has deleted it; empty if there is no such instant."""
        instant, rollback = self.get(time), self.rolling_back.get(time)
        if instant is not None or rollback is None:
            return instant.action if instant is not None else ""
        return str(self.plan(rollback)["instantToRollback"]["action"])

    def is_gone(self, time: str) -> bool:
        """Whether an instant that was begun is off the timeline for good and was never completed."""
        if self.get(time) is not None or time in self.rolling_back:
            return False
        return self.archived(time) is None

    def was_rolled_back(self, time: str) -> bool:
        """Whether a completed rollback of the active timeline names the instant."""
        return any(
            time in (self._record(rollback).get("commitsRollback") or ())
            for rollback in self.completed("rollback")
            if rollback.time > time
        )

    def plan(self, instant: Instant) -> dict[str, Any]:
        """The plan of a pending table service or rollback, as Hudi wrote it; empty if the writing was cut off."""
        try:
            return self._record_in(self._plan_file(instant), instant.time)
        except TimelineUnreadable:
            if instant.phase is Phase.REQUESTED:
                return {}
            raise

    def pending_clean(self) -> str | None:
        """The time of the oldest clean that was planned and is not completed."""
        return next((instant.time for instant in self.pending() if instant.action == "clean"), None)

    def cleaned_until(self) -> str:
        """Snapshots of instants from this one on have all their files, say the cleans of the active timeline.

        Empty where it has none; reads each of them.
        """
        retained = (self._record(one).get("earliestCommitToRetain") for one in self.completed("clean"))
        return max((str(instant or "") for instant in retained), default="")

    def clean_plan(self, time: str) -> CleanPlan:
        """The files and partitions that a planned clean is to delete.

        Raises:
            TimelineUnreadable: the plan cannot be read.
        """
        plan = self._record_in(self.clean_plan_file(time), time)
        per_partition = plan.get("filePathsToBeDeletedPerPartition") or {}
        files, outside = [], []
        for path in (item["filePath"] for items in per_partition.values() for item in items):
            try:
                files.append(self.storage.relative(path))
            except TimelineUnreadable:
                outside.append(path)
        until = str((plan.get("earliestInstantToRetain") or {}).get("timestamp") or "")
        return CleanPlan(files, list(plan.get("partitionsToBeDeleted") or []), outside, until)

    def clean_plan_file(self, time: str) -> str:
        """The file of a clean's plan, by its path within the table."""
        return self._plan_file(Instant(time, "clean", Phase.REQUESTED))

    def archived(self, time: str) -> tuple[str, dict[str, str]] | None:
        """Completion time and extra metadata of an archived instant that wrote files; None where there is none."""
        writes = (one for one in self._archive.around(time) if one.time == time and one.action in _WRITES)
        return next(((one.completion, one.extra) for one in writes), None)

    def archived_changes(self) -> set[str]:
        """The times of every archived instant that wrote files; reads the whole archive."""
        return {one.time for one in self._archive.instants(with_records=False) if one.action in _WRITES}

    def rolled_back(self) -> set[str]:
        """The times of all instants that completed rollbacks name; reads every rollback and the whole archive."""
        records: list[Mapping[str, Any]] = [self._record(rollback) for rollback in self.completed("rollback")]
        records += [one.record for one in self._archive.instants() if one.action == "rollback"]
        return {str(time) for record in records for time in record.get("commitsRollback") or ()}

    def commits(self) -> Iterator[Commit]:
        """Every completed commit; reads each of them, and the whole archive."""
        completed = self.completed(*COMMITS)
        for instant in completed:
            yield Commit.of(instant.time, str(instant.completion), self._record(instant))
        times = {instant.time for instant in completed}
        for commit in self.archived_commits():
            # Archival writes the archive first: if it is cut off, an instant is in both, later in the archive twice.
            if commit.time not in times:
                times.add(commit.time)
                yield commit

    def archived_commits(self) -> Iterator[Commit]:
        """Every archived commit; reads the whole archive."""
        archived = (one for one in self._archive.instants() if one.action in COMMITS)
        return (Commit.of(one.time, one.completion, one.record) for one in archived)

    def require_archive(self) -> None:
        """Has archival not begin where it would end without a word of which file it cannot read.

        Raises:
            TimelineUnreadable: a file of the archive, or the list of these files, is gone or cut off.
        """
        self._archive.require()

    def has_plan(self, instant: Instant) -> bool:
        """Whether the plan of a table service is there, completed or not."""
        return self.storage.exists(self._plan_file(instant))

    @cached_property
    def _archive(self) -> Archive:
        return archive_of(self.storage, self.layout)

    def _plan_file(self, instant: Instant) -> str:
        return self.layout.pending_file(instant, Phase.REQUESTED)

    def _record(self, instant: Instant) -> dict[str, Any]:
        # Several looks begin at the newest commit; all records of a long timeline would be a lot of memory.
        last = self._read_last
        if last is None or last[0] != instant.file:
            self._read_last = last = instant.file, self._record_in(instant.file, instant.time)
        return last[1]

    def _record_in(self, file: str, instant: str) -> dict[str, Any]:
        content = self._content(file, instant)
        try:
            return record_of(content)
        except TimelineUnreadable as error:
            raise TimelineUnreadable(
                f"{self.storage.uri}: {file} ({len(content)} bytes) was cut off, or is being written: {error}. If it "
                "stays so, put the file back from the storage's versions or from a backup of the table",
                table=self.storage.uri,
                instant=instant,
            ) from error

    def _content(self, file: str, instant: str) -> bytes:
        content = self.storage.read(file)
        if content is None:
            raise TimelineUnreadable(
                f"{self.storage.uri}: {file} was there and is gone; try again",
                table=self.storage.uri,
                instant=instant,
            )
        return content


def _rows(stat: Mapping[str, Any]) -> int:
    return int(stat.get("numWrites") or 0)


def _kind(instant: Instant) -> str:
    return "write" if instant.action in _WRITES else instant.action


def files_of(storage: Storage, moving: bool = False) -> tuple[Layout, list[str]]:
    """The layout of a table's timeline, and the names of the files in its folder; empty if there is no table.

    Raises:
        TimelineUnreadable: as `Timeline.load`.
    """
    layout_2_names = storage.names(LAYOUT_2.folder)
    if not moving and MOVING.rpartition("/")[2] in (layout_2_names or []):
        raise TimelineUnreadable(
            f"{storage.uri}: Hudi's version of the table is being changed, or a change was cut off. If no `slshudi "
            "table version` is running, run it again: it puts the timeline back first. Until then the timeline does "
            "not tell what is committed",
            table=storage.uri,
        )
    if any(map(LAYOUT_2.instant, layout_2_names or [])):
        return LAYOUT_2, layout_2_names or []
    table_properties = properties.read(storage)
    version = (table_properties or {}).get(properties.VERSION, "")
    if layout_2_names is not None and version not in ("", str(FORMER_VERSION)):
        return LAYOUT_2, layout_2_names
    names, is_metadata = storage.names(LAYOUT_1.folder) or [], is_metadata_table(storage)
    has_former = any(map(LAYOUT_1.instant, names))
    if version == str(FORMER_VERSION) or (is_metadata and table_properties is None and has_former):
        return LAYOUT_1, names
    if layout_2_names is not None and not has_former:
        return LAYOUT_2, layout_2_names
    # Hudi deletes metadata tables file by file, and makes them anew.
    if (table_properties is not None or has_former) and not is_metadata:
        raise TimelineUnreadable(
            f"{storage.uri} is not of table version 6, 8 or 9, or a file is missing: {PROPERTIES} names version "
            f"{version or 'none'}, whose timeline is not there. Upgrade the table with Hudi, or put the file back",
            table=storage.uri,
        )
    return LAYOUT_2, []


def is_metadata_table(storage: Storage) -> bool:
    """Whether the table is the metadata table of another one."""
    return storage.uri.endswith(METADATA_FOLDER)


def _as_clustering(storage: Storage, pending: Instant) -> Instant:
    """A pending clustering by that action's name: in layout 1 only its plan tells it from other replacements.

    A plan that was cut off counts as one: all other writers complete theirs before they write files.
    """
    if pending.action != REPLACE:
        return pending
    plan = storage.read(LAYOUT_1.pending_file(pending, Phase.REQUESTED))
    if plan is None or (is_whole(plan) and record_of(plan).get("operationType") != "CLUSTER"):
        return pending
    return Instant(pending.time, CLUSTERING, pending.phase)
