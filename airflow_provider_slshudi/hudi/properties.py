"""`hoodie.properties`, which describes a table, replaced at once; Hudi deletes it before it writes the next one.

Java's format: https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html#load(java.io.Reader)
"""

from __future__ import annotations

import re

from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.storage.files import Storage

VERSION = "hoodie.table.version"
"""Hudi's version of the table's layout."""
# The copy that Hudi keeps while it changes the file (read in 1.2.0).
_BEFORE = f"{PROPERTIES}.backup"
_NAME = "hoodie.table.name"
"""What each table's file has."""
# Hadoop's checksum of the old content.
_CHECKSUM = ".hoodie/.hoodie.properties.crc"

_CODE = "latin-1"
_LINES = re.compile(r"\r\n|[\r\n]")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|[\r\n])[ \t\f]*")
_LINE = re.compile(r"[ \t\f]*((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(storage: Storage) -> dict[str, str] | None:
    """The file's values by name; None if there is no file."""
    content = storage.read(PROPERTIES)
    return None if content is None else _parse(content)


def read_settled(storage: Storage) -> dict[str, str] | None:
    """As `read`; while Hudi changes the file, the values of its copy."""
    content = storage.read(PROPERTIES)
    if content is not None and not _missing(content):
        return _parse(content)
    before = _copy(storage)
    return _parse(before) if before else None if content is None else _parse(content)


def put(storage: Storage, name: str, value: str) -> None:
    """Sets one value, plain text, if it differs; the caller holds the lease."""
    content = storage.read(PROPERTIES)
    if content is None or _parse(content).get(name) == value:
        return
    lines = [line for line in content.decode(_CODE).splitlines() if not line.startswith(f"{name}=")]
    replace(storage, "".join(f"{line}\n" for line in [*lines, f"{name}={value}"]).encode(_CODE))


def replace(storage: Storage, content: bytes) -> None:
    """Replaces the file's content; the caller holds the lease."""
    storage.delete(_CHECKSUM)
    storage.write(PROPERTIES, content)


def is_cut_off(storage: Storage) -> bool:
    """Whether Hudi may be writing the file, or its driver died while it did; under the lease `restore` knows."""
    content = storage.read(PROPERTIES)
    if content is None:
        return storage.read(_BEFORE) is not None
    return bool(_missing(content)) or _lacks(content, _copy(storage))


def tells_name(storage: Storage) -> bool:
    """Whether the file, or Hudi's copy of it, names a table."""
    return any(_has_name(storage.read(path) or b"") for path in (PROPERTIES, _BEFORE))


def restore(storage: Storage) -> None:
    """Restores the file from Hudi's copy after a change that was cut off; the caller holds the lease.

    Raises:
        TableMismatch: the file describes no table, or was cut off, and there is no copy that is whole.
    """
    content, before = storage.read(PROPERTIES) or b"", _copy(storage)
    missing = _missing(content)
    if not missing and not _lacks(content, before):
        return
    if not before:
        # Each driver would start, and end, for nothing.
        raise TableMismatch(
            f"{storage.full(PROPERTIES)} has no {missing}, so it can be neither read nor written. Restore the file, by "
            "the storage's versions or from a backup of the table. If the table never had a row, delete the file, and "
            "the next batch makes it anew",
            table=storage.uri,
        )
    replace(storage, before)


def _copy(storage: Storage) -> bytes:
    """Hudi's copy; empty if Hudi died while it made the copy, which is before it touches the file."""
    before = storage.read(_BEFORE) or b""
    return b"" if _missing(before) else before


def _lacks(content: bytes, before: bytes) -> bool:
    """Whether names of the copy are missing: a change only adds names, so the file was cut off at a line's end."""
    return bool(_parse(before).keys() - _parse(content).keys())


def _missing(content: bytes) -> str:
    """What each file of Hudi's has and this content has not, since it was cut off; empty where it has all."""
    values = _parse(content)
    lacking = [name for name in (_NAME, VERSION) if not values.get(name)]
    return lacking[0] if lacking else "" if content.endswith(b"\n") else "end of its last line"


def _has_name(content: bytes) -> bool:
    return bool(_parse(content).get(_NAME))


def _parse(content: bytes) -> dict[str, str]:
    properties = {}
    for line in _LINES.split(_CONTINUED.sub(r"\1", content.decode(_CODE))):
        match = _LINE.fullmatch(line)
        if match is not None and match[1] and match[1][0] not in "#!":
            name, value = (_ESCAPED.sub(_letter, text) for text in match.groups())
            properties[name] = value
    return properties


def _letter(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _LETTERS.get(text, text)
