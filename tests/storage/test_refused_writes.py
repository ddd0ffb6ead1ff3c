"""A file system that takes no writes: full of bytes, full of names, or read-only, each made for real in a namespace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import WritesRefused
from airflow_provider_slshudi.spark.driver.channel import failure
from airflow_provider_slshudi.views.advice import advice
from tests.namespaces import unshared
from tests.needs import needs_root

MOUNTED = """
import subprocess, sys
from contextlib import suppress
from pathlib import Path
from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.storage.files import Storage

disk, how = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=40", "none", disk], check=True)
storage = Storage(f"file://{disk}/clicks")
storage.write("a.json", b"committed")
if how == "bytes":
    with suppress(OSError), open(f"{disk}/filler", "wb", buffering=0) as filler:
        while filler.write(bytes(4096)) == 4096:
            pass
elif how == "names":
    with suppress(OSError):
        for number in range(50):
            Path(disk, str(number)).touch()
else:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
try:
    storage.write("b.json", bytes(8192))
except SlsHudiError as error:
    print(type(error).__name__, error, storage.read("a.json"))
"""


@needs_root
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("bytes", "No space left on device"),
        ("names", "0 of 40 inodes free"),
        ("read-only", "Read-only file system"),
    ],
)
def test_a_disk_that_takes_no_writes_is_not_taken_for_a_table_that_is_gone(tmp_path: Path, how: str, says: str) -> None:
    command = [*unshared("mount"), sys.executable, "-c", MOUNTED, str(tmp_path), how]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.startswith(f"WritesRefused file://{tmp_path}/clicks/b.json: ") and says in told, told
    assert "of 65536 bytes" in told and "b'committed'" in told, "what is free is told, and reading goes on"
    assert not advice("WritesRefused").acts, "nothing has to be forgotten or made anew"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: could not convert string to float: 'No space left on device'",
        "AnalysisException: no column `Read-only file system`",
        "java.io.FileNotFoundException: File file:/lake/event=Read-only file system/a.parquet does not exist",
    ],
)
def test_a_value_that_speaks_of_a_full_disk_is_not_one(text: str) -> None:
    assert failure(RuntimeError(text)).error != WritesRefused.__name__


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded", "Read-only file system"])
def test_a_disk_that_refuses_java_s_writes_is_told_alike(said: str) -> None:
    told = failure(RuntimeError(f"java.io.IOException: {said}: /lake/.hoodie/metadata/files/x.log"))
    assert told.error == WritesRefused.__name__ and said in told.text
    assert "rebuild-metadata" not in told.text, "that would need more space"
