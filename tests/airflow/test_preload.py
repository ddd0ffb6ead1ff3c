"""What all tasks import is imported by the scheduler from which they are forked, and by no other process of Airflow."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.argv = ["airflow", *sys.argv[1:]]
from airflow.listeners.listener import get_listener_manager
get_listener_manager().hook.on_starting(component=None)
print(len({"pyarrow", "fastavro", "airflow_provider_slshudi.protocol.settle"} & {*sys.modules}))
"""


@pytest.mark.parametrize(("command", "found"), [("scheduler", 3), ("dag-processor", 0), ("triggerer", 0)])
def test_the_scheduler_imports_what_tasks_import_and_nobody_else_does(command: str, found: int) -> None:
    said = subprocess.check_output([sys.executable, "-c", CODE, command], text=True).splitlines()[-1]
    assert int(said) == found
