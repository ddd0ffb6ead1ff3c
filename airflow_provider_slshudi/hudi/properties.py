"""The file that says what a table is, replaced at once; Hudi's own way deletes it before it writes the next one."""

from __future__ import annotations

import re

from airflow_provider_slshudi.hudi.timeline import PROPERTIES
from airflow_provider_slshudi.storage import Storage

# What Hudi keeps while it changes the file (read in 1.2.0).
_BEFORE = f"{PROPERTIES}.backup"
# Hadoop's checksum of the old content.
_CHECKSUM = ".hoodie/.hoodie.properties.crc"


_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(storage: Storage) -> dict[str, str] | None:
    """What the file says, None where there is none."""
    content = storage.read(PROPERTIES)
    if content is None:
        return None
    lines = (line.partition("=") for line in content.decode().splitlines() if not line.startswith("#"))
    return {name.strip(): _ESCAPED.sub(_letter, value) for name, _, value in lines}


def put(storage: Storage, name: str, value: str) -> None:
    """Changes one of its values, plain text, where it is another; for whoever holds the lease."""
    content = storage.read(PROPERTIES)
    if content is None or (read(storage) or {}).get(name) == value:
        return
    lines = [line for line in content.decode().splitlines() if not line.startswith(f"{name}=")]
    replace(storage, "".join(f"{line}\n" for line in [*lines, f"{name}={value}"]).encode())


def replace(storage: Storage, content: bytes) -> None:
    """Puts another content in the file's place; for whoever holds the lease."""
    storage.delete(_CHECKSUM)
    storage.write(PROPERTIES, content)


def is_cut_off(storage: Storage) -> bool:
    """Whether a driver died while Hudi changed the file, or is about it."""
    return not storage.exists(PROPERTIES) and storage.exists(_BEFORE)


def restore(storage: Storage) -> None:
    """Puts back what was there before a change that was cut off; for whoever holds the lease."""
    content = storage.read(_BEFORE)
    if content is not None and not storage.exists(PROPERTIES):
        replace(storage, content)


def _letter(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _LETTERS.get(text, text)
