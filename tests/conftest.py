"""What all tests share: one Spark session per run, started when first asked for; and which tests are long."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from tests.needs import summary_of
from tests.sessions import java_options, start_spark

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


# How fast values are drawn says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_REAL = {"spark", "gateway"}
"""Fixtures whose tests are long, unless they show a capability."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that need Spark as long; puts files with long tests first, so that short ones fill up the end."""
    for item in items:
        if item.get_closest_marker("capability") is None and _REAL & set(getattr(item, "fixturenames", ())):
            item.add_marker("long")
    heavy = {item.path for item in items if any(item.iter_markers("long")) or any(item.iter_markers("capability"))}
    items.sort(key=lambda item: item.path not in heavy)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says in one line what was skipped, and what would bring it."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = (str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if said := summary_of(reasons):
        terminalreporter.write_line(said)


def pytest_configure(config: pytest.Config) -> None:
    """Drivers compile once; each worker has temporary files of its own, and so processes of its own that stay."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
    if hasattr(config, "workerinput"):
        made = tempfile.mkdtemp(prefix="w")
        Path(made).chmod(0o755)  # servers and drivers of other users work in it
        os.environ["TMPDIR"] = tempfile.tempdir = made
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
