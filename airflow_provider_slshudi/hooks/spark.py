"""spark-submit under Airflow: the master of a connection of type `spark`, output into the task's log."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import IO, Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from airflow_provider_slshudi.exceptions import ConfigError, JobFailed
from airflow_provider_slshudi.handover.job_order import CPU, PAGE, REASON, JobOrder, Verb, cpu_told
from airflow_provider_slshudi.hooks.connections import find_connection, require_used
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.spark.driver_endpoint import HOST, DriverEndpoint
from airflow_provider_slshudi.spark.keyserver import PORT
from airflow_provider_slshudi.spark.launch import (
    APPLICATION,
    TAIL_LINES,
    Submission,
    SubprocessLauncher,
    job_failed,
    likely,
    submission,
)
from airflow_provider_slshudi.system.processes import ends_with_parent, for_children

FIELDS = ("host", "port")
EXTRAS = ("deploy-mode", "queue", "spark-binary", "namespace", "principal", "keytab")
"""All but the first are SparkSubmitHook's own."""
_log = logging.getLogger(__name__)
_GLANCE_SECONDS = 1.0
_KILL_SECONDS = 20.0
_MANAGER_SECONDS = 600.0
"""How long a cluster's manager may take to tell of the end of a driver that has told of it."""
_UNTOLD = f"{REASON}spark-submit has ended well, but the driver has not said here that its work is done"


class SparkLauncher:
    """Runs distributed verbs by `SparkSubmitHook` under the connection's master; runs the others, which take seconds,
    on this machine, and small batches of a local master in a process that stays.

    In client mode the driver is a child of this process, with each master. It gets secrets in its environment only:
    process lists and Spark's web pages show arguments and configuration. A driver ends with the process that started
    it, if the system can do that (Linux); a task's job in a resident process ends with the task's process too. In
    cluster mode the driver runs on the cluster, and `spark.driver_endpoint` is its tie to this process.

    Args:
        conn_id: the connection.
        show: takes the address of a driver's web page, while a driver runs that has one.
        has_keys: whether a connection gave this process an object store's keys, which go to no driver elsewhere.
    """

    def __init__(self, conn_id: str, show: Callable[[str], None] | None = None, has_keys: bool = False) -> None:
        self._conn_id, self._has_keys = conn_id, has_keys
        self._show = show or (lambda page: None)
        self._hook: _Hook | None = None
        self._control = SubprocessLauncher(say=_log.info, resident=True)

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        """Runs the job and waits for it; returns as `spark.launch.Launcher.run`.

        Raises:
            JobFailed: the job failed; the message says why.
            ConfigError: the connection cannot be used.
        """
        if not verb.is_distributed:
            return self._control.run(verb, order, secrets)
        (master, cluster), tail = self._target(), deque[str](maxlen=TAIL_LINES)
        if cluster and self._has_keys:
            raise ConfigError(
                f"connection {self._conn_id!r}: a driver in cluster mode gets no keys of a `storage_conn_id`: use "
                "deploy-mode client, or leave that argument out and give the cluster's machines the keys",
                source=self._conn_id,
                field="storage_conn_id",
            )
        if cluster:
            return self._submit_afar(verb, order, master, secrets)
        if self._control.by_resident(verb, order, master, secrets, tail):
            return cpu_told(tail)
        return self._submit(verb, order, master, secrets)

    def kill(self) -> None:
        """Ends the running driver, if there is one."""
        self._control.kill()
        if self._hook is not None:
            self._hook.on_kill()

    def _submit(self, verb: Verb, order: JobOrder, master: str, secrets: Mapping[str, str]) -> float | None:
        job = submission(verb, order, master)
        hook = _Hook(self._show, conn_id=self._conn_id, deploy_mode="client", **_of(job))
        with order.as_input() as order_input:
            self._run(hook, job, verb, {**for_children(os.environ), **job.environment, **secrets}, order_input)
        return cpu_told(hook.last_lines())

    def _submit_afar(self, verb: Verb, order: JobOrder, master: str, secrets: Mapping[str, str]) -> float | None:
        """In cluster mode: this process gives the order and the secrets, and no variable of it goes with the job."""
        job = submission(verb, order, master, cluster=True)
        credential_server = CredentialServer(SlsConnection.from_env(secrets)) if secrets else None
        if credential_server is not None:
            try:
                credential_server.first()
            except OSError as error:
                raise JobFailed(f"{job.name}: {error}", verb=verb.value, error="SourceUnavailable") from error
        with closing(DriverEndpoint(order, credential_server, job.conf)) as endpoint, endpoint.file() as file:
            # Spark takes `--files` in the place of the setting.
            files = ",".join(filter(None, [job.conf.pop("spark.files", ""), str(file)]))
            hook = _Hook(self._show, endpoint, conn_id=self._conn_id, deploy_mode="cluster", files=files, **_of(job))
            try:
                self._run(hook, job, verb, for_children(os.environ) | job.environment, subprocess.DEVNULL)
            except JobFailed as error:
                # The driver knows it, also where its manager's client failed.
                if not endpoint.done:
                    raise
                _log.warning("the driver has said that its work is done, and spark-submit failed after it: %s", error)
            lines = hook.last_lines()
            if not endpoint.done:
                reasons = [line for line in lines if line.startswith(REASON)]
                raise job_failed(job.name, verb, None, [*lines, *(() if reasons else [_UNTOLD])])
            return cpu_told(lines)

    def _run(
        self, hook: _Hook, made: Submission, verb: Verb, variables: dict[str, str], given: IO[bytes] | int
    ) -> None:
        self._hook = hook
        try:
            # Not `env_vars`, which become --conf on YARN and Kubernetes. Popen searches PATH in this environment.
            hook.submit(
                APPLICATION,
                stdin=given,
                env=variables,
                errors="replace",
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )
        except AirflowException as error:
            # On Kubernetes spark-submit succeeds, and the driver's own code comes after its.
            codes = [int(code) for code in re.findall(r"code is: (-?\d+)", str(error))]
            code = next(filter(None, codes), None)
            raise job_failed(made.name, verb, code, hook.last_lines()) from None
        except BaseException:
            # The task's time may be over.
            hook.on_kill()
            raise
        finally:
            self._hook = None

    def master(self) -> str:
        """The master as SparkSubmitHook reads it; settings depend on it, and are made before the hook runs.

        Raises:
            ConnectionMissing: Airflow gives no such connection.
            ConfigError: the connection is of another type, asks for cluster mode where Spark has none for Python, or
                for Kubernetes without its client.
        """
        return self._target()[0]

    def _target(self) -> tuple[str, bool]:
        """The master, and whether drivers run in cluster mode."""
        connection = find_connection(self._conn_id, "spark")
        require_used(connection, FIELDS, EXTRAS)
        host = connection.host or ""
        master = host if "://" in host or not connection.port else f"spark://{host}"
        master = f"{master}:{connection.port}" if connection.port else master
        if not host:
            message = (
                f"connection {self._conn_id!r}: its host is empty, and names Spark's master: local[*] or yarn, say"
            )
            raise ConfigError(message, source=self._conn_id, field="host")
        mode = connection.extra_dejson.get("deploy-mode") or "client"
        if mode not in ("client", "cluster"):
            message = f"connection {self._conn_id!r}: extra deploy-mode is client or cluster"
            raise ConfigError(message, source=self._conn_id, field="extra deploy-mode")
        cluster = mode == "cluster"
        if cluster and master != "yarn" and not master.startswith("k8s://"):
            raise ConfigError(
                f"connection {self._conn_id!r}: Spark has no deploy-mode cluster for Python under {master}, only on "
                "YARN and Kubernetes; use client",
                source=self._conn_id,
                field="deploy-mode",
                value="cluster",
            )
        if master.startswith("k8s://") and getattr(spark_submit, "kube_client", None) is None:
            raise ConfigError(
                f"connection {self._conn_id!r}: {master} needs apache-airflow-providers-cncf-kubernetes where "
                "Airflow's tasks run, with which the Spark provider deletes pods",
                source=self._conn_id,
                field="host",
                value=master,
            )
        return master, cluster


def _of(made: Submission) -> dict[str, Any]:
    return {"conf": made.conf, "name": made.name, "application_args": made.arguments}


class _Hook(SparkSubmitHook):
    """Remembers the last lines of the log, which SparkSubmitHook's exception leaves out; shows the driver's page.

    Args:
        endpoint: where a driver in cluster mode reports; the log gets its lines, too.
    """

    def __init__(self, show: Callable[[str], None], endpoint: DriverEndpoint | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._show, self._endpoint = show, endpoint
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._kept: dict[str, str] = {}

    def last_lines(self) -> list[str]:
        """The last lines of the log, and what a driver told of its reason and CPU, also before later lines."""
        return [*self._tail, *(line for line in self._kept.values() if line not in self._tail)]

    def on_kill(self) -> None:
        """Ends spark-submit; a driver in cluster mode ends itself, or by its manager's own means, if they are here."""
        if self._endpoint is not None:
            self._endpoint.close()
        ending = threading.Thread(target=self._end, daemon=True)
        ending.start()
        ending.join(_KILL_SECONDS)

    def _end(self) -> None:
        try:
            super().on_kill()
        except Exception as error:
            _log.info("the driver's manager was not asked to end it (%s); it ends itself", error)

    def _hear(self, line: str) -> bool:
        """Remembers a line; whether it belongs into the log: a driver's reason becomes the error's text."""
        self._tail.append(line)
        for prefix in (REASON, CPU):
            if line.startswith(prefix):
                self._kept[prefix] = line
        # A driver has one page and tells it first; a later line may be a text of the log service.
        if line.startswith(PAGE) and PAGE not in self._kept:
            self._kept[PAGE] = line
            self._show(line.removeprefix(PAGE).strip())
        return not line.startswith(REASON)

    def _read(self, itr: Iterator[Any], told: SimpleQueue[str | None]) -> None:
        try:
            for line in itr:
                told.put(str(line))
        except Exception:
            # This process reads no more, and it would wait for that.
            self.on_kill()
            raise
        finally:
            told.put(None)

    def _beside(self, itr: Iterator[Any], endpoint: DriverEndpoint) -> Iterator[str]:
        """The lines of spark-submit; meanwhile, and as long as it works after that, logs the driver's.

        Raises AirflowException: the driver is lost.
        """
        line_queue = SimpleQueue[str | None]()
        threading.Thread(target=self._read, args=(itr, line_queue), name="slshudi-submit", daemon=True).start()
        line: str | None = ""
        goes_on = True
        while goes_on:
            with suppress(Empty):
                line = line_queue.get(timeout=_GLANCE_SECONDS)
                if line is not None:
                    yield line
                elif endpoint.works():
                    _log.warning("spark-submit has ended, and its driver works on: the task waits for the driver")
            # A manager that does not answer ends spark-submit, and not the driver.
            goes_on = line is not None or endpoint.works()
            for of_driver in endpoint.drain_reports():
                if self._hear(of_driver):
                    # Not by Airflow's hook, which looks for the manager's own words.
                    _log.info("%s", of_driver)
            if line is not None and (why := endpoint.lost()):
                self._hear(f"{REASON}{why}")
                self.on_kill()
                raise AirflowException(why)
            if endpoint.ended_for() > _MANAGER_SECONDS:
                self.on_kill()
                raise AirflowException(f"spark-submit has not ended {_MANAGER_SECONDS:.0f} s after the driver")
        said = f"The last that spark-submit said: {likely(self._tail)}"
        if place := endpoint.unasked():
            self._hear(
                f"{REASON}no driver asked this task at {place} for its work. Either none had begun as spark-submit "
                f"ended, or the cluster's machines do not reach that place: set {HOST} and {PORT} in the pipeline's "
                f"spark.conf. {said}"
            )
        elif why := endpoint.lost():
            self._hear(f"{REASON}{why}. {said}")

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        def remembered() -> Iterator[Any]:
            for line in itr if self._endpoint is None else self._beside(itr, self._endpoint):
                # Beside the pod's name; Airflow's hook deletes it in a namespace that a setting names.
                if self._is_kubernetes and (match := re.fullmatch(r"\s*namespace: (\S+)\s*", str(line))):
                    self._connection["namespace"] = match[1]
                if self._hear(str(line).rstrip()):
                    yield line

        super()._process_spark_submit_log(remembered())
