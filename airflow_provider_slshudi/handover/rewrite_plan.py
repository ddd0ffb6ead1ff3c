"""A clustering's or compaction's manifest: the driver that writes the files leaves it for the one that completes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.handover.bound import digest_of, read_bound
from airflow_provider_slshudi.storage.files import Storage


@dataclass(frozen=True)
class Written:
    """The files that a clustering or compaction read and wrote.

    Attributes:
        metadata: Hudi's own commit metadata, as its JSON.
        read_files, read_bytes: the files that were read, and their bytes.
        paths, bytes: the files that were written, by their paths within the table, and their bytes.
    """

    metadata: str
    read_files: int
    read_bytes: int
    paths: list[str]
    bytes: int

    @classmethod
    def of(cls, storage: Storage, metadata: Any, stats: Any, read: list[str]) -> Written:
        """What Hudi's metadata and write stats say.

        Args:
            storage: the table's.
            metadata: Hudi's commit metadata.
            stats: Hudi's write stats.
            read: paths within the table of the files that were read.
        """
        size = sum(stat.getFileSizeInBytes() for stat in stats)
        files = [str(stat.getPath()) for stat in stats]
        return cls(str(metadata.toJsonString()), len(read), sum(map(storage.size, read)), files, size)


def take_manifest(storage: Storage, instant: str) -> tuple[Written, str]:
    """The manifest that the driver left which wrote the files, and its SHA-256; raises as `read_manifest`."""
    content = storage.read(_path(instant))
    digest = "" if content is None else digest_of(content)
    return read_manifest(storage, instant, digest), digest


def read_manifest(storage: Storage, instant: str, digest: str) -> Written:
    """The manifest whose SHA-256 is `digest`.

    Raises:
        ManifestError: there is none, so the driver that was to write the files did not end well; or it is another.
    """
    content = read_bound(storage, _path(instant), digest, instant=instant)
    if content is None:
        raise ManifestError(
            f"{storage.uri}: no manifest for instant {instant}: what was to write its files did not end well",
            table=storage.uri,
            transaction="",
            instant=instant,
        )
    return Written(**storage.parsed(_path(instant), content))


def write_manifest(storage: Storage, instant: str, written: Written) -> None:
    """Leaves the manifest: the writing driver's last act. What it lists is on the disk before it."""
    storage.sync()
    storage.write(_path(instant), json.dumps(asdict(written)).encode())


def manifests(storage: Storage) -> list[str]:
    """The instants that have a manifest; also completed ones whose run died before it removed it."""
    names = storage.names(fencing.folder("").rstrip("/")) or []
    return [name for name in names if name.isdigit() and has_manifest(storage, name)]


def has_manifest(storage: Storage, instant: str) -> bool:
    """Whether the instant's files are all written."""
    return storage.exists(_path(instant))


def _path(instant: str) -> str:
    return f"{fencing.folder(instant)}/rewrite.json"
