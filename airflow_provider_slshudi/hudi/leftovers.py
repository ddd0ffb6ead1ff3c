"""Files of instants that were given up: remembered before a rollback, looked for after it and before archival.

Hudi's rollback deletes what its JVM sees, and believes that it is gone. A task that stood still may write after it. No
reader shows such a file while its instant is on the timeline or younger than all that is; once archival has gone past,
those that list files take it for a committed one. The markers of the instant name all of them, so nothing has to be
listed (hudi.apache.org/docs/markers).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage

_FOLDER = f"{ROOT}/aborted"
# A base file, and a log file of a file group: the time of the instant that wrote it.
_FILE = re.compile(r"[^.].*_(?P<base>\d+)\.[a-z]+|\.[^_]+_(?P<log>\d+)\.log\.\d+_.*")
_log = logging.getLogger(__name__)


def instant_of(path: str) -> str | None:
    """The instant that wrote a file of the table, by the file's name; None of what is no file of rows."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    return None if match is None else match["base"] or match["log"]


@contextmanager
def swept(storage: Storage, instant: str) -> Iterator[None]:
    """Around the rollback of an instant: what its markers name is gone after it, whatever the rollback saw.

    Raises:
        TimelineUnreadable: a file can be neither looked for nor deleted; what is to be deleted stays on record.
    """
    remember(storage, instant)
    yield
    if left := sweep(storage, instant):
        _log.warning(
            "%s: the rollback of instant %s left %d files, which are deleted now: %s",
            storage.uri,
            instant,
            len(left),
            ", ".join(left[:3]),
        )


def remember(storage: Storage, instant: str) -> None:
    """Puts on record which files the instant's markers name; to be done once nobody begins another one."""
    known, marked = _remembered(storage, instant), markers.marked(storage, instant)
    if not set(marked) <= set(known):
        storage.write(_path(instant), json.dumps(sorted({*known, *marked})).encode())


def sweep(storage: Storage, instant: str) -> list[str]:
    """Deletes the files on record of an instant that was taken off the timeline; gives those that were there."""
    files = _remembered(storage, instant)
    if not files or not Timeline.load(storage).is_gone(instant):
        return []
    left = storage.existing([path for path in files if instant_of(path) == instant])
    storage.delete_files(left)
    return left


def sweep_all(storage: Storage) -> list[str]:
    """The same of every instant on record, and of what wrote after its rollback; to be done before archival.

    A record goes once archival went past its instant, and what it names was looked for since.
    """
    marked, left = markers.instants(storage), []
    # After the listing: who has markers is on the timeline already.
    timeline = Timeline.load(storage)
    for instant in marked:
        if timeline.is_gone(instant):
            remember(storage, instant)
            markers.forget(storage, instant)
    for name in storage.names(_FOLDER) or []:
        instant = name.removesuffix(".json")
        left += sweep(storage, instant)
        if instant < timeline.oldest:
            storage.delete(f"{_FOLDER}/{name}")
    return left


def _remembered(storage: Storage, instant: str) -> list[str]:
    content = storage.read(_path(instant))
    return [] if content is None else list(json.loads(content))


def _path(instant: str) -> str:
    return f"{_FOLDER}/{instant}.json"
