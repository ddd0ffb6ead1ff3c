"""Interpreters of drivers and tasks hold nothing that nobody uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from airflow_provider_slshudi.spark.driver.daemon import lean

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


def imports_pandas(before: str) -> bool:
    """Whether Arrow imports pandas for its first value."""
    code = f"import sys; {before}; import pyarrow; pyarrow.array([1]); print(bool(sys.modules.get('pandas')))"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


def test_arrow_does_not_import_pandas() -> None:
    assert not imports_pandas(
        "from airflow_provider_slshudi.spark.driver.daemon import without_pandas; without_pandas()"
    )
    assert imports_pandas("pass")
