"""Moves of a table's timeline into another layout, which Hudi makes file by file (`UpgradeDowngrade`, read in 1.2.0).

Where a move is cut off, each layout has a part of the timeline. Hudi, asked again, would take a commit whose completion
was moved and whose request was not for one that failed, and roll it back. So the timeline is kept aside first, and a
note says that it is moving: `hudi.timeline` reads none that has this note, and the next change puts back what was kept.
The note has the names and sizes of what is kept: nothing is deleted unless all of that is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_slshudi.exceptions import TableError, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, METADATA_FOLDER, MOVING, PROPERTIES, Phase
from airflow_provider_slshudi.hudi.timeline import Timeline, files_of
from airflow_provider_slshudi.storage.files import Storage

_ASIDE = f"{ROOT}/timeline"
_SAVEPOINT = re.compile(r"(\d+)(?:_\d+)?\.savepoint")
_AT_ONCE = 16


def begin(storage: Storage) -> None:
    """Keeps properties, timeline and archive aside, and notes that they move; the caller holds the lease."""
    forget(storage)
    try:
        sizes = _copied(storage, {path: f"{_ASIDE}/{path}" for path in files(storage)})
        storage.sync()
    except TimelineUnreadable:
        # A full disk: nothing moves, and what is kept would stay.
        forget(storage)
        raise
    try:
        storage.write(MOVING, json.dumps(sizes).encode(), via=ROOT)
    except TimelineUnreadable:
        # It may be there all the same, and then what it names has to be.
        storage.delete(MOVING)
        forget(storage)
        raise


def end(storage: Storage, before: set[tuple[str, str]]) -> None:
    """Takes the note and what was kept away, once the timeline in its new place has all that was `completed` before.

    Raises:
        TableError: it lacks some; the note stays. (Hudi goes on after an instant that it could not move.)
    """
    if lost := sorted(before - completed(storage, moving=True)):
        raise TableError(
            f"{storage.uri}: Hudi moved the timeline without {len(lost)} of its instants, of {' '.join(lost[0])} "
            "first. Batches stop until `slshudi table version` is run again, which puts the timeline back",
            table=storage.uri,
            instant=lost[0][0],
        )
    _leave(storage)


def is_cut_off(storage: Storage) -> bool:
    """Whether a move was begun and did not end; the caller holds the lease."""
    return storage.exists(MOVING)


def put_back(storage: Storage, held: Callable[[], None]) -> None:
    """Puts properties, timeline and archive back as they were before a move; the caller holds the lease.

    The metadata table, whose timeline moves too, goes: readers list the table until it is made anew. Before each file
    `held` is called, which raises if the lease is lost.

    Raises:
        TableError: what was kept is not whole; nothing was deleted.
    """
    sizes = storage.read_json(MOVING) or {}
    copies = {path: f"{_ASIDE}/{path}" for path in sizes}
    lacking = set(copies.values()) - set(storage.existing(list(copies.values())) if copies else [])
    if lacking or PROPERTIES not in copies:
        raise TableError(
            f"{storage.uri}: a change of Hudi's version was cut off, and of what was kept of the timeline before "
            f"{min(lacking, default=PROPERTIES)} is not there. Put `.hoodie` back from the storage's versions or from "
            f"a backup of the table, without {MOVING}",
            table=storage.uri,
        )
    _copied(storage, {aside: path for path, aside in copies.items()}, held)
    for path in [path for path in files(storage) if path not in copies]:
        held()
        storage.delete(path)
    storage.delete_folder(METADATA_FOLDER)
    held()
    _leave(storage)


def forget(storage: Storage) -> None:
    """Deletes what was kept; only without a note is nothing lost by that."""
    storage.delete_folder(_ASIDE)


def completed(storage: Storage, moving: bool = False) -> set[tuple[str, str]]:
    """Time and action of all that is completed, savepoints too, and of archived writes; reads the whole archive."""
    timeline, names = Timeline.load(storage, moving), files_of(storage, moving)[1]
    saved = {(match[1], "savepoint") for match in map(_SAVEPOINT.fullmatch, names) if match}
    active = {(one.time, one.action) for one in timeline if one.phase is Phase.COMPLETED}
    return active | saved | {(time, "archived") for time in timeline.archived_changes()}


def files(storage: Storage) -> list[str]:
    """The files, checksums included, of which properties, timeline and archive consist in either layout."""
    folders = {*storage.folders(LAYOUT_1.folder)}
    direct = [f"{LAYOUT_1.folder}/{name}" for name in storage.names(LAYOUT_1.folder) or [] if name not in folders]
    within = [path for folder in (LAYOUT_2.folder, LAYOUT_1.archive) for path in storage.files(folder)]
    return [path for path in [*direct, *within] if path != MOVING]


def _copied(storage: Storage, targets: dict[str, str], held: Callable[[], None] = lambda: None) -> dict[str, int]:
    """Copies files, several at once; returns their sizes."""

    def copy(source: str) -> int:
        held()
        content = storage.read(source)
        if content is None:
            raise TimelineUnreadable(f"{storage.uri}: {source} was there and is gone; try again", table=storage.uri)
        storage.write(targets[source], content, via=ROOT)
        return len(content)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes: Iterable[int] = pool.map(copy, targets)
        return dict(zip(targets, sizes, strict=True))


def _leave(storage: Storage) -> None:
    storage.delete(MOVING)
    # Else a loss of power may bring the note back without what it names.
    storage.sync()
    forget(storage)
