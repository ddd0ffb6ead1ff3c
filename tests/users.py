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
from pathlib import Path

_PR_SET_SECUREBITS, _NOROOT = 28, 1
NOBODY = pwd.getpwnam("nobody").pw_uid


def run_as(user: int, code: str, *arguments: object, given: str = "", env: Mapping[str, str] | None = None) -> str:
    """What a Python program prints; by the tests' own user where that is not root, who alone may become another."""
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
