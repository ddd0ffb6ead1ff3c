"""What all tasks import is imported by the scheduler from which they are forked, and by no other process of Airflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
sys.argv = ["airflow", *sys.argv[1:]]
from airflow.listeners.listener import get_listener_manager
class Job: "As a process of Airflow is when it calls."
class TaskRunnerMarker: "As a task is."
get_listener_manager().hook.on_starting(component=TaskRunnerMarker() if sys.argv[2:] else Job())
print(len({"pyarrow", "fastavro", "airflow_provider_slshudi.transaction.settle"} & {*sys.modules}))
"""


def imported(*command: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", CODE, *command], text=True).splitlines()[-1])


@pytest.mark.long
def test_the_scheduler_imports_what_tasks_import_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert imported("scheduler") == 3
    assert imported("dag-processor") == imported("triggerer") == imported("scheduler", "task") == 0
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    assert imported("scheduler") == 0


def test_a_scheduler_that_cannot_import_them_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "fastavro.py").write_text("raise ImportError('of another Python')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert imported("scheduler") == 0
