"""The file that says what a table is, replaced at once; Hudi's own way deletes it before it writes the next one."""

from __future__ import annotations

from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import PROPERTIES

# What Hudi keeps while it changes the file (read in 1.2.0).
_BEFORE = f"{PROPERTIES}.backup"
# Hadoop's checksum of the old content.
_CHECKSUM = ".hoodie/.hoodie.properties.crc"


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
