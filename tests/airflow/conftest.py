"""Airflow's own folder and database for these tests, made before any of them imports it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.local import LocalSls
from tests.commits import Committing
from tests.machine import ROOT, connection, write_hourly, write_pipeline
from tests.transaction.conftest import scenario, server  # noqa: F401  pipelines with tables, for the command line

if TYPE_CHECKING:
    from tests.airflow.operators.runs import AssetEvents

# Airflow reads its configuration when it is first imported, which is before any fixture.
_HOME = Path(tempfile.mkdtemp(prefix="slshudi-airflow-"))
os.environ.update(
    {
        "AIRFLOW_HOME": str(_HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
)


def pytest_sessionfinish() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture
def ledger_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger in SQLite behind the default connection; gives its file."""
    path = tmp_path / "ledger.db"
    value = connection("slshudi_ledger", schema=str(path), extra={"dialect": "sqlite"})
    monkeypatch.setenv("AIRFLOW_CONN_SLSHUDI_LEDGER", value)
    return path


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipelines folder of the test's own, with the example of `dags` in it."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    write_pipeline(folder / "ad_events.yaml", tmp_path / "lake" / "ad_events")
    monkeypatch.setenv("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", str(folder))
    return folder


@pytest.fixture
def asset_events(monkeypatch: pytest.MonkeyPatch) -> AssetEvents:
    """The asset events that Airflow has, for tasks that ask for them; none at first."""
    from tests.airflow.operators.runs import AssetEvents

    found = AssetEvents()
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", found, raising=False)
    return found


@pytest.fixture(scope="session")
def sls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    """A local log service; tests keep apart by logstores of their own."""
    with LocalSls(tmp_path_factory.mktemp("sls")) as running:
        yield running


@pytest.fixture
def hourly(pipelines: Path, ledger_connection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committing:
    """The pipeline with partitions by the hour, which are complete five minutes later; in the Airflow `here`."""
    from airflow_provider_slshudi import settings
    from airflow_provider_slshudi.hooks.ledger import LedgerHook

    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", "here")
    write_hourly(pipelines / "ad_events.yaml", tmp_path / "lake" / "ad_events")
    return Committing(LedgerHook().ledger(), settings.pipeline("ad_events"))
