"""A whole Airflow on this machine, in one directory and on loopback only: for the demo, and for tests."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import psutil
import requests
from cryptography.fernet import Fernet

from airflow_provider_slshudi.exceptions import RuntimeMissing, SlsHudiError, TransientError
from airflow_provider_slshudi.spark.packages import cache_dir, staging
from airflow_provider_slshudi.system.processes import ends_with_parent

HOST = "127.0.0.1"
_PORTS = range(26_000, 32_000)
COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
"""The arguments of `airflow` that start each."""
_HEALTH = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
_START_SECONDS = 180.0
_STOP_SECONDS = 15.0
_BUSY_SECONDS = 20.0
_ANSWER_SECONDS = 180.0
_OVER = ("success", "failed")

Airflow = TypeVar("Airflow", bound="LocalAirflow")


class LocalAirflow:
    """Scheduler, DAG processor and API server over `directory`; use it in a `with`, or call `start` and `stop`.

    There is no login: all who reach the port on this machine may do everything. Components end with the thread that
    started them, even one that is killed (Linux).

    Args:
        directory: AIRFLOW_HOME; an Airflow that is in it goes on.
        dags_folder: the folder of the DAG files.
        environment: more variables, connections for example (AIRFLOW_CONN_*).
        port: the port of the API server and the pages; 0 takes a free one.
        triggerer: whether there is one; the DAGs of this package need it only for tasks that are `deferrable`.
    """

    _python = sys.executable

    def __init__(
        self,
        directory: Path,
        dags_folder: Path,
        environment: Mapping[str, str] | None = None,
        port: int = 0,
        triggerer: bool = False,
    ) -> None:
        self.directory, self.port = directory.absolute(), port or free_port()
        self.environment = {
            **os.environ,
            **_settings(self.directory, dags_folder.absolute(), self.port),
            **(environment or {}),
        }
        self._commands = {name: words for name, words in COMPONENTS.items() if triggerer or name != "triggerer"}
        self._children: dict[str, psutil.Popen] = {}
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy to loopback

    @property
    def url(self) -> str:
        """The address of the pages."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self: Airflow) -> Airflow:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all and waits until they say that they are well.

        Raises:
            RuntimeMissing: one of them ended, with its last words, or did not become well in time.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._make_key()
        self._make_database()
        for name, command in self._commands.items():
            self._children[name] = self._run(name, command)
        deadline = time.monotonic() + _START_SECONDS
        while not self._healthy():
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise RuntimeMissing(f"Airflow's {name} ended: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise RuntimeMissing(f"Airflow is not well after {_START_SECONDS:.0f} s; see {self.directory}/*.log")
            time.sleep(0.3)
        token = self._session.get(f"{self.url}/auth/token", timeout=10).json()["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def stop(self) -> None:
        """Ends all components and everything that they started, Spark included; stopping twice is harmless."""
        children, self._children = self._children, {}
        self._end(set(children.values()))

    def _end(self, roots: set[psutil.Process]) -> None:
        tree = {process for root in roots for process in _tree(root)}
        for process in tree:
            _signal(process, psutil.Process.terminate)
        _, alive = psutil.wait_procs(tree, timeout=_STOP_SECONDS)
        # Processes that started while the tree was ending.
        late = {process for parent in alive for process in _tree(parent)}
        for process in {*alive, *late}:
            _signal(process, psutil.Process.kill)
        psutil.wait_procs({*alive, *late}, timeout=_STOP_SECONDS)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON answer of GET /api/v2/`path`; raises AirflowRefused, as the other calls do."""
        return self._call("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer of a POST."""
        return self._call("POST", path, json=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer of a PATCH."""
        return self._call("PATCH", path, json=body)

    def wait_for_dag(self, dag_id: str, seconds: float = 60) -> None:
        """Waits until the DAG processor has made the DAG known.

        Raises:
            AirflowRefused: the DAG is not known in time; with the import errors.
        """
        deadline = time.monotonic() + seconds
        while dag_id not in {dag["dag_id"] for dag in self.get("dags", limit=1000)["dags"]}:
            if time.monotonic() > deadline:
                errors = [error["stack_trace"] for error in self.get("importErrors")["import_errors"]]
                raise AirflowRefused(f"DAG {dag_id} is not known after {seconds:.0f} s: {errors or 'no import errors'}")
            time.sleep(0.3)

    def pause(self, dag_id: str, paused: bool) -> None:
        """Pauses a DAG or lets it run."""
        self.patch(f"dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> str:
        """Starts a run; returns its id."""
        body: dict[str, Any] = {"logical_date": None, "conf": conf or {}}
        if run_id:
            body["dag_run_id"] = run_id
        return str(self.post(f"dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run."""
        instances = self.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in instances}

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 300) -> str:
        """Waits until a run is over; returns `success` or `failed`.

        Raises:
            AirflowRefused: the run is not over in time.
        """
        deadline = time.monotonic() + seconds
        while (state := str(self.get(f"dags/{dag_id}/dagRuns/{run_id}")["state"])) not in _OVER:
            if time.monotonic() > deadline:
                raise AirflowRefused(
                    f"{dag_id}/{run_id} is {state} after {seconds:.0f} s: {self.tasks(dag_id, run_id)}"
                )
            time.sleep(0.3)
        return state

    def _make_key(self) -> None:
        """Makes the configuration with the key of connections and triggers.

        Where there is none, each component makes one when it starts, and may read another's when half of it is there:
        then one encrypts what another cannot read.
        """
        config = self.directory / "airflow.cfg"
        if not config.exists():
            config.touch(mode=0o600)
            config.write_text(f"[core]\nfernet_key = {Fernet.generate_key().decode()}\n", encoding="utf-8")

    def _make_database(self) -> None:
        """Copies the empty database of this Airflow version, made once: migrating a new one takes ten seconds."""
        database = self.directory / "airflow.db"
        if database.exists():
            return
        with staging("airflow") as work:
            template = cache_dir() / f"airflow-{version('apache-airflow')}.db"
            if not template.is_file():
                migrated = self._run("db-migrate", ["db", "migrate"])
                if migrated.wait():
                    raise RuntimeMissing(f"Airflow's database could not be made: {self._last_words('db-migrate')}")
                shutil.copy(database, work / template.name)
                (work / template.name).rename(template)
                return
        shutil.copy(template, database)

    def _call(self, method: str, path: str, **request: Any) -> Any:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                answer = self._session.request(method, f"{self.url}/api/v2/{path}", timeout=_ANSWER_SECONDS, **request)
            except requests.RequestException as error:
                raise AirflowUnreachable(f"Airflow at {self.url} does not answer: {error}") from error
            # Its SQLite may be locked on a busy machine; these requests may be sent twice.
            if answer.status_code != 500 or method == "POST" or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if not answer.ok:
            raise AirflowRefused(f"Airflow refused {method} {path} ({answer.status_code}): {answer.text}")
        return answer.json()

    def _healthy(self) -> bool:
        try:
            health = self.get("monitor/health")
        except (AirflowUnreachable, AirflowRefused):
            return False
        watched = (_HEALTH[name] for name in self._commands if name in _HEALTH)
        return all(health[part]["status"] == "healthy" for part in watched)

    def _run(self, name: str, command: list[str]) -> psutil.Popen:
        with self._log(name).open("ab") as log:
            return psutil.Popen(
                [self._python, "-m", "airflow", *command],
                env=self.environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGTERM),
            )

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-20:])


class AirflowRefused(SlsHudiError):
    """Airflow refused a request, or did not do it in time."""


class AirflowUnreachable(TransientError):
    """Airflow did not answer."""


def _settings(directory: Path, dags_folder: Path, port: int) -> dict[str, str]:
    """Airflow's settings: few processes, and no pauses that a machine of one's own does not need."""
    return {
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{HOST}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # No resident process: so each batch has a driver to kill, and nothing stays when Airflow stops.
        "SLSHUDI_RESIDENT_SECONDS": "0",
        "NO_PROXY": HOST,
        "no_proxy": HOST,
    }


def free_port() -> int:
    """A port of this machine that is free, below those that connections get by themselves.

    Another's connection would take one of these while the server that asked for it starts.
    """
    while True:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, send: Any) -> None:
    with suppress(psutil.NoSuchProcess):
        send(process)
