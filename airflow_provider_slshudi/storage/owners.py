"""Who owns files on this machine, and who may not use them."""

from __future__ import annotations

import os
import pwd
import re
import stat
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

# The texts by which Java's own file classes, Hadoop's and Hudi's say that the system refused a path.
_JAVA = (
    re.compile(r"(/[^\n]*?) \(Permission denied\)"),
    re.compile(r"AccessDeniedException: (/[^\n:]*)"),
    re.compile(r"Mkdirs failed to create (?:file:)?(/[^\n]*?)(?: \(exists=|\n|$)"),
    re.compile(r"Failed to delete invalid data file: (?:file:)?(/[^\n]*?)(?: at |\n|$)"),
)


def name_of(user: int) -> str:
    """A user's name, or its number if the system knows no name."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user id {user}"


def this_user() -> str:
    """The name of this process's user."""
    return name_of(os.geteuid())


def private_folder() -> Path:
    """A folder of this user that no other user can enter.

    Raises:
        PermissionError: there is something else in its place, or others can enter.
    """
    folder = Path(tempfile.gettempdir()) / f"slshudi-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} is not a folder of this user that no other user can enter")
    return folder


def is_nameless() -> bool:
    """Whether the system knows no name of this process's user, such as the user ids that OpenShift gives containers."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def hadoop_name() -> str:
    """The name by which Hadoop and Spark know a user who has none on this machine."""
    return os.environ.get("HADOOP_USER_NAME") or os.environ.get("SPARK_USER") or str(os.getuid())


def umask() -> str:
    """The umask, empty if unknown. From /proc: os.umask() would set it for a moment, which other threads would see."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return line.split()[1]
    return ""


def may(path: str | Path, how: int) -> bool:
    """Whether this process may use `path` so; `how` is made of os.R_OK, os.W_OK and os.X_OK."""
    return os.access(_named(path), how, effective_ids=os.access in os.supports_effective_ids)


def refusing(path: str | Path) -> tuple[str, str]:
    """The file or folder that keeps this process from `path`, and its owner."""
    parts = [*reversed(Path(path).parents), Path(path)]
    last = parts[0]
    for part in parts:
        try:
            _named(part).stat()
        except OSError:
            break
        last = part
    else:
        needed = os.R_OK | os.W_OK | (os.X_OK if _named(last).is_dir() else 0)
        last = last if not may(last, needed) else last.parent
    return str(last), name_of(_named(last).stat().st_uid)


def refused(path: str | Path) -> str:
    """The beginning of a sentence that says who may not use `path`, and who owns the file or folder that refuses."""
    refusing_path, owner = refusing(path)
    return f"{refusing_path} belongs to {owner}; this process runs as {this_user()}, who may not use it this way"


def refused_in_java(text: str) -> str | None:
    """The path that the system refused Java, from Java's error text; None if the text names none."""
    for pattern in _JAVA:
        for java_path in pattern.findall(text):
            path, _ = refusing(java_path)
            # Java fails to make folders for other reasons, too.
            if not may(path, os.R_OK | os.W_OK):
                return str(java_path)
    return None


def keeps_out(folder: str | Path) -> str | None:
    """The folder's owner, if they could not change the files that this process makes there; else None.

    In another user's folder this makes a folder for a moment: groups, umask, access lists and the ways of some file
    systems all have a part in the answer.

    Raises:
        OSError: this process can make nothing there.
    """
    folder_status = _named(folder).stat()
    if folder_status.st_uid in (os.geteuid(), 0):
        return None
    probe = _named(Path(folder, f".slshudi-{uuid.uuid4().hex}"))
    probe.mkdir()
    try:
        probe_status = probe.stat()
        lists = os.listxattr(probe) if hasattr(os, "listxattr") else []
    finally:
        probe.rmdir()
    by_group = probe_status.st_mode & stat.S_IWGRP and probe_status.st_gid in {
        folder_status.st_gid,
        *_groups(folder_status.st_uid),
    }
    shared = by_group or probe_status.st_mode & stat.S_IWOTH or "system.posix_acl_access" in lists
    return None if shared or probe_status.st_uid == folder_status.st_uid else name_of(folder_status.st_uid)


def _named(path: str | Path) -> Path:
    """A path as Java and Arrow name it, in UTF-8, even if this process's locale has another encoding."""
    return Path(os.fsdecode(os.fspath(path).encode("utf-8", "surrogateescape")))


def _groups(user: int) -> list[int]:
    with suppress(KeyError):
        account = pwd.getpwuid(user)
        return os.getgrouplist(account.pw_name, account.pw_gid)
    return []
