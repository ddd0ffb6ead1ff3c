"""An Airflow whose components die and are started anew."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_slshudi.cli.demo.airflow_process import LocalAirflow
from airflow_provider_slshudi.exceptions import RuntimeMissing
from tests.machine import arguments_of

IDLE = "<idle>"
"""What a worker of LocalExecutor calls itself that waits for work."""


class SupervisedAirflow(LocalAirflow):
    """A LocalAirflow with the supervisor that a host would have.

    Its scheduler looks twice a second, not ten times: a look takes 15 ms of CPU, which others are waiting for. Its
    `database` is the URL of an empty one of PostgreSQL, or SQLite's where there is none.
    """

    _orphans: frozenset[psutil.Process] = frozenset()

    def __init__(
        self,
        directory: Path,
        dags_folder: Path,
        environment: Mapping[str, str] | None = None,
        port: int = 0,
        triggerer: bool = False,
        database: str = "",
    ) -> None:
        calm = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5"}
        names = ("SQL_ALCHEMY_CONN", "SQL_ALCHEMY_CONN_ASYNC") if database else ()
        calm |= {f"AIRFLOW__DATABASE__{name}": database for name in names}
        super().__init__(directory, dags_folder, {**calm, **(environment or {})}, port, triggerer)
        self._database = database

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each component: `scheduler`, `dag-processor`, `api-server`."""
        return {name: child.pid for name, child in self._children.items()}

    def revive(self) -> list[str]:
        """Starts each component anew that has ended; gives their names.

        What the ended one had started goes on without it, as it does under a supervisor of single processes.
        """
        ended = [name for name, child in self._children.items() if child.poll() is not None]
        for name in ended:
            self._orphans = self._orphans | _of_session(self._children[name].pid)
            self._children[name] = self._run(name, self._commands[name])
        return ended

    def end_idle_orphans(self) -> None:
        """Ends workers that wait for work of a scheduler that is gone: they never end, and each keeps 90 MB."""
        for orphan in self._orphans:
            if IDLE in " ".join(arguments_of(orphan)):
                with suppress(psutil.NoSuchProcess):
                    orphan.kill()
        self._orphans = frozenset(orphan for orphan in self._orphans if orphan.is_running())

    def stop(self) -> None:
        """Ends what ended components had started, too."""
        super().stop()
        orphans, self._orphans = self._orphans, frozenset()
        self._end(set(orphans))

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The DAG's runs, oldest first."""
        runs: list[dict[str, Any]] = self.get(f"dags/{dag_id}/dagRuns", order_by="run_after", limit=100)["dag_runs"]
        return runs

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The text of a task's log, all tries."""
        folder = self.directory / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        return "".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.log")))

    def _make_database(self) -> None:
        if not self._database:
            super()._make_database()
        elif self._run("db-migrate", ["db", "migrate"]).wait():
            raise RuntimeMissing(f"Airflow's database could not be made: {self._last_words('db-migrate')}")


def _of_session(leader: int) -> set[psutil.Process]:
    """The processes of a component that has ended; each component leads a session of its own."""
    found = set()
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader:
                found.add(process)
    return found
