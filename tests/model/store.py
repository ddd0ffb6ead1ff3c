"""An object store on disk: a file is an upload until that is completed, which others may end before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.client import uploads
from airflow_provider_slshudi.hudi.leftovers import instant_of
from airflow_provider_slshudi.storage.files import Storage


@dataclass
class _Upload:
    """`stream` is kept: what collects it would close it."""

    content: Path
    table: str
    path: str
    stream: pa.NativeFile


class ModelStore:
    """Makes `Storage` one of a store; files that nobody completes are nowhere. `stop` is called before each change."""

    def __init__(self, folder: Path, stop: Callable[[str], None]) -> None:
        folder.mkdir()
        self._folder, self._stop = folder, stop
        self._begun: list[_Upload] = []
        self._uploads: list[_Upload] = []

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        complete, put = Storage.complete, Storage._put

        def puts(storage: Storage, target: str, content: bytes) -> None:
            _make_parent(storage, target)
            put(storage, target, content)

        def completes(storage: Storage, path: str, stream: pa.NativeFile) -> None:
            if not any(upload.stream is stream for upload in self._begun):
                complete(storage, path, stream)
                return
            self._stop("complete parquet")
            stream.close()
            upload = next((found for found in self._uploads if found.stream is stream), None)
            if upload is None:
                raise TimelineUnreadable(f"{path}: no such upload", table=storage.uri)
            self._uploads.remove(upload)
            target = storage.full(path)
            _make_parent(storage, target)
            upload.content.rename(target)

        patch.setattr(Storage, "renames", False)
        patch.setattr(Storage, "_make_parent", _make_parent)
        patch.setattr(Storage, "_put", puts)
        patch.setattr(Storage, "create_within", self._begin)
        patch.setattr(Storage, "complete", completes)
        patch.setattr(uploads, "end_of", self._end_of)

    def _begin(self, storage: Storage, path: str) -> pa.NativeFile:
        content = self._folder / str(len(self._begun))
        stream = fs.LocalFileSystem().open_output_stream(str(content))
        upload = _Upload(content, storage.uri, path, stream)
        self._uploads.append(upload)
        self._begun.append(upload)
        return stream

    def _end_of(self, _: object, table: Storage, instant: str, written: Collection[str] | None = None) -> int:
        if written is not None and {*markers.marked(table, instant)} <= {*written}:
            return 0
        self._stop("end uploads")
        ended = [found for found in self._uploads if found.table == table.uri and instant_of(found.path) == instant]
        self._uploads = [found for found in self._uploads if found not in ended]
        return len(ended)


def _make_parent(_: Storage, target: str) -> None:
    """A store has no folders; the disk that stands for it has."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
