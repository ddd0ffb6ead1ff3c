"""Moves of a table's timeline into another layout, which Hudi makes file by file (`UpgradeDowngrade`, read in 1.2.0).

Where a move is cut off, each layout has a part of the timeline. Hudi, asked again, would take a commit whose completion
was moved and whose request was not for one that failed, and roll it back. So the timeline is kept aside first, and a
note says that it is moving: `hudi.timeline` reads none that has this note, and the next change puts back what was kept.
"""

from __future__ import annotations

from airflow_provider_slshudi.exceptions import TableError, TimelineUnreadable
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, METADATA_FOLDER, MOVING
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage

_ASIDE = f"{ROOT}/timeline"


def begin(storage: Storage) -> None:
    """Keeps properties, timeline and archive aside, and notes that they move; the caller holds the lease."""
    storage.delete_folder(_ASIDE)
    try:
        for path in _files(storage):
            storage.write(f"{_ASIDE}/{path}", storage.read(path) or b"")
        storage.write(MOVING, b"", via=ROOT)
    except TimelineUnreadable:
        # A full disk: nothing moves, and what is kept would stay.
        storage.delete_folder(_ASIDE)
        raise


def end(storage: Storage, before: set[str]) -> None:
    """Takes the note and what was kept away, once the timeline in its new place has all `changes` of before.

    Raises:
        TableError: it lacks some; the note stays. (Hudi goes on after an instant that it could not move.)
    """
    if lost := sorted(before - changes(Timeline.load(storage, moving=True))):
        raise TableError(
            f"{storage.uri}: Hudi moved the timeline without {len(lost)} of its changes, of {lost[0]} first. Batches "
            "stop until `slshudi table version` is run again, which puts the timeline back",
            table=storage.uri,
            instant=lost[0],
        )
    storage.delete(MOVING)
    storage.delete_folder(_ASIDE)


def is_cut_off(storage: Storage) -> bool:
    """Whether a move was begun and did not end; the caller holds the lease."""
    return storage.exists(MOVING)


def put_back(storage: Storage) -> None:
    """Puts properties, timeline and archive back as they were before a move; the caller holds the lease.

    The metadata table, whose timeline moves too, goes: readers list the table until it is made anew.
    """
    storage.delete_folder(METADATA_FOLDER)
    kept = {path.removeprefix(f"{_ASIDE}/"): path for path in storage.files(_ASIDE)}
    storage.delete_files([path for path in _files(storage) if path not in kept])
    for path, aside in kept.items():
        storage.write(path, storage.read(aside) or b"", via=ROOT)
    storage.delete(MOVING)
    storage.delete_folder(_ASIDE)


def changes(timeline: Timeline) -> set[str]:
    """The times of all completed changes, archived or not; reads the whole archive."""
    return {instant.time for instant in timeline.completed(*CHANGES)} | timeline.archived_changes()


def _files(storage: Storage) -> list[str]:
    """The files, checksums included, of which properties, timeline and archive consist in either layout."""
    folders = {*storage.folders(LAYOUT_1.folder)}
    direct = [f"{LAYOUT_1.folder}/{name}" for name in storage.names(LAYOUT_1.folder) or [] if name not in folders]
    within = [path for folder in (LAYOUT_2.folder, LAYOUT_1.archive) for path in storage.files(folder)]
    return [path for path in [*direct, *within] if path != MOVING]
