"""Markers: which files an instant began, and what keeps more from coming (hudi.apache.org/docs/markers)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.storage import Storage

_FOLDER = ".hoodie/.temp"


# A value in the path may hold the same word.
_MARKER = re.compile(r"(?P<file>.+)\.marker\.[A-Z]+", re.DOTALL)


_UNFINISHED = re.compile(r".*\.marker\.[A-Z]+\.[0-9a-f]{32}\.tmp", re.DOTALL)


_TRIES = 5


def marked(storage: Storage, instant: str) -> list[str]:
    """The files that the instant's markers name."""
    return [file for _, file in _markers(storage, instant) if file]


def instants(storage: Storage) -> list[str]:
    """The instants that have markers, or had some until their end; not those that are barred."""
    return [name for name in storage.folders(_FOLDER) if name.isdigit()]


def forget(storage: Storage, instant: str) -> None:
    """Deletes the instant's markers."""
    storage.delete_folder(folder(instant))


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
    place = folder(instant)
    for left in reversed(range(_TRIES)):
        storage.delete_files(marked(storage, instant))
        try:
            storage.create(place).close()
            return
        except TimelineUnreadable:
            if not left:
                raise
        storage.delete_folder(place)


def _markers(storage: Storage, instant: str) -> Iterator[tuple[str, str]]:
    """What is in the instant's marker folder, each with the file that it names; "" where it is no marker."""
    within = f"{folder(instant)}/"
    for path in storage.files(folder(instant)):
        match = _MARKER.fullmatch(path.removeprefix(within))
        yield path, match["file"] if match else ""


def folder(instant: str) -> str:
    """Where an instant's markers are."""
    return f"{_FOLDER}/{instant}"
