"""What precedes each file of a task attempt, what ends those of a failed one, and what keeps more from coming.

A marker comes first: a rollback deletes what the markers name, and a commit deletes marked files that no write status
lists (hudi.apache.org/docs/markers). Then it is asked whether the file is still wanted, so that who withdraws the order
later finds the marker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from airflow_provider_slshudi.exceptions import ManifestError, TimelineUnreadable
from airflow_provider_slshudi.hudi import exchange
from airflow_provider_slshudi.points import Point, reach

if TYPE_CHECKING:
    from airflow_provider_slshudi.hudi.storage import Storage

_FOLDER = ".hoodie/.temp"
# A value in the path may hold the same word.
_MARKER = re.compile(r"(?P<file>.+)\.marker\.[A-Z]+", re.DOTALL)
_UNFINISHED = re.compile(r".*\.marker\.[A-Z]+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_TRIES = 5
_log = logging.getLogger(__name__)


class Abandonable(Protocol):
    """A file of an attempt, by its path within the table."""

    path: str

    def abandon(self) -> None:
        """Deletes the file, complete or not."""


def mark(storage: Storage, instant: str, path: str, still_wanted: Callable[[], None], kind: str = "CREATE") -> None:
    """Leaves the marker of a file that is about to be written; `kind` is Hudi's, MERGE for a base file's next version.

    Raises:
        ManifestError: somebody else decided about the instant; no marker stays.
    """
    marker = f"{_folder(instant)}/{path}.marker.{kind}"
    # Under no other name before: Hudi reads every name there, and a rollback fails by one that is no marker's.
    with storage.create(marker):
        reach(Point.APPEND_TASK_MARKING)
    try:
        still_wanted()
    except ManifestError:
        storage.delete(marker)
        raise
    reach(Point.APPEND_TASK_MARKED)


def marked(storage: Storage, instant: str) -> list[str]:
    """The files that the instant's markers name."""
    return [file for _, file in _markers(storage, instant) if file]


def instants(storage: Storage) -> list[str]:
    """The instants that have markers, or had some until their end; not those that are barred."""
    return [name for name in storage.folders(_FOLDER) if name.isdigit()]


def forget(storage: Storage, instant: str) -> None:
    """Deletes the instant's markers."""
    storage.delete_folder(_folder(instant))


def drop_misread(storage: Storage, instant: str) -> None:
    """Deletes markers of earlier versions that Hudi reads wrongly, with their files; to be done before a rollback.

    A killed writer left some under a name that fails every rollback; of others Hudi takes a part of the partition's
    value for the marker's own ending, and deletes something else.
    """
    for path, file in _markers(storage, instant):
        if _UNFINISHED.fullmatch(path):
            storage.delete(path)
        elif file and (path.count(".marker.") > 1 or ".marker" in path.rpartition("/")[0]):
            storage.delete(file)
            storage.delete(path)


def bar(storage: Storage, instant: str) -> None:
    """Takes the place of the marker folder of an instant that was rolled back, so that no file of it begins any more.

    Hudi's own tasks ask for no order, but leave a marker before each file, which they cannot below a file; an object
    store, which has no folders, does not hold them up. Files that were begun between the rollback's listing and this
    are named by the markers in the folder that is there again, and go.
    """
    folder = _folder(instant)
    for left in reversed(range(_TRIES)):
        storage.delete_files(marked(storage, instant))
        try:
            storage.create(folder).close()
            return
        except TimelineUnreadable:
            if not left:
                raise
        storage.delete_folder(folder)


def describe_partition(storage: Storage, instant: str, partition: str) -> None:
    """Makes a folder a partition to Hudi, where it is none yet; `partition` is empty for a table without any."""
    metadata = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
    if not storage.exists(metadata):
        text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={1 if partition else 0}\n"
        storage.write(metadata, text.encode(), via=exchange.folder(instant))


def abandon(files: Iterable[Abandonable]) -> None:
    """Takes away what an attempt wrote: the rollback of a decided instant may have looked for it already."""
    for file in files:
        try:
            file.abandon()
        except Exception as error:
            # Where the instant is still pending, its markers name the file to whoever decides.
            _log.warning("%s could not be deleted: %s", file.path, error)


def _markers(storage: Storage, instant: str) -> Iterator[tuple[str, str]]:
    """What is in the instant's marker folder, each with the file that it names; "" where it is no marker."""
    within = f"{_folder(instant)}/"
    for path in storage.files(_folder(instant)):
        match = _MARKER.fullmatch(path.removeprefix(within))
        yield path, match["file"] if match else ""


def _folder(instant: str) -> str:
    return f"{_FOLDER}/{instant}"
