"""What an index is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from airflow_provider_slshudi import __version__
from tests.machine import ROOT

pytestmark = pytest.mark.long
SOURCES = ("airflow_provider_slshudi", "dags", "pyproject.toml", "README.md", "LICENSE")


def built(folder: Path) -> Path:
    """A wheel of a copy of the sources."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1800000000"})
    return next(folder.glob("*.whl"))


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12"])
def test_each_python_can_have_the_fixed_versions(version: str) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "setup.py", "fits", version], check=True)


def test_the_wheel_has_the_same_bytes_wherever_it_is_built_and_all_that_a_demo_needs(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there" / "deeper"]
    for folder in folders:
        folder.mkdir(parents=True)
    one, other = map(built, folders)
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as wheel:
        names = wheel.namelist()
        assert "airflow_provider_slshudi/cli/demo/dags/pipelines/ad_events.yaml" in names
        metadata = wheel.read(f"airflow_provider_slshudi-{__version__}.dist-info/METADATA").decode()
    needed = [Requirement(text) for text in Parser().parsestr(metadata).get_all("Requires-Dist", [])]
    (native,) = [each for each in needed if each.name == "slshudi-native"]
    cargo = (ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8")
    assert next(native.specifier.filter([cargo.split('version = "')[1].split('"')[0]]))
    platforms = (("linux", "x86_64"), ("linux", "aarch64"), ("linux", "riscv64"), ("darwin", "arm64"))
    assert native.marker is not None
    fits = [native.marker.evaluate({"sys_platform": os_, "platform_machine": cpu}) for os_, cpu in platforms]
    assert fits == [True, True, False, False]
