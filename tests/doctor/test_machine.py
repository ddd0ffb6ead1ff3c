"""The checks of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor import machine
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages
from tests.doctor.conftest import Looked
from tests.users import NOBODY, open_folder, run_as

OK, WARNING, WRONG, UNKNOWN = Verdict


def test_this_machine_runs_pipelines(looked: Looked) -> None:
    found = looked(machine.checks())
    assert {found[name].verdict for name in ("Java", "Spark", "Python", "cache", "locale")} == {OK}
    assert found["Java"].seen.startswith("17, ")


def test_another_java_than_the_one_named_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME={tmp_path} is no Java 17" in machine.java().what


def test_without_a_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, looked: Looked) -> None:
    def missing() -> Path:
        raise RuntimeMissing("No Java 17 was found: install a JDK 17")

    monkeypatch.setattr(packages, "java_home", missing)
    assert looked(machine.checks())["Java"].verdict is WRONG


def test_another_spark_than_the_one_named_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert f"SPARK_HOME={tmp_path} is no Spark 3.5 with Scala 2.12" in machine.spark().what


def test_without_a_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, looked: Looked) -> None:
    monkeypatch.setattr(packages, "spark_version", lambda home: "")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-4")
    packages._spark_home.cache_clear()
    seen = looked(machine.checks())["Spark"]
    assert seen.verdict is WRONG and "SPARK_HOME=/opt/spark-4 is none" in str(seen)


def test_a_python_of_its_own_has_what_drivers_and_tasks_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked: Looked
) -> None:
    assert looked(machine.checks())["Python"].verdict is OK
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for named, told in (
        (bare, "No module named"),
        (tmp_path / "none", "does not run"),
        (Path("/bin/true"), "Python ?"),
    ):
        monkeypatch.setenv("SLSHUDI_PYTHON", str(named))
        seen = machine.python()
        assert seen.verdict is WRONG and told in seen.what, seen.what


def test_jars_that_are_not_there_yet_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSHUDI_CACHE", str(tmp_path / "cache"))
    for s3, option in ((False, "runtime`"), (True, "--s3`")):
        seen = machine.jars(s3)
        assert seen.verdict is WARNING and option in seen.mend
    assert machine.archive().verdict is UNKNOWN
    assert machine.cache().verdict is OK
    assert list(tmp_path.iterdir()) == []
    home = packages.home_of(packages.HUDI_PACKAGE)
    home.mkdir(parents=True)
    assert machine.jars(False).verdict is WRONG
    (home / "hudi.jar").touch()
    assert machine.jars(False).verdict is OK


def test_a_cache_that_cannot_be_written_is_told_with_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, sys; os.environ['SLSHUDI_CACHE'] = sys.argv[1]; "
        "from airflow_provider_slshudi.doctor import machine; found = machine.cache(); "
        "print(found.verdict.value, found.what, found.mend)"
    )
    with open_folder() as folder:
        folder.chmod(0o755)
        told = run_as(NOBODY, code, folder / "cache")
    assert told.startswith("wrong") and "nobody" in told and "SLSHUDI_CACHE" in told
