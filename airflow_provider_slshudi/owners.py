"""Whose files are on this machine, and who is kept from them."""

from __future__ import annotations

import os
import pwd
import re
import stat
import uuid
from contextlib import suppress
from pathlib import Path

# How Java's own file classes, Hadoop's and Hudi's say that the system refused.
_JAVA = (
    re.compile(r"(/[^\n]*?) \(Permission denied\)"),
    re.compile(r"AccessDeniedException: (/[^\n:]*)"),
    re.compile(r"Mkdirs failed to create (?:file:)?(/[^\n]*?)(?: \(exists=|\n|$)"),
    re.compile(r"Failed to delete invalid data file: (?:file:)?(/[^\n]*?)(?: at |\n|$)"),
)


def name_of(user: int) -> str:
    """A user's name; its number where the system knows none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user id {user}"


def this_user() -> str:
    """The name of the user that this process works as."""
    return name_of(os.geteuid())


def is_nameless() -> bool:
    """Whether the system knows no name of this process's user, as OpenShift gives user ids to containers."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def hadoop_name() -> str:
    """The name by which others than this machine's system know a user without a name."""
    return os.environ.get("HADOOP_USER_NAME") or os.environ.get("SPARK_USER") or str(os.getuid())


def umask() -> str:
    """Read from where reading does not set it, which would be seen by other threads."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return line.split()[1]
    return ""


def may(path: str | Path, how: int) -> bool:
    """Whether this process may use `path` so; `how` is made of os.R_OK, os.W_OK and os.X_OK."""
    return os.access(_named(path), how, effective_ids=os.access in os.supports_effective_ids)


def refusing(path: str | Path) -> tuple[str, str]:
    """What keeps this process from `path`, be that the file or a folder above it; and its owner."""
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
    """Who is kept from what, as a sentence's beginning; `path` is what could not be used."""
    found, owner = refusing(path)
    return f"{found} belongs to {owner}, and this process works as {this_user()}, who may not use it so"


def refused_in_java(text: str) -> str | None:
    """The path that an error of Java's says it was kept from, None where it says no such thing."""
    for pattern in _JAVA:
        for found in pattern.findall(text):
            path, _ = refusing(found)
            # Folders are not made for other reasons, too.
            if not may(path, os.R_OK | os.W_OK):
                return str(found)
    return None


def keeps_out(folder: str | Path) -> str | None:
    """The owner of a folder who could not change what this process makes there; None where there is no such trouble.

    A folder is made there for a moment where it is another user's: groups, umask, access lists and what some file
    systems make of them all have a part in the answer.

    Raises:
        OSError: nothing can be made there.
    """
    there = _named(folder).stat()
    if there.st_uid in (os.geteuid(), 0):
        return None
    made = _named(Path(folder, f".slshudi-{uuid.uuid4().hex}"))
    made.mkdir()
    try:
        found = made.stat()
        lists = os.listxattr(made) if hasattr(os, "listxattr") else []
    finally:
        made.rmdir()
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid in {there.st_gid, *_groups(there.st_uid)}
    shared = by_group or found.st_mode & stat.S_IWOTH or "system.posix_acl_access" in lists
    return None if shared or found.st_uid == there.st_uid else name_of(there.st_uid)


def _named(path: str | Path) -> Path:
    """A path as Java and Arrow name it, in UTF-8, where this process's locale would have it encoded otherwise."""
    return Path(os.fsdecode(os.fspath(path).encode("utf-8", "surrogateescape")))


def _groups(user: int) -> list[int]:
    with suppress(KeyError):
        found = pwd.getpwuid(user)
        return os.getgrouplist(found.pw_name, found.pw_gid)
    return []
