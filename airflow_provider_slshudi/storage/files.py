"""The file system below a table, through pyarrow: local, HDFS, or an object store by s3://, s3a:// and oss:// URIs.

What an object store's clients are told is in `objectstore`. Its credentials come from the machine's own environment
(AWS_* variables, instance roles), as Spark's do, so none of them passes through a pipeline.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import tee
from operator import methodcaller
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_provider_slshudi.exceptions import (
    TableDenied,
    TableError,
    TableSilent,
    TimelineUnreadable,
    WritesRefused,
)
from airflow_provider_slshudi.storage import objectstore, owners

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


DELTA_LOG = "_delta_log"
"""The folder of a Delta mirror's metadata."""
_DELETES_AT_ONCE = 16
_LOOKS = 5
"""At a folder whose files go one by one."""
_GLANCE_SECONDS = 0.05
_REFUSES_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# java.io.IOException: No space left on device; java.io.FileNotFoundException: /lake/x (Read-only file system);
# OSError: [Errno 28] No space left on device: '/lake/x'
_REFUSED_WRITES = re.compile(
    r"\b(?:IOException|FileNotFoundException|FileSystemException|FSError|OSError)\b[^\n]*(?:: |\(|\] )"
    rf"(?:{'|'.join(map(os.strerror, _REFUSES_WRITES))})(?:[):\s]|$)"
)
_NEEDS_ROOM = (
    "What is committed stays. Make room there, raise the quota, or make it writable again; the next run goes on"
)
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\(\d{3})")
_libc = ctypes.CDLL(None, use_errno=True)
_LEAST_PART = 4 * 1024 * 1024
"""Bytes of content that no stream to a store sends before its end."""
_BEFORE_PATH = re.compile(r"^(hdfs://[^/]+|[a-z0-9]+:(//)?)")


class Storage:
    """Files below one table, named by paths relative to its base. Picklable: tasks open their own connection.

    Every fault of the file system but "not there" is `TimelineUnreadable`: it says nothing about the file. If the
    system refuses a file to this process's user, that is `TableDenied`.
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

        # As Hadoop takes it: no part is a query or a fragment, and no letter stands for another.
        path = _BEFORE_PATH.sub("", self.uri)
        if objectstore.is_stored(self.uri):
            return self._s3(delayed=True), path
        if self.uri.startswith("hdfs:"):
            from airflow_provider_slshudi.storage import hdfs

            return hdfs.filesystem(self.uri), path
        return fs.LocalFileSystem(), path

    def _s3(self, delayed: bool) -> fs.FileSystem:
        """The store. What is opened with delay and is small takes one request, and not the three of an upload in parts,
        which a killed process leaves behind."""
        from pyarrow import fs

        return fs.S3FileSystem(**objectstore.arrow_options(self.uri), allow_delayed_open=delayed)

    @cached_property
    def _in_parts(self) -> fs.FileSystem:
        """The store, where each file is an upload from its opening to its end."""
        return self._s3(delayed=False)

    @property
    def filesystem(self) -> fs.FileSystem:
        """The pyarrow file system."""
        return self._parts[0]

    def full(self, path: str) -> str:
        """`path` as the file system names it.

        Raises:
            TableError: the path leads out of the table's folder.
        """
        if ".." in path.split("/"):
            raise TableError(f"{self.uri}: {path} leads out of the table's folder", table=self.uri)
        base = self._parts[1]
        return f"{base}/{path}" if path else base

    def read(self, path: str) -> bytes | None:
        """The file's content, None if there is no such file."""
        try:
            with self.filesystem.open_input_stream(self.full(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read_json(self, path: str) -> Any:
        """What the file of JSON says, None if there is no such file.

        Raises:
            TimelineUnreadable: it is not JSON; the message names the file.
        """
        content = self.read(path)
        return None if content is None else self.parsed(path, content)

    def parsed(self, path: str, content: bytes) -> Any:
        """What the content of the file at `path` says in JSON; raises as `read_json`."""
        try:
            return json.loads(content)
        except ValueError as error:
            raise TimelineUnreadable(
                f"{self.uri}/{path} ({len(content)} bytes) is cut off or damaged: {error}. If it stays so, put "
                "it back from the storage's versions or from a backup of the table",
                table=self.uri,
            ) from error

    def write(self, path: str, content: bytes, via: str | None = None) -> None:
        """Replaces the file at once: a reader sees the whole new content or the old one.

        A killed writer may leave a file of another name: in the folder `via`, or without it beside the file. So leave
        `via` out only in folders that no other process reads. It does not count where it is on another file system.
        """
        target = self.full(path)
        if not self.renames:
            try:
                self._put(target, content)
            except OSError as error:
                raise self._unreadable(path, error) from error
            return
        folder, _, name = target.rpartition("/")
        written = f"{folder if via is None else self.full(via)}/{name}.{uuid.uuid4().hex}.tmp"
        try:
            self._make_parent(target)
            self._make_parent(written)
            with self.filesystem.open_output_stream(written) as stream:
                stream.write(content)
            if self.is_local:
                _sync(written)
            self._move(written, target)
            if self.is_local:
                # Else a loss of power may take the name, which the ledger or a later file relies on.
                for above in (folder, *(str(place) for place in Path(folder).parents)):
                    _sync(above)
                    if above == self.full(""):
                        break
        except OSError as error:
            # On a full disk it would stay for good, and take the space that others need.
            with suppress(OSError):
                self.filesystem.delete_file(written)
            raise self._unreadable(path, error) from error

    def _put(self, target: str, content: bytes) -> None:
        """Writes an object that is open and empty between no two instructions of Python.

        There, a handler of a signal may stop a task; the end of its stream would make an empty object, which readers
        take for the new content. So would that of a stream whose upload in parts the store does not begin: where there
        will be parts, it begins with the opening. (Arrow's `copy_files` does not tell that a store refused.)
        """
        store = self.filesystem if len(content) < _LEAST_PART else self._in_parts
        opened, first, last = tee(map(store.open_output_stream, [target]), 3)
        done = map(methodcaller("write", content), first), map(methodcaller("close"), last)
        deque(zip(opened, *done, strict=True), maxlen=0)

    def sync(self) -> None:
        """Puts all that was written to a local table on its disk; HDFS and object stores have it once it is written.

        Without it a loss of power may cut a file off and leave one whole that was written later and tells of it.
        https://man7.org/linux/man-pages/man2/sync.2.html
        """
        if not self.is_local:
            return
        if not hasattr(_libc, "syncfs"):  # macOS
            os.sync()
            return
        try:
            folder = os.open(self.full(""), os.O_RDONLY)
            try:
                if _libc.syncfs(folder):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(folder)
        except OSError as error:
            raise self._unreadable("", error) from error

    def names(self, path: str) -> list[str] | None:
        """The names of files and folders directly in a folder, None if there is no such folder."""
        infos = self._within(path)
        return None if infos is None else [info.base_name for info in infos]

    def folders(self, path: str) -> list[str]:
        """The names of folders directly in a folder; empty if there is no such folder."""
        return [info.base_name for info in self._within(path) or [] if not info.is_file]

    def _within(self, path: str) -> list[fs.FileInfo] | None:
        from pyarrow import fs

        try:
            return list(self.filesystem.get_file_info(fs.FileSelector(self.full(path), recursive=False)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def walk(self) -> Iterator[tuple[str, int]]:
        """Path and bytes of every file of the table, except Hudi's own and a Delta mirror's; lists all folders."""
        from pyarrow import fs

        for name in self.names("") or []:
            if name in (".hoodie", DELTA_LOG):
                continue
            try:
                info = self.filesystem.get_file_info(self.full(name))
                within = fs.FileSelector(self.full(name), recursive=True, allow_not_found=True)
                infos = [info] if info.is_file else self.filesystem.get_file_info(within)
            except OSError as error:
                raise self._unreadable(name, error) from error
            for file in infos:
                if file.is_file:
                    yield file.path.removeprefix(f"{self.full('')}/"), int(file.size)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at `path`."""
        from pyarrow import fs

        try:
            return bool(self.filesystem.get_file_info(self.full(path)).type != fs.FileType.NotFound)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def files(self, path: str) -> list[str]:
        """Paths within the table of all files in a folder and its subfolders; empty if there is no such folder."""
        from pyarrow import fs

        selector = fs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        try:
            infos = self.filesystem.get_file_info(selector)
        except NotADirectoryError:
            return []
        except OSError as error:
            raise self._unreadable(path, error) from error
        return [info.path.removeprefix(f"{self.full('')}/") for info in infos if info.is_file]

    def existing(self, paths: Sequence[str]) -> list[str]:
        """The paths at which there is a file."""
        try:
            infos = self.filesystem.get_file_info([self.full(path) for path in paths])
        except OSError as error:
            raise self._unreadable(paths[0], error) from error
        return [path for path, info in zip(paths, infos, strict=True) if info.is_file]

    @property
    def renames(self) -> bool:
        """Whether a file gets another name in one step. An object store has no such step, and no folders."""
        return not objectstore.is_stored(self.uri)

    @property
    def is_local(self) -> bool:
        """Whether its files are this machine's, with owners that this machine knows."""
        return self.renames and not self.uri.startswith("hdfs:")

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it."""
        try:
            self.filesystem.create_dir(self.full(path), recursive=True)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def rename(self, source: str, target: str) -> bool:
        """Renames a file or folder in one step; False if it, or the target's folder, is not there.

        A file that goes to another file system is copied there, which takes longer than a step. It gets its name only
        if it was still there after that.
        """
        try:
            self._move(self.full(source), self.full(target))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(target, error) from error
        return True

    def _move(self, source: str, target: str) -> None:
        """Renames a file or folder; on another file system no reader sees a file before it is whole."""
        try:
            self.filesystem.move(source, target)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        # Readers pass over names like this one; a log file's begins with a dot, too.
        copied = f"{target.rpartition('/')[0]}/.{uuid.uuid4().hex}.tmp"
        try:
            shutil.copyfile(source, copied)
            self.filesystem.delete_file(source)
            self.filesystem.move(copied, target)
        except BaseException:
            with suppress(OSError):
                self.filesystem.delete_file(copied)
            raise

    def create(self, path: str) -> pa.NativeFile:
        """A stream that writes a new file under its own name; makes the file's folder.

        An object store has no file before `complete`, and may say only there that it refuses.
        """
        target = self.full(path)
        try:
            self._make_parent(target)
            return self.filesystem.open_output_stream(target)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def create_within(self, path: str) -> pa.NativeFile | None:
        """As `create`, in a folder that is there; None if it is not.

        In an object store it begins an upload, which others can see and end. `complete` makes it a file; nothing else
        does, also if the stream is never closed.
        """
        try:
            if self.renames:
                return self.filesystem.open_output_stream(self.full(path))
            return _kept(map(self._in_parts.open_output_stream, [self.full(path)]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def complete(self, path: str, stream: pa.NativeFile) -> None:
        """Closes the stream of a new file."""
        try:
            stream.close()
        except OSError as error:
            raise self._unreadable(path, error) from error
        _let_go(stream)

    def nearest(self) -> Storage:
        """The folder nearest to the table's that is there: itself, or one above it."""
        base = Path(self.full(""))
        before = self.uri.removesuffix(self.full(""))
        folder = next(place for place in (base, *base.parents) if place == place.parent or self._is_there(place))
        return Storage(f"{before}{folder}")

    def _is_there(self, place: Path) -> bool:
        from pyarrow import fs

        try:
            return bool(self.filesystem.get_file_info(str(place)).type == fs.FileType.Directory)
        except OSError as error:
            raise self._unreadable("", error) from error

    def size(self, path: str) -> int:
        """Bytes of a file that exists."""
        try:
            return int(self.filesystem.get_file_info(self.full(path)).size)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def relative(self, path: str) -> str:
        """A file's path within the table, from its path as Hadoop names it.

        Raises:
            TimelineUnreadable: the file is not within the table.
        """
        bare_path = _BEFORE_PATH.sub("", path)
        base = f"{self.full('')}/"
        if not bare_path.startswith(base) or ".." in bare_path.split("/"):
            raise TimelineUnreadable(f"{self.uri}: {path} is not within the table", table=self.uri)
        return bare_path.removeprefix(base)

    def delete_files(self, paths: Sequence[str]) -> tuple[int, int]:
        """Removes files side by side; returns how many there were, and their bytes."""
        with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
            sizes = [size for size in pool.map(self._delete, paths) if size is not None]
        return len(sizes), sum(sizes)

    def delete(self, path: str) -> None:
        """Removes a file, if there is one."""
        try:
            self.filesystem.delete_file(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(path, error) from error

    def delete_folder(self, path: str) -> None:
        """Removes a folder with its content, if there is one; on a local disk all but what cannot be removed."""
        try:
            if objectstore.is_oss(self.uri):
                self._delete_one_by_one(path)
            else:
                self.filesystem.delete_dir(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            # Not by `files`, which would follow links.
            for folder, _, names in os.walk(self.full(path)) if self.is_local else ():
                for name in names:
                    with suppress(OSError):
                        Path(folder, name).unlink()
            raise self._unreadable(path, error) from error

    def _delete_one_by_one(self, path: str) -> None:
        """`delete_folder` for OSS, which refuses Arrow's request for many: it lacks the MD5 that OSS asks for.

        Others may add and remove files meanwhile, and a folder that is gone comes back with a late request of Arrow's,
        which sees to the folder of each file that it deletes. So it looks again until nothing is left.
        """
        from pyarrow import fs

        base = self.full(path)
        within = fs.FileSelector(base, recursive=True, allow_not_found=True)

        def delete(file: str) -> None:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(file)

        for tries_left in reversed(range(_LOOKS)):
            infos = self.filesystem.get_file_info(within)
            with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
                deque(pool.map(delete, (info.path for info in infos if info.is_file)), maxlen=0)
            folders = sorted((info.path for info in infos if not info.is_file), key=len, reverse=True)
            try:
                for folder in [*folders, base]:
                    with suppress(FileNotFoundError):
                        self.filesystem.delete_dir(folder)
                return
            except OSError:
                if not tries_left:
                    raise

    def _delete(self, path: str) -> int | None:
        """Removes a file and returns its bytes, None if there was no file."""
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
        if self.renames:
            self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)

    def require_answer(self, seconds: float) -> None:
        """Checks that the file system of a local table answers; an object store's and HDFS's clients give up by
        themselves.

        A process asks that is left alone where it gets no answer: one that waits for a mount may be one that no signal
        can end. As long as it waits no other one is started.

        Raises:
            TableSilent: it has not answered after `seconds`.
            TimelineUnreadable: no process could be started.
        """
        if not self.is_local:
            return
        folder = f"{self.full('')}/.hoodie"
        try:
            with _asking(folder, seconds) as descriptors:
                # Where it is not ended, it keeps what it was given: none of ours, on whose end a reader may wait.
                nothing = subprocess.DEVNULL
                asks = subprocess.Popen(
                    ["test", "-e", folder],
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    start_new_session=True,
                    pass_fds=descriptors,
                )
                try:
                    asks.wait(seconds)
                except subprocess.TimeoutExpired:
                    asks.kill()
                    raise TimeoutError from None
        except TimeoutError:
            raise TableSilent(
                f"{self.uri}: its file system, a mount perhaps, has not answered for {seconds:.0f} s. Nothing was "
                f"begun. See whether `ls {self.full('')}` answers on this machine, and mount it anew if it does not",
                table=self.uri,
            ) from None
        except OSError as error:
            raise TimelineUnreadable(
                f"{self.uri}: no process could be started to ask its file system: {error}", table=self.uri
            ) from error

    def require_owner(self) -> None:
        """Stops a user, as a rule root, who would leave files that the table's owner could not change.

        Raises:
            TableDenied: the table belongs to another user, who could not change our files, or whose folder refuses us.
        """
        folder = self.full(".hoodie")
        if not self.is_local or not self.exists(".hoodie"):
            return
        try:
            owner = owners.keeps_out(folder)
        except OSError as error:
            raise self._unreadable(".hoodie", error) from error
        if owner is not None:
            user = owners.this_user()
            raise TableDenied(
                f"{self.uri} belongs to {owner}, who could not change files that {user} writes there, so every later "
                f"batch of {owner} would fail. Nothing was written. Run it as {owner}, or let both share the folder by "
                "a group (umask 002, and the setgid bit on its folders)",
                table=self.uri,
                path=folder,
                owner=owner,
                user=user,
            )

    def _unreadable(self, path: str, error: OSError) -> TimelineUnreadable | TableDenied:
        if isinstance(error, PermissionError) and self.is_local:
            return denied(self.uri, self.full(path))
        if isinstance(error, PermissionError) and self.renames:
            # HDFS names user, owner and permissions.
            return TableDenied(f"{self.uri}/{path}: {error}", table=self.uri, path=self.full(path), owner="", user="")
        if error.errno in _REFUSES_WRITES:
            return WritesRefused(f"{self.uri}/{path}: {error}.{self._room()} {_NEEDS_ROOM}", table=self.uri)
        return TimelineUnreadable(f"{self.uri}/{path}: {error}", table=self.uri)

    def _room(self) -> str:
        """How much room a local disk has, in a sentence; empty where that is not known."""
        if not self.is_local:
            return ""
        try:
            disk = os.statvfs(self.nearest().full(""))
        except (OSError, TableError):
            return ""
        room = f"{disk.f_bavail * disk.f_frsize} of {disk.f_blocks * disk.f_frsize} bytes"
        return f" Its disk has {room} and {disk.f_favail} of {disk.f_files} inodes free."


@contextmanager
def _asking(folder: str, seconds: float) -> Iterator[list[int]]:
    """The right to ask for a folder on this machine: a file, as its number, that is locked while a process has it open.

    Several may ask at once; no other begins once one has asked for all of these seconds. Empty where there is
    no place for the file. Raises TimeoutError: no turn came.
    """
    # A process that asks an old mount for good is no reason not to ask the one that came in its place.
    name = hashlib.sha256(f"{folder} {_mount_of(folder)}".encode()).hexdigest()[:16]
    try:
        lock = (owners.private_folder() / f"{name}.asks").open("ab")
    except OSError:
        yield []
        return
    with lock:
        until = time.monotonic() + seconds
        while not (alone := _locked(lock, fcntl.LOCK_EX)):
            if _is_young(lock, seconds) and _locked(lock, fcntl.LOCK_SH):
                break
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(_GLANCE_SECONDS)
        if alone:
            # The others' time begins with it.
            os.utime(lock.fileno())
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield [lock.fileno()]


def _mount_of(folder: str) -> str:
    """The number of the mount that a folder is on by its name, without asking the mount; empty where none is known.

    https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    """
    try:
        mounts = [line.split() for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    nearest_mount = (0, 0, "")
    for index, (number, _, _, _, written, *_) in enumerate(mounts):
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), written).rstrip("/")
        # Of several at one place the last is seen.
        if f"{folder}/".startswith(f"{point}/"):
            nearest_mount = max(nearest_mount, (len(point), index, number))
    return nearest_mount[2]


def _is_young(file: IO[bytes], seconds: float) -> bool:
    return time.time() - os.fstat(file.fileno()).st_mtime < seconds


def _locked(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_held: set[int] = set()


def _kept(opening: Iterator[pa.NativeFile]) -> pa.NativeFile:
    """The stream that is opened; it lives until `_let_go`, also beyond the interpreter: Arrow completes what it frees.

    As in `_put`, no instruction of Python is between its opening and its second owner.
    """
    first, second = tee(opening)
    owned = map(ctypes.pythonapi.Py_IncRef, map(ctypes.py_object, second))
    stream, _ = next(zip(first, owned, strict=True))
    _held.add(id(stream))
    return stream


def _let_go(stream: pa.NativeFile) -> None:
    if id(stream) in _held:
        _held.remove(id(stream))
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(stream))


def tells_refused_writes(text: str) -> bool:
    """Whether the text of an error says that a file system takes no writes: an error of files, of Java or of Python.

    Other texts may quote a value of a log that says so.
    """
    return _REFUSED_WRITES.search(text) is not None


def denied(uri: str, path: str) -> TableDenied:
    """The error for a path of a table that the system refuses."""
    refusing_path, owner = owners.refusing(path)
    return TableDenied(
        f"{uri}: {owners.refused(path)}. Give it back to the table's owner (`chown -R`), and run everything that "
        "writes to the table as that user",
        table=uri,
        path=refusing_path,
        owner=owner,
        user=owners.this_user(),
    )


def _sync(path: str) -> None:
    """Puts a local file's content, or a folder's names, on the disk: a power loss after a file's renaming would leave
    an empty file otherwise."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
