"""What all tests share: one Spark session per run, started when first asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark with Hudi, as a reader of tables would start it."""
    session = start_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def gateway(spark: SparkSession) -> Gateway:
    """A way to Hudi's classes in that session's JVM."""
    return Gateway.of(spark.sparkContext)


def pytest_configure(config: pytest.Config) -> None:
    """Each of several workers has temporary files of its own, and so processes of its own that stay."""
    if hasattr(config, "workerinput"):
        made = tempfile.mkdtemp(prefix="w")
        Path(made).chmod(0o755)  # servers and drivers of other users work in it
        os.environ["TMPDIR"] = tempfile.tempdir = made
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
