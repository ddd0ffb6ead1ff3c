"""The archive for executors: there and of this code, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor import machine
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.spark import python_archive

OK, WARNING, WRONG, UNKNOWN = Verdict


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(python_archive, "DISTRIBUTIONS", ())
    python_archive.pack(tmp_path / "slshudi.tar.gz")
    return tmp_path / "slshudi.tar.gz"


def test_an_archive_of_this_code_fits(made: Path) -> None:
    assert machine.fits(str(made)).verdict is OK
    assert machine.fits(f"file://{made}").verdict is OK


def test_one_of_other_code_does_not(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_archive, "_code", lambda: "another")
    found = machine.fits(str(made))
    assert found.verdict is WRONG and "and not another" in found.what and "slshudi pack" in found.mend


@pytest.mark.parametrize("content", [None, b"", b"no archive", "a folder"])
def test_what_is_none_is_wrong(content: bytes | str | None, tmp_path: Path) -> None:
    path = tmp_path / "slshudi.tar.gz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()
    assert machine.fits(str(path)).verdict is WRONG


def test_one_that_lies_elsewhere_is_not_known() -> None:
    assert machine.fits("hdfs:///apps/slshudi.tar.gz").verdict is UNKNOWN
