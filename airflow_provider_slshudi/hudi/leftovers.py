"""Files of instants that were given up: recorded before a rollback, deleted after it and before archival.

Hudi's rollback deletes only the files that its JVM sees. A task that stood still may write one after it. No reader
shows such a file while its instant is on the timeline, or is younger than every instant there. Once archival has
passed the instant, readers that list files take the file for a committed one. The instant's markers name all its
files, so no folder has to be listed (hudi.apache.org/docs/markers).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from airflow_provider_slshudi.handover import ROOT, fencing
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER, UNNAMED, Phase
from airflow_provider_slshudi.hudi.timeline import Timeline, files_of
from airflow_provider_slshudi.storage.files import Storage

_FOLDER = f"{ROOT}/aborted"
# A base file, and a log file of a file group: the time of the instant that wrote it.
_FILE = re.compile(r"[^.].*_(?P<base>\d+)\.[a-z]+|\.[^_]+_(?P<log>\d+)\.log\.\d+_.*")
_OLD = timedelta(days=1)
"""No driver lives for so long."""
_log = logging.getLogger(__name__)


def instant_of(path: str) -> str | None:
    """The instant that wrote a base or log file, by the file's name; None for any other file."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    return None if match is None else match["base"] or match["log"]


@contextmanager
def swept(storage: Storage, instant: str, written: Iterable[str] = ()) -> Iterator[None]:
    """Wraps the rollback of an instant: afterwards deletes those files that the rollback left, of the ones that its
    markers name and of `written`.

    Raises:
        TimelineUnreadable: the storage cannot look for a file or delete it; the files stay on record.
    """
    remember(storage, instant, written)
    yield
    if leftovers := sweep(storage, instant):
        _log.warning(
            "%s: the rollback of instant %s left %d files, which are deleted now: %s",
            storage.uri,
            instant,
            len(leftovers),
            ", ".join(leftovers[:3]),
        )


def remember(storage: Storage, instant: str, written: Iterable[str] = ()) -> None:
    """Records `written` and the files that the instant's markers name; call it once no task begins another file."""
    recorded_paths, marked = _remembered(storage, instant), {*markers.marked(storage, instant), *written}
    if not marked <= set(recorded_paths):
        storage.write(_path(instant), json.dumps(sorted({*recorded_paths, *marked})).encode())


def sweep(storage: Storage, instant: str) -> list[str]:
    """Deletes the recorded files of an instant that was taken off the timeline; returns those that existed."""
    files = _remembered(storage, instant)
    if not files or not Timeline.load(storage).is_gone(instant):
        return []
    leftovers = storage.existing([path for path in files if instant_of(path) == instant])
    storage.delete_files(leftovers)
    return leftovers


def sweep_all(storage: Storage) -> list[str]:
    """Sweeps every recorded instant, and those whose tasks wrote after the rollback; call it before archival.

    Deletes a record once archival has passed its instant and its files were swept since, old notes of instants that
    archival has passed, and files of the archives that did not get their name.
    """
    for table in (storage, Storage(f"{storage.uri}/{METADATA_FOLDER}")):
        archive = files_of(table)[0].archive
        names = filter(UNNAMED.fullmatch, table.names(archive) or [])
        table.delete_files([f"{archive}/{name}" for name in names])
    marked, leftovers = markers.instants(storage), []
    # Loaded after the listing: an instant that has markers is on the timeline already.
    timeline = Timeline.load(storage)
    for instant in marked:
        marked_instant = timeline.get(instant)
        if marked_instant is not None and marked_instant.phase is Phase.COMPLETED:
            markers.forget(storage, instant)
        elif timeline.is_gone(instant):
            remember(storage, instant)
            markers.forget(storage, instant)
    for name in storage.names(_FOLDER) or []:
        instant = name.removesuffix(".json")
        leftovers += sweep(storage, instant)
        if instant < timeline.oldest:
            storage.delete(f"{_FOLDER}/{name}")
    a_day_ago = f"{datetime.now(timezone.utc) - _OLD:%Y%m%d%H%M%S%f}"[: len(timeline.oldest)]
    sweep_notes(storage, timeline, min(timeline.oldest, a_day_ago))
    return leftovers


def sweep_notes(storage: Storage, timeline: Timeline, before: str) -> list[str]:
    """Deletes the notes of instants before a time that are not pending; returns these instants.

    Who died, or met a disk that refused writes, left them. The note of an opening tells whose an instant is that a late
    driver may yet put on the timeline, so it has to be old.
    """
    pending = {*(instant.time for instant in timeline.pending()), *timeline.rolling_back}
    ended = [name for name in storage.folders(ROOT) if name.isdigit() and name < before and name not in pending]
    for instant in ended:
        fencing.delete(storage, instant)
    return ended


def _remembered(storage: Storage, instant: str) -> list[str]:
    return list(storage.read_json(_path(instant)) or [])


def _path(instant: str) -> str:
    return f"{_FOLDER}/{instant}.json"
