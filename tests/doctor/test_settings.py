"""What Airflow's settings mean for pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.doctor import airflow_settings
from airflow_provider_slshudi.doctor.finding import Verdict

OK, WARNING, WRONG, UNKNOWN = Verdict
LOCAL = {"dags-folder": "airflow.dag_processing.bundles.local.LocalDagBundle"}
GIT = {"team": "airflow.providers.git.bundles.git.GitDagBundle"}


def test_a_machine_that_dies_holds_its_pipeline_for_a_time_that_is_told() -> None:
    assert airflow_settings.heartbeat(300).verdict is OK and "300 s" in airflow_settings.heartbeat(300).what
    assert airflow_settings.heartbeat(3600).verdict is WARNING


def test_fewer_tasks_than_pipelines_wait_for_one_another() -> None:
    assert airflow_settings.parallelism(32, 3).verdict is OK
    assert airflow_settings.parallelism(2, 3).verdict is WARNING


@pytest.mark.parametrize("value", ["Enabled", "Disabled", "Hidden"])
def test_the_test_button_is_a_matter_of_taste(value: str) -> None:
    assert airflow_settings.test_button(value).verdict is OK
    assert value in airflow_settings.test_button(value).what


@pytest.mark.parametrize(
    ("names", "sqlite", "verdict"),
    [
        (["LocalExecutor"], True, OK),
        (["CeleryExecutor"], False, OK),
        (["CeleryExecutor"], True, WRONG),
        (["LocalExecutor", "KubernetesExecutor"], True, WRONG),
        (["airflow.executors.local_executor.LocalExecutor"], True, OK),
    ],
)
def test_an_sqlite_ledger_serves_one_machine(names: list[str], sqlite: bool, verdict: Verdict) -> None:
    assert airflow_settings.executor(names, sqlite).verdict is verdict


def test_a_folder_of_dags_is_there_unless_bundles_bring_them(tmp_path: Path) -> None:
    assert airflow_settings.dags(tmp_path, LOCAL).verdict is OK
    assert airflow_settings.dags(tmp_path / "none", LOCAL).verdict is WRONG
    assert airflow_settings.dags(tmp_path / "none", GIT).verdict is OK


def test_a_pipelines_folder_has_pipelines(tmp_path: Path) -> None:
    assert airflow_settings.pipelines(tmp_path, ["clicks"]).verdict is OK
    assert airflow_settings.pipelines(tmp_path, []).verdict is WARNING
    assert airflow_settings.pipelines(tmp_path / "none", []).verdict is WRONG
    assert airflow_settings.pipelines(None, ["clicks"]).verdict is OK
    assert airflow_settings.pipelines(None, []).verdict is WARNING
