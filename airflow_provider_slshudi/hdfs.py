"""HDFS as a file system of pyarrow's, without a JVM or a library of Hadoop's beside Python.

`hdfs_native` speaks the protocols of name nodes and data nodes. It reads Hadoop's own settings (HADOOP_CONF_DIR), so
name services, users (HADOOP_USER_NAME) and Kerberos are what they are for Spark beside it.
https://hdfs-native.readthedocs.io/
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from airflow_provider_slshudi import owners
from airflow_provider_slshudi.exceptions import RuntimeMissing

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus, FileWriter

_ATTEMPTS = {"dfs.client.failover.max.attempts": "6"}
"""About 20 seconds, as a client of an object store asks. Its own 15 are four minutes."""
# How the client shows what it has no exception for: the name node's class, and its words with a trace behind them.
_REFUSED = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<text>.*)"\)', re.DOTALL)
_KINDS: dict[str, type[OSError]] = {
    "AccessControlException": PermissionError,
    "ParentNotDirectoryException": NotADirectoryError,
}


def filesystem(uri: str) -> fs.FileSystem:
    """The file system of an hdfs:// URI; connects at the first use.

    Raises:
        RuntimeMissing: the package's extra for it is not installed.
    """
    try:
        import hdfs_native  # noqa: F401
    except ImportError as error:
        raise RuntimeMissing(
            f"{uri}: tables in HDFS need hdfs-native, which is not installed: pip install "
            "'airflow-provider-slshudi[hdfs]', on executors too"
        ) from error
    return fs.PyFileSystem(_Handler("/".join(uri.split("/")[:3])))


@cache
def _user() -> int:
    """The first process that used HDFS, among this one and those that it was forked from."""
    return os.getpid()


@cache
def _client(url: str) -> Client:
    from hdfs_native import Client

    with _told():
        return Client(url, _ATTEMPTS)


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """What pyarrow asks of a file system, at one name node or name service."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _client(self) -> Client:
        """The process's client. Its connections do not come along into a fork, which would wait for them for good."""
        if _user() != os.getpid():
            raise OSError("this process was forked from one that used HDFS, and cannot: start it in its place")
        return _client(self._url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _told():
                return _info(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with _told():
                found = list(self._client.list_status(selector.base_dir, selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if len(found) == 1 and found[0].path == selector.base_dir:
            raise NotADirectoryError(f"{selector.base_dir} is a file")
        return [_info(status) for status in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        with _told():
            self._client.mkdirs(path, _mode(0o777), recursive)

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def _delete(self, path: str, recursive: bool) -> None:
        with _told():
            if not self._client.delete(path, recursive):
                raise FileNotFoundError(f"{path} is not there")

    def move(self, src: str, dest: str) -> None:
        with _told():
            self._client.rename(src, dest, True)

    def open_input_file(self, path: str) -> pa.PythonFile:
        with _told():
            return pa.PythonFile(_Reader(self._client.read(path)), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.PythonFile:
        from hdfs_native import WriteOptions

        with _told():
            # Without its folder there is no file: that is how a task learns that its instant was shut.
            options = WriteOptions(permission=_mode(0o666), overwrite=True, create_parent=False)
            made = self._client.create(path, options)
        return pa.PythonFile(_Writer(made), mode="w")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        raise NotImplementedError


class _Reader(io.RawIOBase):
    """An open file."""

    def __init__(self, file: FileReader) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int | None = -1) -> bytes:
        with _told():
            return bytes(self._file.read(-1 if size is None else size))


class _Writer(io.RawIOBase):
    """A new file; what it holds is there for readers once it is closed."""

    def __init__(self, file: FileWriter) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        with _told():
            return int(self._file.write(content))

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _told():
                self._file.close()


def _mode(most: int) -> int:
    """Permissions as Hadoop gives them beside us: a name node masks nothing."""
    return most & ~int(owners.umask() or "022", 8)


def _info(status: FileStatus) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    return fs.FileInfo(status.path, kind, size=None if status.isdir else status.length)


@contextmanager
def _told() -> Iterator[None]:
    """Every fault as an OSError, in the name node's words without its trace."""
    try:
        yield
    except RuntimeError as error:
        known = _REFUSED.search(str(error))
        kind = known["kind"].rpartition(".")[2] if known else ""
        text = known["text"].replace("\\n", "\n").replace('\\"', '"') if known else str(error)
        raise _KINDS.get(kind, OSError)(f"{kind}: {_first(text)}" if kind else _first(text)) from error
    except OSError as error:
        if "\n" in str(error):
            raise type(error)(_first(str(error))) from error
        raise


def _first(text: str) -> str:
    return text.partition("\n")[0]
