"""spark-submit under Airflow: the master of a connection of type `spark`, output into the task's log."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_slshudi.exceptions import ConfigError, JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.messages import FILE, Job
from airflow_provider_slshudi.hooks.connections import find_connection, require_used
from airflow_provider_slshudi.sls.connection import connections_of
from airflow_provider_slshudi.sls.credential_server import CredentialServer
from airflow_provider_slshudi.spark.driver_endpoint import HOST, DriverEndpoint
from airflow_provider_slshudi.spark.keyserver import PORT
from airflow_provider_slshudi.spark.launch import APPLICATION, Submission, SubprocessLauncher, job_name, submission
from airflow_provider_slshudi.spark.session import DriverSession, offered
from airflow_provider_slshudi.system.processes import ends_with_parent, for_children

FIELDS = ("host", "port")
EXTRAS = ("deploy-mode", "queue", "spark-binary", "namespace", "principal", "keytab")
"""All but the first are SparkSubmitHook's own."""
_log = logging.getLogger(__name__)
_GLANCE_SECONDS = 1.0
_KILL_SECONDS = 20.0
_MANAGER_SECONDS = 600.0
"""How long a cluster's manager may take to tell of the end of a driver that has told of it."""


class SparkLauncher:
    """Runs distributed verbs by `SparkSubmitHook` under the connection's master; runs the others, which take seconds,
    on this machine, and small batches of a local master in a process that stays.

    In client mode the driver is a child of this process, with each master. Secrets reach it with its job, since
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
        master, cluster = self._target()
        if cluster and self._has_keys:
            raise ConfigError(
                f"connection {self._conn_id!r}: a driver in cluster mode gets no keys of a `storage_conn_id`: use "
                "deploy-mode client, or leave that argument out and give the cluster's machines the keys",
                source=self._conn_id,
                field="storage_conn_id",
            )
        session = DriverSession(job_name(verb, order), verb, _log.info, self._show)
        if cluster:
            return self._submit_afar(verb, order, master, secrets, session)
        job = Job(verb, order, dict(secrets))
        if self._control.by_resident(job, master, session):
            return session.require_done()
        with offered(job, session) as task:
            submitted = submission(verb, order, master)
            hook = _Hook(session, conn_id=self._conn_id, deploy_mode="client", **_arguments(submitted, str(task)))
            code = self._run(hook, submitted.environment)
        return session.require_done(code)

    def kill(self) -> None:
        """Ends the running driver, if there is one."""
        self._control.kill()
        if self._hook is not None:
            self._hook.on_kill()

    def _submit_afar(
        self, verb: Verb, order: JobOrder, master: str, secrets: Mapping[str, str], session: DriverSession
    ) -> float | None:
        """In cluster mode: this process gives the work and tells the secrets; no variable of it goes with the job."""
        submitted = submission(verb, order, master, cluster=True)
        credential_server = CredentialServer(connections_of(secrets)) if secrets else None
        if credential_server is not None:
            try:
                credential_server.first()
            except OSError as error:
                raise JobFailed(f"{submitted.name}: {error}", verb=verb.value, error="SourceUnavailable") from error
        endpoint = DriverEndpoint(Job(verb, order), credential_server, submitted.conf)
        with closing(endpoint), endpoint.file() as file:
            # Spark takes `--files` in the place of the setting.
            files = ",".join(filter(None, [submitted.conf.pop("spark.files", ""), str(file)]))
            arguments = _arguments(submitted, FILE)
            hook = _Hook(session, endpoint, conn_id=self._conn_id, deploy_mode="cluster", files=files, **arguments)
            code = self._run(hook, submitted.environment)
        return session.require_done(code)

    def _run(self, hook: _Hook, variables: Mapping[str, str]) -> int | None:
        """Runs spark-submit to its end; returns its code or, on Kubernetes, the driver's; None: not known."""
        self._hook = hook
        try:
            # Not `env_vars`, which become --conf on YARN and Kubernetes. Popen searches PATH in this environment.
            hook.submit(
                APPLICATION,
                stdin=subprocess.DEVNULL,
                env={**for_children(os.environ), **variables},
                errors="replace",
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )
        except AirflowException as error:
            # On Kubernetes spark-submit succeeds, and the driver's own code comes after its.
            codes = [int(code) for code in re.findall(r"code is: (-?\d+)", str(error))]
            if hook.session.done:
                # The driver knows it, also where its manager's client failed.
                _log.warning("the driver has said that its work is done, and spark-submit failed after it: %s", error)
            return next(filter(None, codes), None)
        except BaseException:
            # The task's time may be over.
            hook.on_kill()
            raise
        finally:
            self._hook = None
        return 0

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


def _arguments(submitted: Submission, argument: str) -> dict[str, Any]:
    return {"conf": submitted.conf, "name": submitted.name, "application_args": [argument]}


class _Hook(SparkSubmitHook):
    """Tells the session the lines of the log, which SparkSubmitHook's exception leaves out.

    Args:
        session: of the driver that it starts.
        endpoint: where a driver in cluster mode reports; the log gets its lines, too.
    """

    def __init__(self, session: DriverSession, endpoint: DriverEndpoint | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.session, self._endpoint = session, endpoint

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
            for message in endpoint.drain_reports():
                # Not by Airflow's hook, which looks for the manager's own words.
                self.session.hear(message)
            if line is not None and (why := endpoint.lost()):
                self.session.lose(why)
                self.on_kill()
                raise AirflowException(why)
            if endpoint.ended_for() > _MANAGER_SECONDS:
                self.on_kill()
                raise AirflowException(f"spark-submit has not ended {_MANAGER_SECONDS:.0f} s after the driver")
        said = f"The last that spark-submit said: {self.session.likely}"
        if why := endpoint.refused():
            self.session.lose(f"a driver asked for its work and was refused: {why}")
        elif place := endpoint.unasked():
            self.session.lose(
                f"no driver asked this task at {place} for its work. Either none had begun as spark-submit "
                f"ended, or the cluster's machines do not reach that place: set {HOST} and {PORT} in the pipeline's "
                f"spark.conf. {said}"
            )
        elif why := endpoint.lost():
            self.session.lose(f"{why}. {said}")

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        def remembered() -> Iterator[Any]:
            for line in itr if self._endpoint is None else self._beside(itr, self._endpoint):
                # Beside the pod's name; Airflow's hook deletes it in a namespace that a setting names.
                if self._is_kubernetes and (match := re.fullmatch(r"\s*namespace: (\S+)\s*", str(line))):
                    self._connection["namespace"] = match[1]
                self.session.remember(str(line).rstrip())
                yield line

        super()._process_spark_submit_log(remembered())
