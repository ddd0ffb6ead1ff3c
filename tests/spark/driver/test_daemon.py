"""Python workers start with all loaded, and do nothing before and after each task that could be left out."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_daemon_that_cannot_load_the_tasks_code_leaves_the_error_to_the_task(tmp_path: Path) -> None:
    shutil.copytree(Path(sys.modules["airflow_provider_slshudi"].__path__[0]), tmp_path / "airflow_provider_slshudi")
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow is not installed here')")
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_slshudi.spark.driver.daemon"],
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
        return "airflow_provider_slshudi.spark.driver.upsert" in sys.modules, gc.get_freeze_count(), sys.path

    loaded, frozen, path = spark.sparkContext.parallelize([0], 1).map(seen).collect()[0]
    assert loaded and frozen > 10_000
    assert not [entry for entry in path if "spark-core" in entry or entry.endswith("pyspark.zip")]
