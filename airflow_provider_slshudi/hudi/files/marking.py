"""The steps before and after each file of a task attempt, and the deletion of a failed attempt's files.

A task leaves a marker first: a rollback deletes the files that markers name, and a commit deletes marked files that no
write status lists (hudi.apache.org/docs/markers). Then the task asks whether the file is still wanted, so that a run
who withdraws the order later finds the marker. The file gets its name last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.markers import folder
from airflow_provider_slshudi.system.points import Point, reach

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.storage.files import Storage

_log = logging.getLogger(__name__)


class AttemptFile:
    """A file of an attempt, a base file or a log file, by its path within the table.

    It has this name once it is whole, and only while its instant is not decided (`handover.fencing.nameless`). Its
    writer looks for the batch's order once more after that.
    """

    def __init__(self, storage: Storage, instant: str, partition: str, name: str) -> None:
        self.partition, self.name = partition, name
        self.path = f"{partition}/{name}" if partition else name
        self._storage, self._instant = storage, instant
        self._nameless = fencing.nameless(storage, instant, self.path)
        self._sink: pa.NativeFile | None = None

    def open(self) -> pa.NativeFile:
        """Begins the file.

        Raises:
            ManifestError: its instant is shut.
        """
        self._sink = self._storage.create_within(self._nameless)
        if self._sink is None:
            raise fencing.shut_error(self._storage, self._instant, self.path)
        return self._sink

    def close(self) -> None:
        """Completes the file and names it; raises as `open`."""
        if self._storage.renames:
            self._finish()
            reach(Point.APPEND_TASK_ENDED)
            self._name()
        else:
            self._end()
            fencing.require_admitted(self._storage, self._instant, self.path)
            reach(Point.APPEND_TASK_ENDED)
            self._complete()
        reach(Point.APPEND_TASK_NAMED)

    def abandon(self) -> None:
        """Deletes the file, complete or not. An upload that has not ended stays one: its driver ends it."""
        with suppress(Exception):  # a file that cannot be completed must be deleted all the more
            self._finish() if self._storage.renames else self._end()
        # In this order: a rename that is still on its way finds nothing.
        for path in dict.fromkeys((self._nameless, self.path)):
            self._storage.delete(path)

    def _name(self) -> None:
        storage = self._storage
        if storage.rename(self._nameless, self.path):
            return
        if storage.exists(self._nameless):
            # Another client took the partition's folder away.
            describe_partition(storage, self._instant, self.partition)
            storage.rename(self._nameless, self.path)
        # A network's file system may do a rename, and say that it did not.
        if not storage.exists(self.path):
            raise fencing.shut_error(storage, self._instant, self.path)

    def _finish(self) -> None:
        try:
            self._end()
        finally:
            # Left open, it would come into being when it is collected: after its deletion.
            self._complete()

    def _end(self) -> None:
        """Adds what its format has at the end."""

    def _complete(self) -> None:
        if self._sink is not None:
            self._storage.complete(self._nameless, self._sink)


def mark(storage: Storage, instant: str, path: str, still_wanted: Callable[[], None], kind: str = "CREATE") -> None:
    """Leaves the marker of a file that is about to be written; `kind` is Hudi's, MERGE for a base file's next version.

    Args:
        storage: the table's.
        instant: the batch's.
        path: the file's within the table.
        still_wanted: raises once the instant is decided.
        kind: Hudi's kind of marker, CREATE, MERGE or APPEND.

    Raises:
        ManifestError: another run decided about the instant; no marker stays.
    """
    marker = f"{folder(instant)}/{path}.marker.{kind}"
    # Never under another name first: Hudi reads every name there, and a rollback fails at one that is no marker's.
    stream = storage.create(marker)
    reach(Point.APPEND_TASK_MARKING)
    storage.complete(marker, stream)
    try:
        still_wanted()
    except ManifestError:
        storage.delete(marker)
        raise
    reach(Point.APPEND_TASK_MARKED)


def describe_partition(storage: Storage, instant: str, partition: str) -> None:
    """Makes a folder a partition to Hudi, if it is not one yet; `partition` is empty for a table without partitions."""
    metadata = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
    if not storage.exists(metadata):
        text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={1 if partition else 0}\n"
        storage.write(metadata, text.encode(), via=fencing.folder(instant))


def abandon(files: Iterable[AttemptFile]) -> None:
    """Deletes an attempt's files: the rollback of a decided instant may have looked for them already."""
    for file in files:
        try:
            file.abandon()
        except Exception as error:
            # While the instant is pending, its markers name the file to the run that decides.
            _log.warning("%s could not be deleted: %s", file.path, error)
