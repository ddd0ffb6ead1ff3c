"""The checks of this machine."""

from __future__ import annotations

from importlib import metadata
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
    assert {found[name].verdict for name in ("Java", "Spark", "cache", "locale")} == {OK}
    assert found["Java"].seen.startswith("17, ")


def test_another_java_than_the_one_named_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME={tmp_path} is no Java 17" in machine.java().what


def test_without_a_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, looked: Looked) -> None:
    def missing() -> Path:
        raise RuntimeMissing("No Java 17 was found: install a JDK 17")

    monkeypatch.setattr(packages, "java_home", missing)
    assert looked(machine.checks())["Java"].verdict is WRONG


@pytest.mark.parametrize(("found", "verdict"), [("3.5.9", OK), ("4.0.1", WRONG)])
def test_spark_is_of_the_version_that_hudi_is_built_for(
    found: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "version", lambda name: found)
    assert machine.spark().verdict is verdict


def test_a_spark_that_is_not_installed_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", version)
    assert machine.spark().verdict is WRONG


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
