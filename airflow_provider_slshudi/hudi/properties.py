"""`hoodie.properties`, which describes a table, replaced at once; Hudi deletes it before it writes the next one."""

from __future__ import annotations

import re

from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi.timeline import PROPERTIES
from airflow_provider_slshudi.storage import Storage

# The copy that Hudi keeps while it changes the file (read in 1.2.0).
_BEFORE = f"{PROPERTIES}.backup"
_NAME = "hoodie.table.name"
"""What each table's file has."""
# Hadoop's checksum of the old content.
_CHECKSUM = ".hoodie/.hoodie.properties.crc"


_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(storage: Storage) -> dict[str, str] | None:
    """The file's values by name; None if there is no file."""
    content = storage.read(PROPERTIES)
    if content is None:
        return None
    lines = (line.partition("=") for line in content.decode(errors="replace").splitlines() if not line.startswith("#"))
    return {name.strip(): _ESCAPED.sub(_letter, value) for name, _, value in lines}


def put(storage: Storage, name: str, value: str) -> None:
    """Sets one value, plain text, if it differs; the caller holds the lease."""
    content = storage.read(PROPERTIES)
    if content is None or (read(storage) or {}).get(name) == value:
        return
    lines = [line for line in content.decode().splitlines() if not line.startswith(f"{name}=")]
    replace(storage, "".join(f"{line}\n" for line in [*lines, f"{name}={value}"]).encode())


def replace(storage: Storage, content: bytes) -> None:
    """Replaces the file's content; the caller holds the lease."""
    storage.delete(_CHECKSUM)
    storage.write(PROPERTIES, content)


def is_cut_off(storage: Storage) -> bool:
    """Whether Hudi is changing the file, or its driver died while it did.

    Raises:
        TableMismatch: the file describes no table, and Hudi's copy of it is not there either.
    """
    if _is_whole(storage):
        return False
    if storage.exists(_BEFORE):
        return True
    # Read anew: Hudi may have ended its change between the two looks.
    if storage.exists(PROPERTIES) and not _is_whole(storage):
        # Each driver would start, and end, for nothing.
        raise TableMismatch(
            f"{storage.full(PROPERTIES)} has no {_NAME}, so nobody can read or write the table. Restore the file, by "
            "the storage's versions or from a backup of the table",
            table=storage.uri,
        )
    return False


def restore(storage: Storage) -> None:
    """Restores the file from Hudi's copy after a change that was cut off; the caller holds the lease."""
    content = storage.read(_BEFORE)
    if content is not None and not _is_whole(storage):
        replace(storage, content)


def _is_whole(storage: Storage) -> bool:
    return _NAME in (read(storage) or {})


def _letter(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _LETTERS.get(text, text)
