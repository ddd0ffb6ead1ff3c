"""Whose files are on this machine: who would be kept out of what a process makes, and what refuses a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.storage import owners
from tests.users import NOBODY, open_folder, run_as

ROOT = os.geteuid() == 0
SAY = """
import sys
from airflow_provider_slshudi.spark.driver.channel import failure
print(failure(RuntimeError(sys.argv[1])))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Another user's, where tests may give files away."""
    with open_folder() as place:
        made = place / "table"
        made.mkdir(0o755)
        if ROOT:
            os.chown(made, NOBODY, NOBODY)
        yield made


@pytest.fixture(params=[0o022, 0o002, 0o000], ids=["022", "002", "000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_root_keeps_the_owner_out_unless_they_share_by_group_or_by_umask(folder: Path, umask: int) -> None:
    open_to_all = umask == 0
    assert owners.keeps_out(folder) == ("nobody" if ROOT and not open_to_all else None)
    folder.chmod(0o2775)
    assert owners.keeps_out(folder) == ("nobody" if ROOT and umask == 0o022 else None)
    assert not list(folder.iterdir())


def test_the_owner_and_whoever_works_in_roots_folder_keep_nobody_out(folder: Path) -> None:
    keeps_out = "import sys; from airflow_provider_slshudi.storage import owners; print(owners.keeps_out(sys.argv[1]))"
    assert run_as(NOBODY, keeps_out, folder).strip() == "None"
    assert run_as(NOBODY, keeps_out, folder.parent).strip() == "None"


def test_a_folder_of_any_script_is_found_by_a_process_whose_locale_has_no_such_letters(folder: Path) -> None:
    """As cron starts one, or a shell whose locale is not in UTF-8; Java and Arrow name files in UTF-8 all the same."""
    named = folder / "上海"
    named.mkdir()
    asked = (
        "import sys; from airflow_provider_slshudi.storage import owners; path = bytes.fromhex(sys.argv[1]).decode(); "
    )
    asked += "print(owners.keeps_out(path), *owners.refusing(path)[1:])"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run_as(os.geteuid(), asked, str(named).encode().hex(), env=plain).split()[0] == "None"
    if ROOT:
        os.chown(named, NOBODY, NOBODY)
        assert run_as(0, asked, str(named).encode().hex(), env=plain).split()[0] == "nobody"


@pytest.mark.parametrize(
    "said",
    [
        "java.io.FileNotFoundException: {path}/00000.log (Permission denied)\n\tat java.io",
        "java.nio.file.AccessDeniedException: {path}/00000.log",
        "java.io.IOException: Mkdirs failed to create file:{path}/files (exists=false, cwd=file:/)",
        "org.apache.hudi.exception.HoodieIOException: Failed to delete invalid data file: file:{path}\n\tat org.apache",
    ],
)
def test_what_java_was_refused_is_told_with_file_owner_and_user(said: str) -> None:
    with open_folder() as place:
        refusing = place / "metadata"
        refusing.mkdir(0o555)
        told = run_as(NOBODY, SAY, said.format(path=refusing)).strip()
    owner = Path("/proc/self").owner()
    assert told.startswith("TableDenied: ") and "\n" not in told
    assert f"{refusing} belongs to {owner}; this process runs as {'nobody' if ROOT else owner}" in told


def test_other_errors_of_java_stay_as_they_are(tmp_path: Path) -> None:
    assert owners.refused_in_java(f"java.io.IOException: Mkdirs failed to create {tmp_path}/a") is None
    assert owners.refused_in_java("java.io.FileNotFoundException: /nowhere (No such file or directory)") is None
