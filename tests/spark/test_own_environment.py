"""Spark and what drivers and tasks import are in an environment of their own, where there is no Airflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.doctor import machine
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark import packages, python_archive
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction import plan, steps
from tests.crash.world import Line, World
from tests.exact.world import log_service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

DRIVERS_ALONE = ("cryptography", "cffi")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with what executors need and no more, and a Spark beside it; each says in a file that it was used."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_archive, "_COMPRESSION", 0)
        python_archive.pack(folder / "slshudi.tar.gz")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    shutil.unpack_archive(folder / "slshudi.tar.gz", site)
    shutil.rmtree(site / "airflow_provider_slshudi")
    for name in DRIVERS_ALONE:
        for file, path in python_archive._of(distribution(name)):
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, site / path)
    # Not sitecustomize: distributions bring one of their own, which comes first.
    (site / "used.pth").write_text(f"import pathlib; pathlib.Path({str(folder / 'python-used')!r}).touch()\n")
    shutil.copytree(packages.spark_home(), folder / "spark", copy_function=os.symlink)
    submit = folder / "spark" / "bin" / "spark-submit"
    submit.unlink()
    submit.write_text(f'#!/bin/sh\ntouch {folder / "spark-used"}\nexec {packages.spark_home()}/bin/spark-submit "$@"\n')
    submit.chmod(0o755)
    # What the Spark's owner has set for other jobs.
    (folder / "spark" / "conf").mkdir()
    (folder / "spark" / "conf" / "spark-defaults.conf").write_text("spark.pyspark.python /usr/bin/python3\n")
    return folder


@pytest.fixture
def line(tmp_path: Path, spark: SparkSession) -> Iterator[Line]:
    with log_service(tmp_path) as server, World(tmp_path / "world", spark, server).line("line") as made:
        yield made


def test_the_archive_for_executors_holds_the_libraries_of_drivers(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_archive, "_COMPRESSION", 0)
    monkeypatch.setenv("SLSHUDI_PYTHON", str(own / "venv" / "bin" / "python"))
    (site,) = (own / "venv" / "lib").glob("python*/site-packages")
    marker = site / "certifi" / "of_drivers.py"
    marker.touch()
    (record,) = site.glob("certifi-*.dist-info/RECORD")
    record.write_text(f"{record.read_text()}certifi/of_drivers.py,,\n")
    _, held = python_archive.pack(tmp_path / "slshudi.tar.gz")
    with tarfile.open(tmp_path / "slshudi.tar.gz") as packed:
        assert "certifi/of_drivers.py" in packed.getnames()
    assert held[0].startswith("airflow-provider-slshudi ")
    monkeypatch.setenv("SLSHUDI_PYTHON", "/bin/false")
    with pytest.raises(RuntimeMissing, match="SLSHUDI_PYTHON=/bin/false does not run"):
        python_archive.pack(tmp_path / "slshudi.tar.gz")


@pytest.mark.parametrize("resident", [False, True], ids=["a driver of its own", "the process that stays"])
def test_a_batch_is_written_there(line: Line, own: Path, monkeypatch: pytest.MonkeyPatch, resident: bool) -> None:
    monkeypatch.setenv("SPARK_HOME", str(own / "spark"))
    monkeypatch.setenv("SLSHUDI_PYTHON", str(own / "venv" / "bin" / "python"))
    monkeypatch.setenv("SLSHUDI_RESIDENT_SECONDS", "5")
    found = machine.python()
    assert found.verdict is Verdict.OK, found
    assert str(own / "spark") in machine.spark().what and "not used" not in machine.spark().what
    # Others may have put a pandas there, which Arrow would import.
    (site,) = (own / "venv" / "lib").glob("python*/site-packages")
    pandas = site / "pandas.py"
    pandas.write_text(f"open({str(own / 'pandas-used')!r}, 'w').close()\n")
    used = own / "python-used", own / "spark-used"
    for file in used:
        file.unlink(missing_ok=True)
    work = replace(line.scenario.by("run-1"), launcher=SubprocessLauncher(resident=resident))
    planned = plan.tail(work)
    assert planned is not None
    for step in (steps.open_instant, steps.append, steps.record, steps.commit):
        step(work, planned.id, planned.token)
    assert work.ledger.get(planned.id).state is State.COMMITTED
    assert all(file.exists() for file in used)
    assert not (own / "pandas-used").exists()
    pandas.unlink()
    monkeypatch.undo()
    line.ends_well()
