"""Resident processes of one test module, found in a folder of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from airflow_provider_slshudi.spark import resident


@contextmanager
def apart() -> Iterator[Path]:
    """The folder where resident processes are found: nobody else's, and short enough for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="sls-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(made))
        patch.setattr(tempfile, "tempdir", str(made))
        patch.delenv(resident.IDLE, raising=False)
        yield made / f"slshudi-{os.geteuid()}"
    end(drivers(made))
    shutil.rmtree(made)


def end(processes: Iterable[psutil.Process]) -> None:
    """Kills processes of which one may end by itself once another is gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def drivers(folder: Path) -> list[psutil.Process]:
    """The JVMs and interpreters of resident processes found at `folder`."""
    found = []
    # What it remembers of an earlier look may be another process of the same number.
    psutil.process_iter.cache_clear()
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        is_driver = any("driver/resident_driver.py" in word for word in words) and words[0] != "/bin/sh"
        if is_driver and process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in words):
            found.append(process)
    return found


def jvm(folder: Path) -> psutil.Process:
    """The one JVM among them."""
    [found] = [process for process in drivers(folder) if process.name() == "java"]
    return found
