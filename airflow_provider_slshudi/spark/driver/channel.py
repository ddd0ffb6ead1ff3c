"""A driver's end of its session: the work that a task gives it, and what it tells the task of it."""

from __future__ import annotations

import io
import re
import socket
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from airflow_provider_slshudi.exceptions import SlsHudiError, WritesRefused
from airflow_provider_slshudi.handover.messages import Done, Failed, Job, Line, Spent, Told
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.session import framed, receive
from airflow_provider_slshudi.storage import owners
from airflow_provider_slshudi.storage.files import denied, tells_refused_writes

_OWN = re.compile(r"airflow_provider_slshudi\.exceptions\.(\w+): (.+)")
_LONGEST_TEXT, _LARGEST = 2000, 1 << 63
_ANSWER_SECONDS = 60.0


class Channel(ABC):
    """A driver's connection with the task that wants its work.

    Attributes:
        job: what the driver has to do.
    """

    job: Job

    @abstractmethod
    def tell(self, message: Told) -> None:
        """Tells the task; nothing where the task is gone."""

    def tell_end(self, act: Callable[[], float | None]) -> Exception | None:
        """Does the work, whose CPU seconds `act` returns, and tells how it ended; returns the error.

        It prints the trace of an error that is not the package's own.
        """
        try:
            cpu_seconds = act()
        except Exception as error:
            if not is_own(error):
                print("".join(traceback.format_exception(error)), end="", flush=True)
            self.tell(failure(error))
            return error
        if cpu_seconds is not None:
            self.tell(Spent(cpu_seconds))
        self.tell(Done())
        return None


class SocketChannel(Channel):
    """A channel over a Unix socket, of a driver on the task's machine.

    Args:
        connection: to the task.
        job: what the task has given.

    Attributes:
        whole: whether the task was told everything so far.
    """

    def __init__(self, connection: socket.socket, job: Job) -> None:
        self._connection, self._turn, self._telling = connection, threading.RLock(), False
        self.job, self.whole = job, True

    @classmethod
    def of(cls, path: Path) -> SocketChannel:
        """The channel of the task that listens at `path`.

        Raises:
            OSError, ValueError: there is none, or it gives no work.
        """
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        with connection.makefile("rb") as given:
            job = receive(given)
        connection.settimeout(None)
        if not isinstance(job, Job):
            raise ValueError(f"the task at {path} gives no work")
        return cls(connection, job)

    def tell(self, message: Told) -> None:
        """As `Channel.tell`."""
        line = framed(message)
        with self._turn:
            # What a signal's handler or a finalizer of this thread prints meanwhile would stand within the line.
            if self._telling or not self.whole:
                return
            self._telling = True
            try:
                self._connection.sendall(line)
            except OSError:
                # The kernel, or a watcher, ends a driver whose task is gone.
                self.whole = False
            finally:
                self._telling = False


class Printed(io.TextIOBase):
    """A standard output whose lines are told.

    Args:
        channel: tells them.
        before: gets all that is written, too.
    """

    def __init__(self, channel: Channel, before: IO[str] | None = None) -> None:
        self._channel, self._before, self._begun = channel, before, ""

    def write(self, text: str) -> int:
        """Tells the lines that end in the text, the first with what was written of it before."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._channel.tell(Line(line))
        return len(text) if self._before is None else self._before.write(text)

    def flush(self) -> None:
        """Flushes what gets it too."""
        if self._before is not None:
            self._before.flush()

    def end(self) -> None:
        """Tells what was begun, too."""
        if self._begun:
            self.write("\n")


def failure(error: BaseException) -> Failed:
    """What a task is told of an error: the package's own out of Spark's text, else the error itself.

    If the system refused Java a file, the text names the file's owner. If a file of the metadata table is named, the
    text says what makes that table anew.
    """
    # Spark tells a task's error as text.
    if own_errors := _OWN.findall(str(error)):
        return _failed(*own_errors[-1])
    named = f"{type(error).__name__}: {error}"
    own = error if isinstance(error, SlsHudiError) else python_archive.lacking(named)
    is_full = tells_refused_writes(named)
    if own is None and is_full:
        own = WritesRefused(named, table="")
    if own is None and (path := owners.refused_in_java(named)) is not None:
        own = denied("Hudi", path)
    failed = _failed(type(own or error).__name__, str(own or error), vars(own) if own else {})
    # A Java error names its file far below its beginning.
    if f"/{METADATA_FOLDER}/" not in named or is_full:
        return failed
    advice = "If it stays so, run `slshudi table rebuild-metadata`, which makes the metadata table anew"
    return replace(failed, text=f"{failed.text[: _LONGEST_TEXT - 200]} ... {advice}")


def is_own(error: BaseException) -> bool:
    """Whether an error is one of the package's, raised here or by a task."""
    return isinstance(error, SlsHudiError) or bool(_OWN.search(str(error)))


def _failed(name: str, text: str, attributes: Mapping[str, object] | None = None) -> Failed:
    fields = {
        key: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for key, value in (attributes or {}).items()
        if value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) < _LARGEST)
    }
    return Failed(name, " ".join(text.split())[:_LONGEST_TEXT], fields)
