"""An Airflow of a test's own without a scheduler: its DAGs run by `dag.test()`, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RUN = """
import json, runpy, sys
file, conf = sys.argv[1:]
run = runpy.run_path(file)["dag"].test(run_conf=json.loads(conf))
print("states:", json.dumps({item.task_id: str(item.state) for item in run.get_task_instances()}))
"""


class TestedDags:
    """DAGs of a folder, and Airflow's database for them.

    Args:
        home: Airflow's folder.
        dags: the folder of the DAGs.
        variables: of the environment, beside this process's own ones that are not Airflow's nor Python's.
    """

    def __init__(self, home: Path, dags: Path, variables: Mapping[str, str]) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        self._dags, self._environment = dags, own | settings | dict(variables)
        self._run(str(Path(sys.executable).with_name("airflow")), "db", "migrate")

    def run(self, file: str, conf: Mapping[str, Any] | None = None) -> tuple[dict[str, str], str]:
        """Runs the DAG of a file; gives the states of its tasks, and what they printed."""
        output = self._run(sys.executable, "-c", _RUN, str(self._dags / file), json.dumps(conf or {}))
        (line,) = [line for line in output.splitlines() if line.startswith("states:")]
        return json.loads(line.removeprefix("states:")), output

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self._dags,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout
