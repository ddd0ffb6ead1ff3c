"""Programs run as another user than the tests'."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
