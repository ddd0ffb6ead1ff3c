"""Commands that run in namespaces of their own, as a container does."""

from __future__ import annotations

import subprocess

import pytest

from tests import needs


def unshared(kind: str) -> list[str]:
    """The start of a command that runs in a new namespace of this kind; skips the test where none can be made."""
    command = ["unshare", f"--{kind}"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip(needs.ROOT)
    return command
