"""The checks of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor import machine
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages, pins, python_archive
from tests.doctor.conftest import Looked
from tests.spark.test_runtime import fake_java
from tests.users import NOBODY, open_folder, run_as

OK, WARNING, WRONG, UNKNOWN = Verdict


def test_this_machine_runs_pipelines(looked: Looked) -> None:
    found = looked(machine.checks())
    assert {found[name].verdict for name in ("Spark", "Python", "cache", "locale")} == {OK}
    assert found["Java"].verdict in (OK, WARNING) and found["Java"].seen.startswith("17.")


def test_a_slow_decoder_is_told_and_what_brings_the_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "native", None)
    monkeypatch.setattr(machine, "DECODER", "ptars")
    seen = machine.decoder()
    assert seen.verdict is WARNING and seen.what.startswith("ptars ") and "slshudi-native" in seen.mend


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


@pytest.fixture
def company_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark that others use, too."""
    home = tmp_path / "spark"
    shutil.copytree(packages.spark_home(), home, copy_function=os.symlink, ignore=shutil.ignore_patterns("examples"))
    (home / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def test_a_spark_with_a_hudi_of_its_own_is_told(company_spark: Path) -> None:
    assert machine.spark().verdict is OK
    (company_spark / "jars" / "hudi-spark3.5-bundle_2.12-0.15.0.jar").touch()
    seen = machine.spark()
    assert seen.verdict is WARNING and "hudi-spark3.5-bundle_2.12-0.15.0.jar" in seen.what


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("JAVA_HOME=/opt/java-8", "JAVA_HOME=/opt/java-8"),
        ("export PYTHONPATH=/opt/company", "PYTHONPATH=/opt/company"),
        ("exit 3", "does not run"),
        ("exit 0", "does not run"),
        ("JAVA_HOME=${JAVA_HOME:-/opt/java-8} PYTHONPATH=/opt/company:$PYTHONPATH; echo hello", None),
    ],
)
def test_variables_that_a_spark_sets_anew_are_told(
    company_spark: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str | None
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/mine")
    (company_spark / "conf" / "spark-env.sh").write_text(f"{line}\n")
    seen = machine.spark()
    assert (seen.verdict is WRONG and told in seen.what) if told else seen.verdict is OK, seen


def test_a_vendors_spark_is_one_and_a_relative_path_is_none(
    company_spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jar,) = company_spark.glob("jars/spark-core_*.jar")
    jar.rename(jar.with_name("spark-core_2.12-3.5.4-amzn-0.jar"))
    assert machine.spark().what.startswith("3.5.4, ")
    monkeypatch.chdir(company_spark.parent)
    monkeypatch.setenv("SPARK_HOME", "spark")
    assert "SPARK_HOME=spark is no Spark 3.5" in machine.spark().what


def test_a_java_home_with_a_slash_at_its_end_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", f"{packages.java_home()}/")
    assert "not used" not in machine.java().what


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
    monkeypatch.setenv("SLSHUDI_PYTHON", "bin/python")
    refused = looked(machine.checks())["Python"]
    assert refused.verdict is WRONG and "SLSHUDI_PYTHON=bin/python is no absolute path" in str(refused)


def test_what_a_python_says_as_it_starts_is_not_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "python"
    named.write_text(f'#!/bin/sh\necho activating\nexec {sys.executable} "$@"\n')
    named.chmod(0o755)
    monkeypatch.setenv("SLSHUDI_PYTHON", str(named))
    assert machine.python().verdict is OK
    assert python_archive._of_drivers()("numpy").version


def test_a_copy_in_the_place_of_the_link_to_this_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies a cache may follow its links, and drivers would run that version for good."""
    monkeypatch.setenv("SLSHUDI_CACHE", str(tmp_path))
    monkeypatch.setenv("SLSHUDI_PYTHON", "/bin/python3")
    folder = Path(packages.environment()["PYTHONPATH"].partition(os.pathsep)[0])
    link = folder / "airflow_provider_slshudi"
    link.unlink()
    link.mkdir()
    with pytest.raises(RuntimeMissing, match="but a copy: delete"):
        packages.environment()


def test_jars_that_are_not_there_yet_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSHUDI_CACHE", str(tmp_path / "cache"))
    for s3, option in ((False, "runtime`"), (True, "--s3`")):
        seen = machine.jars(s3)
        assert seen.verdict is WARNING and option in seen.mend
    assert machine.archive().verdict is UNKNOWN
    assert machine.cache().verdict is OK
    assert list(tmp_path.iterdir()) == []
    home = packages.home_of(pins.HUDI_PACKAGE)
    home.mkdir(parents=True)
    assert machine.jars(False).verdict is WRONG
    (home / "hudi.jar").touch()
    seen = machine.jars(False)
    assert seen.verdict is WRONG and "hudi.jar is no jar of this package" in seen.what and str(home) in seen.mend


def test_an_old_java_is_told_with_what_brings_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.9", release="17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(home))
    seen = machine.java()
    assert seen.verdict is WARNING and seen.what.startswith("17.0.9, ") and "openjdk-17-jre-headless" in seen.mend
    fake_java(home, "17.0.21.1", release="17.0.21.1")
    assert machine.java().verdict is OK


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
