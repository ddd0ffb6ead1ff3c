"""Fences around a table: which driver may change its timeline, and which tasks may still name files of an instant.

`claim.json` names the driver. Files of an instant are in its folder `files` until they are whole; the run that decides
the instant renames that folder away, so that a late task's file gets no name.
"""

from __future__ import annotations

import errno
import json
import logging
import uuid

from airflow_provider_slshudi.exceptions import ManifestError, TableError, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.storage.files import Storage

_log = logging.getLogger(__name__)
ORDER = "batch-"
"""Begins the name of an append's order."""
_FILES = "files"
_SHUT = "shut-"
SUFFIX = ".json"
"""Ends the names of notes, and of no file of a table."""
_HELD = {errno.EBUSY, errno.ENOTEMPTY, errno.ETXTBSY}


def folder(instant: str) -> str:
    """The folder of one instant's files."""
    return f"{ROOT}/{instant}"


def admit(storage: Storage, instant: str) -> None:
    """Lets tasks begin and name files of the instant, until `shut`; call it before the instant is on the timeline."""
    if storage.renames:
        storage.make_folder(f"{folder(instant)}/{_FILES}")
    else:
        storage.write(f"{folder(instant)}/{_FILES}", b"open")


def require_admitted(storage: Storage, instant: str, path: str) -> None:
    """Checks that a file of the instant may still get its name; for object stores, right before it gets it.

    The run that shuts the instant ends all uploads after that. So one that began before this check is ended, or gets
    its name before that.

    Raises:
        ManifestError: the instant is shut.
    """
    if not storage.exists(f"{folder(instant)}/{_FILES}"):
        raise shut_error(storage, instant, path)


def shut_error(storage: Storage, instant: str, path: str) -> ManifestError:
    """The error of a task whose file gets no name any more."""
    return ManifestError(
        f"{storage.uri}: {path} is not written: its instant {instant} was decided meanwhile, or its append has ended",
        table=storage.uri,
        transaction="",
        instant=instant,
    )


def nameless(storage: Storage, instant: str, path: str) -> str:
    """Where a task writes a file of the instant before it gets its name, `path`.

    It gets it in one step, which fails once the instant is shut. In an object store that step is the end of an upload,
    which begins under the file's name and is no file before.
    """
    return f"{folder(instant)}/{_FILES}/{path.rpartition('/')[2]}" if storage.renames else path


def shut(storage: Storage, instant: str) -> None:
    """Ends what `admit` began, in one step: no file gets its name any more, also of a task that stood still.

    In an object store that holds for files that begin from now on: who may, ends the uploads that have begun
    (`hudi.client.uploads`). What cannot be deleted yet stays (`delete`): the step is done.
    """
    here = folder(instant)
    if not storage.renames:
        storage.delete(f"{here}/{_FILES}")
        if not storage.names(here):
            # The quarantine has nothing else of an instant. Arrow leaves an object for the folder.
            delete(storage, instant)
        return
    storage.rename(f"{here}/{_FILES}", f"{here}/{_SHUT}{uuid.uuid4().hex}")
    names = storage.names(here)
    # Those of a process that died after the rename, too.
    shut = [name for name in names or [] if name.startswith(_SHUT)]
    if names is not None and len(shut) == len(names):
        # The quarantine has nothing else of an instant.
        delete(storage, instant)
        return
    for name in shut:
        try:
            storage.delete_folder(f"{here}/{name}")
        except TimelineUnreadable as error:
            _log_held(f"{here}/{name}", error)


def fence(storage: Storage, instant: str) -> None:
    """Withdraws the instant's orders and shuts it, so that an append that is still alive leaves no file behind.

    Call it before the rollback, which deletes what was written until then.
    """
    for name in storage.names(folder(instant)) or []:
        if name.startswith(ORDER):
            storage.delete(f"{folder(instant)}/{name}")
    if storage.is_local and storage.exists(folder(instant)):
        # Else a loss of power may bring an order back, but no file that the rollback deleted.
        storage.sync()
    shut(storage, instant)


def delete(storage: Storage, instant: str) -> None:
    """Removes the instant's folder.

    A file that a process holds open stays for as long on NFS and FUSE, and its folder with it. It is one of those that
    get no name any more (`shut`), or that no run reads any more; that is no error. No process keeps notes open.
    """
    here = folder(instant)
    try:
        storage.delete_folder(here)
    except TimelineUnreadable as error:
        held = getattr(error.__cause__, "errno", None) in _HELD
        if not held or any(name.endswith(SUFFIX) for name in storage.names(here) or []):
            raise
        _log_held(here, error)


def _log_held(path: str, error: TimelineUnreadable) -> None:
    _log.warning("%s stays, since a file in it is in use; delete it once it is not: %s", path, error)


_CLAIM = f"{ROOT}/claim.json"


def claim(storage: Storage, **who: str) -> str:
    """Lets one driver, and no other, change the table's timeline from now on; returns the claim's name.

    For the holder of the pipeline's lease. A former holder's driver that is still alive, also by a wrong clock, finds
    that the claim is not its own. `who` is for people.
    """
    name = uuid.uuid4().hex
    storage.write(_CLAIM, json.dumps({"claim": name, **who}).encode())
    return name


def require_claim(storage: Storage, name: str, what: str) -> None:
    """Checks that the timeline may still be changed under a claim; call it as late as possible.

    Raises:
        TableError: another driver has claimed it since.
    """
    present_claim: dict[str, str] = storage.read_json(_CLAIM) or {}
    if present_claim.get("claim") != name:
        others = ", ".join(f"{key} {value}" for key, value in present_claim.items() if key != "claim") or "no driver"
        raise TableError(
            f"{storage.uri}: this driver may not {what} any more, and did nothing: {_CLAIM} names another ({others})",
            table=storage.uri,
        )
