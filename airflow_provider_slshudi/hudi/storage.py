"""The file system below a table, through pyarrow: local, or S3 by s3:// and s3a:// URIs.

Credentials of an object store come from the machine's own environment (AWS_* variables, instance roles), as
Spark's do, so none of them passes through a pipeline.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_slshudi.exceptions import TimelineUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


_DELETES_AT_ONCE = 16


class Storage:
    """Files below one table, named by paths relative to its base. Picklable: tasks open their own connection.

    Every fault of the file system but "not there" is `TimelineUnreadable`: it says nothing about the file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return Storage, (self.uri,)

    def __repr__(self) -> str:
        return f"Storage({self.uri!r})"

    @cached_property
    def _parts(self) -> tuple[fs.FileSystem, str]:
        from pyarrow import fs

        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return fs.LocalFileSystem(), parts.path
        return fs.S3FileSystem(endpoint_override=os.environ.get("AWS_ENDPOINT_URL")), parts.netloc + parts.path

    @property
    def filesystem(self) -> fs.FileSystem:
        """The pyarrow file system."""
        return self._parts[0]

    def full(self, path: str) -> str:
        """`path` as the file system names it."""
        base = self._parts[1]
        return f"{base}/{path}" if path else base

    def read(self, path: str) -> bytes | None:
        """The file's content, None where there is no such file."""
        try:
            with self.filesystem.open_input_stream(self.full(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def write(self, path: str, content: bytes) -> None:
        """Replaces the file at once: a reader sees all of it or what was there before."""
        target = self.full(path)
        try:
            self._make_parent(target)
            # An object store shows an object only once it is whole; a file is renamed into its place.
            local = self.filesystem.type_name == "local"
            written = f"{target}.{uuid.uuid4().hex}.tmp" if local else target
            with self.filesystem.open_output_stream(written) as stream:
                stream.write(content)
            if local:
                self.filesystem.move(written, target)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def names(self, path: str) -> list[str] | None:
        """The names of files and folders directly in a folder, None where there is no such folder."""
        from pyarrow import fs

        selector = fs.FileSelector(self.full(path), recursive=False)
        try:
            return [info.base_name for info in self.filesystem.get_file_info(selector)]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def walk(self) -> Iterator[tuple[str, int]]:
        """Path and bytes of every file of the table but Hudi's own under .hoodie; a listing of all folders."""
        from pyarrow import fs

        for name in self.names("") or []:
            if name == ".hoodie":
                continue
            try:
                info = self.filesystem.get_file_info(self.full(name))
                within = fs.FileSelector(self.full(name), recursive=True, allow_not_found=True)
                found = [info] if info.is_file else self.filesystem.get_file_info(within)
            except OSError as error:
                raise self._unreadable(name, error) from error
            for file in found:
                if file.is_file:
                    yield file.path.removeprefix(f"{self.full('')}/"), int(file.size)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at `path`."""
        from pyarrow import fs

        try:
            return bool(self.filesystem.get_file_info(self.full(path)).type != fs.FileType.NotFound)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def create(self, path: str) -> pa.NativeFile:
        """A stream that writes a new file; its folder is made."""
        target = self.full(path)
        self._make_parent(target)
        return self.filesystem.open_output_stream(target)

    def size(self, path: str) -> int:
        """Bytes of a file that exists."""
        return int(self.filesystem.get_file_info(self.full(path)).size)

    def relative(self, path: str) -> str:
        """A file's path within the table, from its path as Hadoop names it.

        Raises:
            TimelineUnreadable: it is not within the table.
        """
        found = re.sub(r"^[a-z0-9]+:(//)?", "", path)
        base = f"{self.full('')}/"
        if not found.startswith(base):
            raise TimelineUnreadable(f"{self.uri}: {path} is not within the table", table=self.uri)
        return found.removeprefix(base)

    def delete_files(self, paths: Sequence[str]) -> tuple[int, int]:
        """Removes files side by side; gives how many there were, and their bytes."""
        with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
            sizes = [size for size in pool.map(self._delete, paths) if size is not None]
        return len(sizes), sum(sizes)

    def delete(self, path: str) -> None:
        """Removes a file; nothing happens where there is none."""
        try:
            self.filesystem.delete_file(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(path, error) from error

    def delete_folder(self, path: str) -> None:
        """Removes a folder and what is in it; nothing happens where there is none."""
        try:
            self.filesystem.delete_dir(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(path, error) from error

    def _delete(self, path: str) -> int | None:
        """Removes a file and gives its bytes, None where there was none."""
        from pyarrow import fs

        try:
            info = self.filesystem.get_file_info(self.full(path))
        except OSError as error:
            raise self._unreadable(path, error) from error
        if info.type == fs.FileType.NotFound:
            return None
        self.delete(path)
        return int(info.size)

    def _make_parent(self, target: str) -> None:
        if self.filesystem.type_name == "local":
            self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)

    def _unreadable(self, path: str, error: OSError) -> TimelineUnreadable:
        return TimelineUnreadable(f"{self.uri}/{path}: {error}", table=self.uri)
