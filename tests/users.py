"""Programs run as another user than the tests'."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests import needs

_PR_SET_SECUREBITS, _NOROOT = 28, 1
NOBODY = pwd.getpwnam("nobody").pw_uid


@cache
def _can_run(user: int) -> bool:
    command = [sys.executable, "-c", ""]
    return subprocess.run(command, capture_output=True, user=user, group=user, extra_groups=[]).returncode == 0


def require_python_of(user: int) -> None:
    """Skips the test where the user cannot run the tests' Python: root's own folder may hold it, say."""
    if os.geteuid() == 0 and not _can_run(user):
        pytest.skip(needs.OTHERS)


def run_as(user: int, code: str, *arguments: object, given: str = "", env: Mapping[str, str] | None = None) -> str:
    """What a Python program prints; by the tests' own user where that is not root, who alone may become another.

    Skips the test where the user cannot run this Python.
    """
    require_python_of(user)
    becomes = os.geteuid() == 0
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=given,
        env=env,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        user=user if becomes else None,
        group=user if becomes else None,
        extra_groups=[] if becomes else None,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="sls-", dir="/tmp"))
    made.chmod(0o777)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def ordinary() -> Iterator[None]:
    """Programs that the block's thread starts may do what their user may, also where that is root: files refuse them.

    https://man7.org/linux/man-pages/man7/capabilities.7.html, "The securebits flags"; other users have no such flags.
    """
    libc = ctypes.CDLL(None)
    if os.geteuid() == 0 and libc.prctl(_PR_SET_SECUREBITS, _NOROOT, 0, 0, 0):
        raise OSError("root's rights cannot be laid down on this system")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_SECUREBITS, 0, 0, 0, 0)
