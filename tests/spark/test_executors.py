"""What executors must have in common with the driver, and the archive that gives it to them."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import airflow_provider_slshudi
from airflow_provider_slshudi.config.pipeline import Spark
from airflow_provider_slshudi.exceptions import ConfigError, ExecutorUnfit, RuntimeMissing
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.packages import spark_home
from airflow_provider_slshudi.spark.runtime import with_asked

ON_EXECUTORS = ("sls", "rows", "handover", "planning", "config", "hudi", "spark/driver")
"""The rooms whose code runs within tasks; of `hudi`, its `client` does not."""
ON_DRIVERS_ALONE = {"pyspark", "py4j", "airflow_provider_slshudi", "aliyun"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pack") / "slshudi.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_archive, "_COMPRESSION", 0)
        python_archive.pack(target)
    return target


def test_all_that_the_packed_distributions_need_is_packed() -> None:
    packed = {canonicalize_name(name) for name in python_archive.DISTRIBUTIONS}
    for name in packed:
        for text in importlib.metadata.requires(name) or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                assert canonicalize_name(wanted.name) in packed, f"{name} needs {text}"


def distributions_of_modules() -> dict[str, set[str]]:
    """By its topmost module, from their lists of files: Python 3.10's packages_distributions knows few of them."""
    found: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            found.setdefault(file.parts[0].partition(".")[0], set()).add(distribution.name)
    return found


def test_all_that_tasks_import_is_packed() -> None:
    names = distributions_of_modules()
    packed = {canonicalize_name(name) for name in (*python_archive.DISTRIBUTIONS, *python_archive.OPTIONAL)}
    root = Path(airflow_provider_slshudi.__file__).parent
    files = [path for room in ON_EXECUTORS for path in (root / room).rglob("*.py") if "client" not in path.parts]
    files += [root / "spark" / name for name in ("python_archive.py", "keyserver.py")]
    found = set()
    for node in (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    tops = {name.split(".")[0] for name in found} - sys.stdlib_module_names - ON_DRIVERS_ALONE
    # `cryptography` makes the certificate of whoever tells keys.
    lacking = {top for top in tops if not {canonicalize_name(of) for of in names.get(top, ["?"])} & packed}
    assert lacking - {"slshudi_native"} == {"cryptography"}, "the native package may not be installed here"
    assert {"pyarrow", "pydantic", "ptars"} <= tops


def test_a_python_with_nothing_else_runs_tasks_from_the_archive(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    shutil.unpack_archive(archive, tmp_path / "slshudi")
    assert not [name for name in names if name.startswith(("..", "/")) or "/tests/" in name]
    spark = spark_home() / "python" / "lib"
    code = (
        "import airflow_provider_slshudi.spark.driver.append as a, airflow_provider_slshudi.spark.driver.upsert, "
        "airflow_provider_slshudi.spark.driver.verify, pyarrow; "
        "print(a.__file__, pyarrow.__file__)"
    )
    path = ":".join(["slshudi", *map(str, spark.glob("*.zip"))])
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert all(place.startswith(str(tmp_path)) for place in ran.stdout.split())


def test_the_same_content_gives_the_same_archive(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_archive, "_COMPRESSION", 0)
    python_archive.pack(tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.tar.gz"]


def test_links_of_an_installer_are_packed_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, linked, hard = (tmp_path / f"{name}.py" for name in ("cache", "linked", "hard"))
    real.write_text("x = 1")
    linked.symlink_to(real)
    hard.hardlink_to(real)
    monkeypatch.setattr(python_archive, "DISTRIBUTIONS", ("certifi",))
    monkeypatch.setattr(python_archive, "_of", lambda found: [(path, path.name) for path in (real, linked, hard)])
    python_archive.pack(tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        for name in ("cache.py", "linked.py", "hard.py"):
            content = packed.extractfile(packed.getmember(name))
            assert content is not None and packed.getmember(name).isreg() and content.read() == b"x = 1"


def test_a_distribution_that_does_not_tell_its_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_archive, "_of", lambda found: [])
    with pytest.raises(RuntimeMissing, match="annotated-types is installed here in a way that does not tell its files"):
        python_archive.pack(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("name", ["a.zip", "a b.tar.gz", "folder.tar.gz", "."])
def test_a_name_that_spark_would_not_take_is_refused_before_packing(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.tar.gz").mkdir()
    with pytest.raises(ConfigError, match="cannot be the archive's name"):
        python_archive.pack(tmp_path / name)


def test_a_python_that_has_a_google_package_of_its_own_finds_ours(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "slshudi"
    for folder in (theirs, ours):
        (folder / "google").mkdir(parents=True)
    (theirs / "google" / "__init__.py").touch()
    (ours / "google" / "protobuf.py").write_text("found = True")
    shutil.copytree(python_archive.PACKAGE, ours / python_archive.PACKAGE.name)
    code = (
        "from airflow_provider_slshudi.spark.driver.daemon import _join_google\n"
        "_join_google()\nimport google.protobuf\nassert google.protobuf.found"
    )
    path = ":".join(map(str, (ours, theirs, *sys.path)))
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=tmp_path, env={"PYTHONPATH": path})


def test_what_is_not_installed_cannot_be_packed_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_archive, "DISTRIBUTIONS", ("no-such-distribution",))
    with pytest.raises(RuntimeMissing, match="no-such-distribution is not installed here"):
        python_archive.pack(tmp_path / "file.tar.gz")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_archive, "DISTRIBUTIONS", ())
    with pytest.raises(ConfigError, match="cannot be written"):
        python_archive.pack(tmp_path / "none" / "file.tar.gz")


@pytest.mark.parametrize("changed", ["Python", "PySpark", "airflow_provider_slshudi"])
def test_an_executor_that_differs_in_one_thing_is_refused_by_name(changed: str) -> None:
    wanted = python_archive.facts("3.5.9")
    python_archive.require_fit({python_archive.EXPECTED: python_archive.told(wanted)}, "3.5.9")
    wanted[changed] = "another"
    with pytest.raises(ExecutorUnfit, match=rf"{changed} .* and not another\. Nothing was read") as refused:
        python_archive.require_fit({python_archive.EXPECTED: python_archive.told(wanted)}, "3.5.9")
    assert refused.value.host


def test_shells_of_yarn_take_what_executors_are_told_as_it_is() -> None:
    made = python_archive.conf(None, "3.5.9")[f"spark.executorEnv.{python_archive.EXPECTED}"]
    assert re.fullmatch(r"[\w.=,-]+", made)


def test_an_archive_that_is_no_file_here_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*/none\.tar\.gz; make it with `slshudi pack"):
        python_archive.conf(f"{tmp_path}/none.tar.gz", "3.5.9")


def test_an_archive_elsewhere_is_the_cluster_s_matter() -> None:
    made = python_archive.conf("hdfs:///apps/slshudi.tar.gz", "3.5.9")
    assert made["spark.archives"] == "hdfs:///apps/slshudi.tar.gz#slshudi"
    assert with_asked(made, {"spark.archives": "/mine.zip#mine"})["spark.archives"].split(",") == [
        "hdfs:///apps/slshudi.tar.gz#slshudi",
        "/mine.zip#mine",
    ]
    assert with_asked(made, {"spark.pyspark.python": "/opt/python"})["spark.pyspark.python"] == "/opt/python"


@pytest.mark.parametrize(
    "wrong",
    ["relative.tar.gz", "/a.zip", "/a#b.tar.gz", "/a,b.tar.gz", "/a b.tar.gz", "/a%20b.tar.gz", "/\n.tar.gz", ""],
)
def test_a_wrong_name_of_an_archive_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="expected an absolute path or a URI"):
        Spark(archive=wrong)


def test_other_errors_of_spark_say_nothing_about_executors() -> None:
    assert python_archive.lacking("Job aborted: java.lang.OutOfMemoryError") is None
    for said in (
        "ModuleNotFoundError: No module named 'airflow_provider_slshudi'",
        'Cannot run program "/opt/python": error=13, Permission denied',
        'Cannot run program "/opt/python" (in directory "."): Exec failed, error: 2 (No such file or directory)',
        'File "/x/airflow_provider_slshudi/spark/driver/daemon.py", line 9\n    import x\n    ^\nSyntaxError: x',
    ):
        assert python_archive.lacking(said) is not None, said
    said = 'Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): Cannot run program "python3.11": error=2, No such'
    found = python_archive.lacking(said)
    assert found is not None and found.host == "10.0.0.7"
