"""Python workers start with all loaded, and do nothing before and after each task that could be left out."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.job.daemon import lean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = "/opt/spark/jars/spark-core_2.12-3.5.9.jar"


def installed(place: Path) -> list[str]:
    """A PySpark below a folder, as pip installs it; gives the zips that Spark names for it."""
    zips = place / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True)
    (place / "pyspark" / "__init__.py").touch()
    return [str(zips / "pyspark.zip"), str(zips / "py4j-src.zip")]


def test_the_zips_of_the_installed_pyspark_and_sparks_jar_are_left_out(tmp_path: Path) -> None:
    zips = installed(tmp_path)
    assert lean([*zips, JAR, "/lib", str(tmp_path)]) == ["/lib", str(tmp_path)]


def test_zips_of_another_spark_stay_and_go_first(tmp_path: Path) -> None:
    installed(tmp_path)
    other = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-src.zip"]
    assert lean([*other, JAR, str(tmp_path)]) == [*other, str(tmp_path)]


def test_what_users_send_along_stays(tmp_path: Path) -> None:
    zips = installed(tmp_path)
    own = ["/tmp/files/mine.zip", "/tmp/files/mine.jar"]
    assert lean([*own, *zips, str(tmp_path)]) == [*own, str(tmp_path)]


def test_where_no_pyspark_is_installed_its_zips_stay() -> None:
    zips = ["/opt/spark/python/lib/pyspark.zip"]
    assert lean([*zips, JAR]) == zips


def test_a_daemon_that_cannot_load_the_tasks_code_leaves_the_error_to_the_task(tmp_path: Path) -> None:
    shutil.copytree(Path(sys.modules["airflow_provider_slshudi"].__path__[0]), tmp_path / "airflow_provider_slshudi")
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow is not installed here')")
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_slshudi.job.daemon"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        port = int.from_bytes(daemon.stdout.read(4), "big")
        daemon.stdin.close()
    assert port > 0


def test_sparks_workers_come_from_it(spark: SparkSession) -> None:
    def seen(_: int) -> tuple[bool, int, list[str]]:
        return "airflow_provider_slshudi.job.upsert" in sys.modules, gc.get_freeze_count(), sys.path

    loaded, frozen, path = spark.sparkContext.parallelize([0], 1).map(seen).collect()[0]
    assert loaded and frozen > 10_000
    assert not [entry for entry in path if "spark-core" in entry or entry.endswith("pyspark.zip")]
