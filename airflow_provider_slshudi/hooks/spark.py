"""spark-submit under Airflow: the master of a connection of type `spark`, output into the task's log."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hooks.lookup import find_connection
from airflow_provider_slshudi.notes.job import PAGE, REASON, JobOrder, Verb, cpu_told
from airflow_provider_slshudi.processes import ends_with_parent
from airflow_provider_slshudi.spark.launch import APPLICATION, TAIL_LINES, SubprocessLauncher, job_failed, submission

_log = logging.getLogger(__name__)


class SparkLauncher:
    """Runs distributed verbs by `SparkSubmitHook` under the connection's master, in client mode; runs the others, which
    take seconds, on this machine, and small batches of a local master in a process that stays.

    The driver is a child of this process, whatever the master. It gets secrets in its environment only: process lists
    and Spark's web pages show arguments and configuration. A driver ends with the process that started it, if the
    system can do that (Linux); a task's job in a resident process ends with the task's process too.

    Args:
        conn_id: the connection.
        show: takes the address of a driver's web page, while a driver runs that has one.
    """

    def __init__(self, conn_id: str, show: Callable[[str], None] | None = None) -> None:
        self._conn_id = conn_id
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
        master, tail = self.master(), deque[str](maxlen=TAIL_LINES)
        if self._control.by_resident(verb, order, master, secrets, tail):
            return cpu_told(tail)
        return self._submit(verb, order, master, secrets)

    def kill(self) -> None:
        """Ends the running driver, if there is one."""
        self._control.kill()
        if self._hook is not None:
            self._hook.on_kill()

    def _submit(self, verb: Verb, order: JobOrder, master: str, secrets: Mapping[str, str]) -> float | None:
        made = submission(verb, order, master)
        hook = self._hook = _Hook(
            self._show,
            conf=made.conf,
            conn_id=self._conn_id,
            name=made.name,
            application_args=made.arguments,
            deploy_mode="client",
        )
        try:
            # Not `env_vars`, which become --conf on YARN and Kubernetes. Popen searches PATH in this environment.
            with order.as_input() as given:
                hook.submit(
                    APPLICATION,
                    stdin=given,
                    env={**os.environ, **made.environment, **secrets},
                    start_new_session=True,
                    preexec_fn=ends_with_parent(signal.SIGKILL),
                )
        except AirflowException as error:
            code = re.search(r"Error code is: (-?\d+)", str(error))
            raise job_failed(made.name, verb, int(code[1]) if code else None, hook.tail) from None
        finally:
            self._hook = None
        return cpu_told(hook.tail)

    def master(self) -> str:
        """The master as SparkSubmitHook reads it; settings depend on it, and are made before the hook runs.

        Raises:
            ConnectionMissing: Airflow gives no such connection.
            ConfigError: the connection is of another type, or asks for cluster mode.
        """
        found = find_connection(self._conn_id, "spark")
        if found.extra_dejson.get("deploy-mode") == "cluster":
            raise ConfigError(
                f"connection {self._conn_id!r}: deploy-mode cluster would need the log service's secret on a command "
                "line; use client",
                source=self._conn_id,
                field="deploy-mode",
                value="cluster",
            )
        host = found.host or ""
        master = host if "://" in host or not found.port else f"spark://{host}"
        return f"{master}:{found.port}" if found.port else master


class _Hook(SparkSubmitHook):
    """Remembers the last lines of the log, which SparkSubmitHook's exception leaves out; shows the driver's page."""

    def __init__(self, show: Callable[[str], None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._show = show
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        def remembered() -> Iterator[Any]:
            for line in itr:
                self.tail.append(str(line).rstrip())
                if str(line).startswith(PAGE):
                    self._show(str(line).removeprefix(PAGE).strip())
                # The reason becomes the error's text.
                if not str(line).startswith(REASON):
                    yield line

        super()._process_spark_submit_log(remembered())
