"""An Airflow of several schedulers and Celery workers, over a database and a broker that may be gone for a while."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow_provider_slshudi.cli.demo.airflow_process import COMPONENTS
from airflow_provider_slshudi.exceptions import RuntimeMissing
from tests.airflows import SupervisedAirflow

SCHEDULERS, WORKERS, TASKS_A_WORKER = 2, 2, 4


class CeleryAirflow(SupervisedAirflow):
    """Two schedulers, two Celery workers, and one of each other component.

    Args:
        directory: AIRFLOW_HOME.
        dags_folder: the folder of the DAG files.
        database: the URL of an empty PostgreSQL database.
        broker: the URL of a Redis.
        environment: more variables.
    """

    def __init__(
        self, directory: Path, dags_folder: Path, database: str, broker: str, environment: Mapping[str, str]
    ) -> None:
        settings = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database,
            "AIRFLOW__CELERY__BROKER_URL": broker,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(TASKS_A_WORKER),
            # A message of a worker that died is lost: such a task is queued again within a minute or two.
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "10",
        }
        super().__init__(directory, dags_folder, {**settings, **environment})
        del self._commands["scheduler"]
        for number in range(SCHEDULERS):
            self._commands[f"scheduler {number}"] = COMPONENTS["scheduler"]
        for number in range(WORKERS):
            name = f"celery-worker-{number}"
            options = ["--skip-serve-logs", "--without-mingle", "--without-gossip", "--celery-hostname", f"{name}@%h"]
            pid = str(directory.absolute() / f"{name}.pid")
            self._commands[f"celery worker {number}"] = ["celery", "worker", *options, "--pid", pid]

    def _make_database(self) -> None:
        migrated = self._run("db-migrate", ["db", "migrate"])
        if migrated.wait():
            raise RuntimeMissing(f"Airflow's database could not be made: {self._last_words('db-migrate')}")
