"""Instants that archival took off a timeline, read without a JVM, in both of Hudi's layouts (`hudi.layout`)."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, Layout, record_of
from airflow_provider_slshudi.storage.files import Storage

_MANIFEST = re.compile(r"manifest_(\d+)")
_LOG = re.compile(r"\.commits_\.archive\.(\d+).*")
_MAGIC = b"#HUDI#"
_AVRO_BLOCK = 3
_SCHEMA = 2
# Of an archived entry of layout 1: where its record is, by action. A compaction is completed as a commit.
_RECORDS = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "replacecommit": "hoodieReplaceCommitMetadata",
    "rollback": "hoodieRollbackMetadata",
}


@dataclass(frozen=True)
class Archived:
    """A completed instant of the archive; `written` is its record, or the content that has it, None if not read."""

    time: str
    completion: str
    action: str
    written: bytes | Mapping[str, Any] | None

    @property
    def record(self) -> Mapping[str, Any]:
        """What the committer wrote; empty where it was not asked for."""
        return record_of(self.written) if isinstance(self.written, bytes) else self.written or {}

    @property
    def extra(self) -> dict[str, str]:
        """The extra metadata that the committer left."""
        return self.record.get("extraMetadata") or {}


class Archive(Protocol):
    """The completed instants of an archive; all methods raise TimelineUnreadable if a file is gone or cut off."""

    def instants(self, with_records: bool = True) -> Iterator[Archived]:
        """Every instant; an archival that was cut off may have left one twice. Reads the whole archive."""

    def around(self, time: str) -> Iterator[Archived]:
        """The instants of the files that may have one of this time."""

    def require(self) -> None:
        """Has archival not begin where it would end without a word of which file it cannot read."""


def archive_of(storage: Storage, layout: Layout) -> Archive:
    """The archive beside a timeline."""
    return _Logs(storage) if layout is LAYOUT_1 else _History(storage)


class _History:
    """The archive of layout 2: Parquet files, and a manifest that lists them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def instants(self, with_records: bool = True) -> Iterator[Archived]:
        for file in self._files():
            yield from self._of(file, with_records)

    def around(self, time: str) -> Iterator[Archived]:
        for file in self._files():
            first, last = file.split("_")[:2]
            if first <= time <= last:
                yield from self._of(file)

    def require(self) -> None:
        self._files()

    def _of(self, file: str, with_records: bool = True) -> Iterator[Archived]:
        import pyarrow.parquet as pq
        from pyarrow import ArrowInvalid

        content = _content(self._storage, f"{LAYOUT_2.archive}/{file}")
        columns = ["instantTime", "completionTime", "action", *(["metadata"] if with_records else [])]
        try:
            rows = pq.read_table(io.BytesIO(content), columns=columns).to_pylist()
        except ArrowInvalid as error:
            raise _cut_off(self._storage, f"{LAYOUT_2.archive}/{file}", content, error) from error
        for row in rows:
            yield Archived(row["instantTime"], row["completionTime"], row["action"], row.get("metadata") or None)

    def _files(self) -> list[str]:
        version = self._version()
        if not version:
            return []
        name = f"{LAYOUT_2.archive}/manifest_{version}"
        manifest = self._storage.read(name)
        try:
            return [entry["fileName"] for entry in json.loads(manifest or b"")["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise TimelineUnreadable(
                f"{self._storage.uri}/{name}, which lists the archive's files, is gone or cut off. If it stays so, put "
                "it back from the storage's versions or from a backup of the table",
                table=self._storage.uri,
            ) from error

    def _version(self) -> str:
        """The newest manifest's number, empty if nothing was archived.

        Archival deletes the file that names it before it writes the next one. So that file may be missing for a moment,
        or for long if archival was killed: then this looks at the manifests themselves, as Hudi does.
        """
        named = (self._storage.read(f"{LAYOUT_2.archive}/_version_") or b"").decode().strip()
        if named:
            return named
        manifests = (_MANIFEST.fullmatch(name) for name in self._storage.names(LAYOUT_2.archive) or [])
        return max((match[1] for match in manifests if match), key=int, default="")


class _Logs:
    """The archive of layout 1: log files of blocks of Avro (hudi.apache.org/tech-specs, "Log Format")."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def instants(self, with_records: bool = True) -> Iterator[Archived]:
        for file in self._files():
            content = _content(self._storage, file)
            try:
                for schema, body in _blocks(content):
                    yield from map(_archived, filter(_is_completed, _entries(schema, body)))
            except (struct.error, IndexError, EOFError, ValueError) as error:
                raise _cut_off(self._storage, file, content, error) from error

    def around(self, time: str) -> Iterator[Archived]:
        # Names do not tell what is in a file.
        return self.instants()

    def require(self) -> None:
        """Archival of this layout reads no file of the archive."""

    def _files(self) -> list[str]:
        names = [match for match in map(_LOG.fullmatch, self._storage.names(LAYOUT_1.archive) or []) if match]
        return [f"{LAYOUT_1.archive}/{match[0]}" for match in sorted(names, key=lambda match: int(match[1]))]


def _blocks(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Schema and body of each block of Avro."""
    offset = 0
    while offset < len(content):
        magic, size = struct.unpack_from(">6sq", content, offset)
        if magic != _MAGIC or offset + 14 + size > len(content):
            raise ValueError(f"no whole block at byte {offset}")
        _, kind, count = struct.unpack_from(">iii", content, offset + 14)
        place, schema = offset + 26, ""
        for _ in range(count):
            name, length = struct.unpack_from(">ii", content, place)
            if name == _SCHEMA:
                schema = content[place + 8 : place + 8 + length].decode()
            place += 8 + length
        (length,) = struct.unpack_from(">q", content, place)
        if kind == _AVRO_BLOCK:
            yield schema, content[place + 8 : place + 8 + length]
        offset += 14 + size


def _entries(schema: str, body: bytes) -> Iterator[Mapping[str, Any]]:
    import fastavro

    parsed = _parsed(schema)
    _, count = struct.unpack_from(">ii", body)
    place = 8
    for _ in range(count):
        (length,) = struct.unpack_from(">i", body, place)
        entry = fastavro.schemaless_reader(io.BytesIO(body[place + 4 : place + 4 + length]), parsed, None)
        yield entry if isinstance(entry, dict) else {}
        place += 4 + length


@cache
def _parsed(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _is_completed(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("actionState") or "COMPLETED") == "COMPLETED"


def _archived(entry: Mapping[str, Any]) -> Archived:
    time, action = str(entry["commitTime"]), str(entry["actionType"])
    return Archived(time, time, action, entry.get(_RECORDS.get(action, "")) or {})


def _content(storage: Storage, file: str) -> bytes:
    content = storage.read(file)
    if content is None:
        raise TimelineUnreadable(f"{storage.uri}: {file} is gone", table=storage.uri)
    return content


def _cut_off(storage: Storage, file: str, content: bytes, error: Exception) -> TimelineUnreadable:
    return TimelineUnreadable(
        f"{storage.uri}: {file} ({len(content)} bytes) was cut off: {error}. Put the file back from the storage's "
        "versions or from a backup of the table",
        table=storage.uri,
    )
