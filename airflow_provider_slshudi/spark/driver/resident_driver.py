"""The application of a resident process, see `spark.resident`: `SOCKET IDENTITY IDLE_SECONDS MASTER`.

It serves one request at a time. It ends after IDLE_SECONDS without a request that it accepted, after many requests,
after one that failed with an error that is not the package's own, or after an append that failed. While a request runs,
a thread watches its client and its deadline. If the client is gone or the deadline has passed, it kills the whole
process group, with the JVM and its job, so that no job goes on behind the back of the run that decides next.
"""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.messages import Accepted, Ask, Begun, Job, Refused
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.spark.driver.__main__ import control_context
from airflow_provider_slshudi.spark.driver.channel import Printed, SocketChannel, is_own
from airflow_provider_slshudi.spark.driver.daemon import without_pandas
from airflow_provider_slshudi.spark.driver.key_access import served
from airflow_provider_slshudi.spark.resident import HANDSHAKE_SECONDS, READY
from airflow_provider_slshudi.spark.runtime import leave
from airflow_provider_slshudi.spark.session import receive, same_user, send
from airflow_provider_slshudi.system.processes import clock

if TYPE_CHECKING:
    from pyspark import SparkContext

# Now and then a new JVM replaces the old one, with all that that one has gathered.
_REQUESTS = 1000
_GLANCE_SECONDS = 1.0


class Server:
    """Serves the requests of one identity."""

    def __init__(self, spark: SparkContext, identity: str) -> None:
        self._spark, self._gateway, self._identity = spark, Gateway.of(spark), identity
        self._jvm = os.getppid()
        self._taken = 0.0

    def serve(self, listener: socket.socket, idle: float) -> None:
        """Serves until it was idle for `idle` seconds, or should not go on."""
        listener.settimeout(_GLANCE_SECONDS)
        last, quota = time.monotonic(), _REQUESTS
        # Without its JVM, which started this interpreter, it can serve nothing: a client asks another process.
        while quota and time.monotonic() - last < idle and os.getppid() == self._jvm:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                if self._is_without_jvm():
                    # The client asks again at once: its socket has to be closed by then.
                    listener.close()
                    return
                fit = self._answer(connection)
            if fit is None:
                # A client that only looks whether the process stands still is no use of it.
                continue
            if not fit:
                return
            last, quota = time.monotonic(), quota - 1

    def _is_without_jvm(self) -> bool:
        """Whether the JVM has ended: one that was just killed stays our parent until its last thread is gone."""
        refused = threading.Event()

        def ask() -> None:
            try:
                self._gateway.jvm.System.nanoTime()
            except (OSError, Py4JError):
                refused.set()

        # One that stands still does not answer: the job's deadline ends it.
        (asking := threading.Thread(target=ask, daemon=True)).start()
        asking.join(_GLANCE_SECONDS)
        return refused.is_set()

    def _answer(self, connection: socket.socket) -> bool | None:
        """Serves one request; whether this process may go on, None if it accepted no request."""
        with connection.makefile("rb") as requests:
            accepted = self._accepted(connection, requests)
            if accepted is None:
                return None
            job, deadline = accepted
            over = threading.Event()
            threading.Thread(target=_watch, args=(connection.dup(), deadline, over), daemon=True).start()
            # A client that stands still holds its job up until the deadline, and no part of a line is left out.
            connection.settimeout(max(deadline - clock(), HANDSHAKE_SECONDS))
            channel = SocketChannel(connection, job)
            printed = Printed(channel)
            with redirect_stdout(printed), redirect_stderr(printed):
                error = channel.tell_end(lambda: self._done(job, deadline))
            if error is not None and job.verb is Verb.APPEND:
                # Spark lets the other tasks of a failed job go on, and what they write would come after a rollback.
                os.killpg(os.getpgrp(), signal.SIGKILL)
            over.set()
            # The watcher's copy of the connection would keep it open for a moment.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            # A client that does not know how its job ended may end this process when it wakes.
            return channel.whole and (error is None or is_own(error))

    def _accepted(self, connection: socket.socket, requests: io.IOBase) -> tuple[Job, float] | None:
        """What a client wants done, and until when, once it knows that this process waits for it."""
        connection.settimeout(HANDSHAKE_SECONDS)
        try:
            ask = receive(requests)
            if not isinstance(ask, Ask) or not same_user(connection) or ask.identity != self._identity:
                send(connection, Refused("it serves another user, version or environment"))
                return None
            send(connection, Accepted(os.getpid(), os.getpgrp()))
            job = receive(requests)
            if not isinstance(job, Job):
                return None
            send(connection, Begun())
            return job, ask.deadline
        except (OSError, ValueError):
            return None

    def _done(self, job: Job, deadline: float) -> float | None:
        """Does the work; returns the CPU seconds since the work before it: the first pays for the start."""
        if clock() >= deadline:
            raise TimeoutError(f"the deadline of the {job.verb.value} has passed, and it has changed nothing")
        before = self._taken
        try:
            if job.verb is Verb.APPEND:
                verbs.append(self._spark, job.order, served(job.secrets), before)
            elif job.verb.is_distributed:
                raise ValueError(f"a resident process does no {job.verb.value}")
            else:
                verbs.CONTROL[job.verb](self._gateway, job.order)
        finally:
            taken = self._gateway.cpu_seconds()
            self._taken = before if taken is None else taken
        return None if taken is None else taken - before


def _watch(connection: socket.socket, deadline: float, over: threading.Event) -> None:
    with connection:
        while not over.is_set():
            seconds = deadline - clock()
            # A client says nothing after its go: only its end makes the connection readable.
            readable = select.select([connection], [], [], max(0.0, min(seconds, _GLANCE_SECONDS)))[0]
            if not over.is_set() and (readable or clock() >= deadline):
                os.killpg(os.getpgrp(), signal.SIGKILL)


def _listen(path: Path) -> socket.socket:
    """Listens at `path`, in the place of a process that ended without removing its socket."""
    temporary = path.with_suffix(f".{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(temporary))
    temporary.chmod(0o600)
    # No caller is accepted while a job runs. If no more fit, others would take this process for gone.
    listener.listen(4096)
    temporary.rename(path)
    return listener


def main(arguments: list[str]) -> None:
    """Serves, then ends the driver."""
    without_pandas()
    path, identity, idle = Path(arguments[0]), arguments[1], float(arguments[2])
    with control_context(arguments[3]) as spark:
        jvm = spark._jvm
        # It takes seconds on a busy machine, and who knows that it is ready waits less.
        server = Server(spark, identity)
        listener = _listen(path)
        mine = path.stat().st_ino
        print(READY, flush=True)
        with listener:
            server.serve(listener, idle)
            with suppress(OSError):
                if path.stat().st_ino == mine:
                    path.unlink()
                    path.with_suffix(".log").unlink()
    leave(jvm)


if __name__ == "__main__":
    main(sys.argv[1:])
