"""Drivers and resident processes get nothing of Airflow's environment: its keys, connections and database's URL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.launch import Launcher, SubprocessLauncher
from tests.machine import connection
from tests.pipelines import ad_events
from tests.residents import apart

SECRET = "only-for-airflow"
OF_AIRFLOW = (
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW_CONN_SLSHUDI_LEDGER",
    "_AIRFLOW_WWW_USER_PASSWORD",
    "CELERY_BROKER_URL",
    "PGPASSWORD",
    "MYSQL_PWD",
)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The environment of a spark-submit that tells it and ends."""
    home, file = tmp_path / "spark", tmp_path / "told"
    shutil.copytree(packages.spark_home(), home, copy_function=os.symlink)
    submit = home / "bin" / "spark-submit"
    submit.unlink()
    submit.write_text(f"#!/bin/sh\nenv > {file}\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection("spark", host="local[1]"))
    for name in OF_AIRFLOW:
        monkeypatch.setenv(name, SECRET)
    with apart():
        yield file


@pytest.mark.parametrize(
    ("launcher", "verb"),
    [
        (SubprocessLauncher(), Verb.OPEN),
        (SubprocessLauncher(resident=True), Verb.OPEN),
        (SparkLauncher("spark_default"), Verb.APPEND),
    ],
    ids=["driver", "resident", "hook"],
)
def test_what_is_airflows_own_stays_with_airflow(told: Path, tmp_path: Path, launcher: Launcher, verb: Verb) -> None:
    order = JobOrder(ad_events(tmp_path / "table").model_dump(mode="json"), "t-1", 1, "20260101000000000")
    with suppress(JobFailed):
        launcher.run(verb, order, {"SLSHUDI_SLS_ENDPOINT": "http://127.0.0.1:1"})
    environment = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    assert "SPARK_HOME" in environment and "PATH" in environment
    assert not [name for name, value in environment.items() if "AIRFLOW" in name or value == SECRET]
