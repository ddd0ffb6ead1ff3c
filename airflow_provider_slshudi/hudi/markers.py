"""Markers name the files that an instant began; `bar` keeps it from beginning more (hudi.apache.org/docs/markers)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.storage.files import Storage

_FOLDER = ".hoodie/.temp"


# A partition's value in the path may hold `.marker.` too.
_MARKER = re.compile(r"(?P<file>.+)\.marker\.[A-Z]+", re.DOTALL)


_UNFINISHED = re.compile(r".*\.marker\.[A-Z]+\.[0-9a-f]{32}\.tmp", re.DOTALL)


_TRIES = 5


def marked(storage: Storage, instant: str) -> list[str]:
    """The files that the instant's markers name."""
    return [file for _, file in _markers(storage, instant) if file]


def instants(storage: Storage) -> list[str]:
    """The instants that have a marker folder, even an empty one; a barred instant has a file there instead."""
    return [name for name in storage.folders(_FOLDER) if name.isdigit()]


def forget(storage: Storage, instant: str) -> None:
    """Deletes the instant's markers."""
    storage.delete_folder(folder(instant))


def drop_misread(storage: Storage, instant: str) -> None:
    """Deletes markers of earlier versions that Hudi misreads, and the files that they name; call it before a rollback.

    A killed writer may have left a marker under a name that fails every rollback. In other markers Hudi takes a part of
    the partition's value for the marker's ending, and deletes another file.
    """
    for path, file in _markers(storage, instant):
        if _UNFINISHED.fullmatch(path):
            storage.delete(path)
        elif file and (path.count(".marker.") > 1 or ".marker" in path.rpartition("/")[0]):
            storage.delete(file)
            storage.delete(path)


def bar(storage: Storage, instant: str) -> None:
    """Puts a file in the place of a rolled back instant's marker folder, so that its tasks begin no more files.

    Hudi's own tasks do not ask for an order, but leave a marker before each file, and cannot do so below a file. An
    object store has no folders: there a file would stop no task, and some stores refuse it beside markers. Tasks may
    have begun files between the rollback's listing and this call: then the marker folder exists again, and this deletes
    the files that its markers name.
    """
    place = folder(instant)
    if not storage.renames:
        storage.delete_files(marked(storage, instant))
        storage.delete_folder(place)
        return
    for tries_left in reversed(range(_TRIES)):
        storage.delete_files(marked(storage, instant))
        try:
            storage.complete(place, storage.create(place))
            return
        except TimelineUnreadable:
            if not tries_left:
                raise
        storage.delete_folder(place)


def _markers(storage: Storage, instant: str) -> Iterator[tuple[str, str]]:
    """Each path in the instant's marker folder, with the file that it names; "" if it is no marker."""
    within = f"{folder(instant)}/"
    for path in storage.files(folder(instant)):
        match = _MARKER.fullmatch(path.removeprefix(within))
        yield path, match["file"] if match else ""


def folder(instant: str) -> str:
    """The folder of an instant's markers."""
    return f"{_FOLDER}/{instant}"
