"""HDFS as a file system of pyarrow's, without a JVM or a library of Hadoop's beside Python.

`hdfs_native` speaks the protocols of name nodes and data nodes. It reads Hadoop's own settings (HADOOP_CONF_DIR), so
name services, users (HADOOP_USER_NAME) and Kerberos are what they are for Spark beside it.
https://hdfs-native.readthedocs.io/
"""

from __future__ import annotations

import errno
import io
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from airflow_provider_slshudi.exceptions import RuntimeMissing, TableError
from airflow_provider_slshudi.storage import namenodes, owners
from airflow_provider_slshudi.system.secrets import hidden_in_variables

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus
    from hdfs_native._internal import RawFileWriter

T = TypeVar("T")
_PROVIDER = "dfs.client.failover.proxy.provider"
_ACTIVE = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_VARIABLES = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "KRB5CCNAME")
"""What the client reads: who writes, and where it is told of name nodes."""
_ANSWER_SECONDS = 300.0
"""For what the client itself waits without an end."""
_NO_HOST = "No NameNode hosts found"
_NO_FOLDER = "(is not a directory)"
# How the client shows what it has no exception for: the name node's class, and its words with a trace behind them.
_REFUSED = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<text>.*)"\)', re.DOTALL)
_KINDS: dict[str, type[OSError]] = {
    "AccessControlException": PermissionError,
    "ParentNotDirectoryException": NotADirectoryError,
}
_REFUSES_WRITES = {
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "SafeModeException": errno.EROFS,
}
"""https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/HdfsQuotaAdminGuide.html"""


def filesystem(uri: str) -> fs.FileSystem:
    """The file system of an hdfs:// URI; connects at the first use.

    Raises:
        TableError: a variable of Hadoop's has a character that is not seen.
        RuntimeMissing: the package's extra for it is not installed.
    """
    if hidden := hidden_in_variables(_VARIABLES):
        raise TableError(f"{uri}: {hidden}", table=uri)
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

    service = url.partition("://")[2]
    # Against Hadoop's settings: of a name node that observes, this client takes the past for the present.
    active = {f"{_PROVIDER}.{service}": _ACTIVE}
    return _asked(lambda: Client(url, namenodes.settings(service) | active))


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
            return _info(_asked(lambda: self._client.get_file_info(path)))
        except (FileNotFoundError, NotADirectoryError):
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            statuses = self._within(selector.base_dir)
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if len(statuses) == 1 and statuses[0].path == selector.base_dir:
            raise NotADirectoryError(f"{selector.base_dir} is a file")
        if selector.recursive:
            # It grows by what folders within it have. The client's own way ends where one of them vanishes meanwhile.
            for status in statuses:
                with suppress(FileNotFoundError, NotADirectoryError):
                    within = self._within(status.path) if status.isdir else []
                    statuses += [one for one in within if one.path != status.path]
        return [_info(status) for status in statuses]

    def _within(self, folder: str) -> list[FileStatus]:
        return _asked(lambda: [*self._client.list_status(folder, False)])

    def create_dir(self, path: str, recursive: bool) -> None:
        _asked(lambda: self._client.mkdirs(path, _mode(0o777), recursive))

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def _delete(self, path: str, recursive: bool) -> None:
        if not _asked(lambda: self._client.delete(path, recursive)):
            raise FileNotFoundError(f"{path} is not there")

    def move(self, src: str, dest: str) -> None:
        _asked(lambda: self._client.rename(src, dest, True))

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(_Reader(_asked(lambda: self._client.read(path))), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.PythonFile:
        from hdfs_native import WriteOptions

        # Without its folder there is no file: that is how a task learns that its instant was shut. And what the client
        # itself gives for a new file completes it when it is collected; `inner` does not.
        options = WriteOptions(permission=_mode(0o666), overwrite=True, create_parent=False)
        return pa.PythonFile(_Writer(_asked(lambda: self._client.inner.create(path, options))), mode="w")

    def _never(self, *_: Any, **__: Any) -> Any:
        """What pyarrow wants of a file system, and `Storage` asks of none."""
        raise io.UnsupportedOperation("tables in HDFS do without this")

    delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _never


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
        return bytes(_asked(lambda: self._file.read(-1 if size is None else size)))


class _Writer(io.RawIOBase):
    """A new file, which readers have once it is closed. It is whole then: after a write that failed, this fails too."""

    def __init__(self, file: RawFileWriter) -> None:
        self._file = file
        self._failed: BaseException | None = None

    def __del__(self) -> None:
        """Leaves what was not closed unfinished, where an `IOBase` would close it."""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        try:
            # What is not bytes goes over number by number.
            return int(_asked(lambda: self._file.write(bytes(memoryview(content)))))
        except BaseException as error:
            self._failed = error
            raise

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._failed is not None:
            raise self._failed
        _asked(self._file.close)


def _mode(most: int) -> int:
    """Permissions as Hadoop gives them beside us: a name node masks nothing."""
    return most & ~int(owners.umask() or "022", 8)


def _info(status: FileStatus) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    return fs.FileInfo(status.path, kind, size=None if status.isdir else status.length)


def _asked(ask: Callable[[], T]) -> T:
    """The answer of the client; every fault as an OSError, in the name node's words without its trace.

    A thread of its own waits for it: the client hears no signal, so nothing could end a task whose name node does not
    answer.
    """
    answer = Future[T]()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=wait, name="slshudi-hdfs", daemon=True).start()
    if not wait_for([answer], _ANSWER_SECONDS).done:
        raise OSError(f"HDFS has not answered for {_ANSWER_SECONDS:.0f} s")
    try:
        return answer.result()
    except RuntimeError as error:
        raise _as_os_error(str(error)) from error
    except OSError as error:
        if "\n" in str(error):
            raise type(error)(_first(str(error))) from error
        raise


def _as_os_error(text: str) -> OSError:
    if _NO_HOST in text:
        folder = os.environ.get("HADOOP_CONF_DIR") or "not set"
        return OSError(
            f"HADOOP_CONF_DIR, which is {folder}, names no such name service. A name node's own host needs its port, "
            "like hdfs://namenode:8020/lake"
        )
    if (refusal := _REFUSED.search(text)) is None:
        return OSError(_first(text))
    kind = refusal["kind"].rpartition(".")[2]
    words = _first(refusal["text"].replace("\\n", "\n").replace('\\"', '"'))
    # A user who may not read what is below a file is told of that first.
    known_as = NotADirectoryError if words.endswith(_NO_FOLDER) else _KINDS.get(kind, OSError)
    error = known_as(f"{kind}: {words}")
    error.errno = _REFUSES_WRITES.get(kind)
    return error


def _first(text: str) -> str:
    return text.partition("\n")[0]
