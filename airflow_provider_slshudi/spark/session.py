"""The task's end of a job: what its driver has told, and the socket at which a driver on this machine gets its work.

A driver of its own is a child of the task's process and connects to the socket that its argument names. A resident
process (`spark.resident`) and one in cluster mode (`spark.driver_endpoint`) tell the same messages on their ways.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import struct
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_provider_slshudi.exceptions import JobDenied, JobFailed, TableDenied
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.messages import Done, Failed, Job, Line, Message, Page, Spent, decode, encode

_TAIL_LINES = 40
_CLOSING_SECONDS = 60.0
_LONGEST_FOLDER = 70
"""Bytes; a Unix socket's path has about a hundred (https://man7.org/linux/man-pages/man7/unix.7.html)."""
# SIGKILL and SIGTERM: first as the kernel reports them of a child, then as a shell or Java does.
_KILLED = (-9, -15, 137, 143)

TIME_OVER = " because its time was over: another run may decide about it by now"
"""What the error of a job says that did not end within its time."""


class DriverSession:
    """What a job's driver has told so far.

    Args:
        name: the job's, for people.
        verb: what the job does.
        say: takes each line that the driver prints, where lines come as messages.
        show: takes the address of the driver's web page.

    Attributes:
        cpu_seconds: what the driver took, JVM and Python; None if it did not tell.
        failed: why the work failed; None if the driver did not say that it did.
        done: whether the driver said that its work is done.
    """

    def __init__(
        self,
        name: str,
        verb: Verb,
        say: Callable[[str], None] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._name, self._verb = name, verb
        self._say, self._show = say or (lambda line: None), show or (lambda page: None)
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.cpu_seconds: float | None = None
        self.failed: Failed | None = None
        self.done = False

    def hear(self, message: Message) -> None:
        """Takes what the driver tells."""
        if isinstance(message, Line):
            self.remember(message.text)
            self._say(message.text)
        elif isinstance(message, Page):
            self._show(message.address)
        elif isinstance(message, Spent):
            self.cpu_seconds = message.cpu_seconds
        elif isinstance(message, Failed):
            self.failed = message
        elif isinstance(message, Done):
            self.done = True

    def remember(self, line: str) -> None:
        """Keeps a line of the job's output, for the error of a job that gave no reason."""
        self._tail.append(line)

    def lose(self, why: str) -> None:
        """Makes `why` the reason of the failure, unless the driver gave one."""
        self.failed = self.failed or Failed("", why)

    @property
    def likely(self) -> str:
        """The most telling line that was printed: the last one with an error in it."""
        lines = [line for line in self._tail if line.strip() and not line.lstrip().startswith("at ")]
        texts = [" ".join(line.split()) for line in lines]
        errors = [text for text in texts if "Error" in text or "Exception" in text]
        return (errors or texts or ["it printed nothing"])[-1]

    def require_done(self, returncode: int | None = None, timed_out: bool = False) -> float | None:
        """Returns `cpu_seconds` where the driver said that its work is done, also where its process failed later.

        Args:
            returncode: of the driver's process; None where it is not known.
            timed_out: whether the job's time was over.

        Raises:
            JobFailed: the driver did not say so; in one line, the reason that it gave, else its exit code and its most
                telling line. The launcher's log has all that it printed already.
        """
        if self.done:
            return self.cpu_seconds
        if returncode == 0:
            self.lose("spark-submit has ended well, but the driver has not said here that its work is done")
        raise self._error(returncode or None, timed_out)

    def _error(self, returncode: int | None, timed_out: bool) -> JobFailed:
        failed, killed = self.failed or Failed("", ""), self.failed is None and returncode in _KILLED
        said = f"{self._name} failed"
        if self.failed is None:
            said = f"{self._name} ended with exit code {'unknown' if returncode is None else returncode}"
        if killed:
            said += ", so it was killed"
        if timed_out:
            said += TIME_OVER
        if not killed:
            said += f": {self.failed or self.likely}"
        if self._verb is Verb.APPEND:
            said = said.rstrip(".")
            said += ". Nothing of it is committed; the next run's settle decides it, and its ranges are read again"
        error_class = JobDenied if failed.error == TableDenied.__name__ else JobFailed
        return error_class(
            said,
            verb=self._verb.value,
            returncode=returncode,
            tail="\n".join(self._tail),
            error=failed.error,
            fields=failed.fields,
        )


@contextmanager
def offered(job: Job, session: DriverSession) -> Iterator[Path]:
    """A socket at which one driver of this user gets its work; what the driver tells goes to the session.

    At the end of the block the driver has ended, and all that it told was heard.
    """
    folder = tempfile.gettempdir()
    short = folder if len(os.fsencode(folder)) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108
    path = Path(tempfile.mkdtemp(prefix="slshudi-", dir=short)) / "task.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        serving = threading.Thread(target=_serve, args=(listener, path, job, session), daemon=True)
        serving.start()
        try:
            yield path
        finally:
            with suppress(OSError):
                # Wakes the thread where no driver came.
                listener.shutdown(socket.SHUT_RDWR)
            serving.join(_CLOSING_SECONDS)
            shutil.rmtree(path.parent, ignore_errors=True)


def _serve(listener: socket.socket, path: Path, job: Job, session: DriverSession) -> None:
    # The driver's end closes the connection.
    with suppress(OSError, ValueError):
        connection, _ = listener.accept()
        while not same_user(connection):
            connection.close()
            connection, _ = listener.accept()
        # A second driver is refused, and a task that is killed leaves no file.
        listener.close()
        path.unlink()
        path.parent.rmdir()
        with connection, connection.makefile("rb") as told:
            send(connection, job)
            while True:
                # What the driver says next, how the job ended say, does not wait for Airflow to take a link.
                message = receive(told)
                if isinstance(message, Page):
                    threading.Thread(target=session.hear, args=(message,), daemon=True).start()
                else:
                    session.hear(message)


def send(connection: socket.socket, message: Message) -> None:
    """Sends one message."""
    connection.sendall(framed(message))


def framed(message: Message) -> bytes:
    """A message as a socket has it, which `receive` reads."""
    return encode(message).encode() + b"\n"


def receive(stream: io.IOBase) -> Message:
    """The next message.

    Raises:
        OSError: the connection ended, or nothing came in time.
        ValueError: the line is no message.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection ended")
    return decode(line)


def same_user(connection: socket.socket) -> bool:
    """Whether the other end belongs to this process's user, as far as this system tells."""
    return not hasattr(socket, "SO_PEERCRED") or other_end(connection)[1] == os.geteuid()


def other_end(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end; Linux."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, user, group = struct.unpack("3i", credentials)
    return process, user, group
