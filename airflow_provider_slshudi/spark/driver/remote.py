"""The driver's side in cluster mode: asks for its order, reports what it prints, ends when the task is gone."""

from __future__ import annotations

import io
import json
import os
import socket
import ssl
import sys
import threading
import time
from abc import abstractmethod
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.cluster import BEAT_SECONDS, GONE_SECONDS, LONGEST, LOST_SECONDS, Reply, Report
from airflow_provider_slshudi.handover.job_order import JobOrder
from airflow_provider_slshudi.spark.keyserver import Place
from airflow_provider_slshudi.system.processes import clock


class Printed(io.TextIOBase):
    """A standard output that takes whole lines."""

    _begun = ""

    @abstractmethod
    def take(self, line: str) -> None:
        """Takes a line, without its end."""

    def write(self, text: str) -> int:
        """Takes the lines that end in the text, the first with what was written of it before."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self.take(line)
        return len(text)


_LONGEST_LINE = 2048
_FULL = LONGEST // 2
"""Bytes of lines that make a report full."""
_HALT_SECONDS = 5.0
# Not 0: the task that asked for the work must not take it for done.
_STATUS = 70
# The task does not listen there any more, or another process does, with its own certificate.
_GONE = (ConnectionRefusedError, ssl.SSLCertVerificationError)


class Remote:
    """A driver's connection to the task that wants its work done.

    Args:
        file: says where the task is reached.

    Raises:
        JobFailed: the task is not there, or another driver has the work.
    """

    def __init__(self, file: Path) -> None:
        self._place = Place.from_json(file.read_text(encoding="utf-8"))
        # Executors get every file of the job; this one is for the driver alone.
        with suppress(OSError):
            file.unlink()
        self._me, self._host = uuid4().hex, socket.gethostname()
        self._lines, self._sent = deque[str](), 0
        self._turn, self._over = threading.Lock(), threading.Event()
        self._reached, self._gone = clock(), float("inf")
        try:
            first = self._report(wants=True)
        except OSError as error:
            raise JobFailed(f"the task that wants this work is not there any more: {error}", verb="") from error
        if first.end:
            raise JobFailed(first.end, verb="")
        self._order, self._keys = first.order, first.keys

    @property
    def order(self) -> JobOrder:
        """What it works on; the task's version of this package wrote it."""
        return JobOrder.from_json(self._order)

    @property
    def keys(self) -> Place:
        """Where tasks are told the log service's credentials."""
        return Place.from_json(self._keys)

    def start(self, jvm: Any) -> None:
        """Reports from now on; ends this process, and the JVM of this py4j view, once the task is gone."""
        sys.stdout = _Heard(sys.stdout, self._lines)
        threading.Thread(target=self._beat, args=(jvm,), name="slshudi-remote", daemon=True).start()

    def close(self, done: bool) -> None:
        """Reports for the last time, with the patience that every report has."""
        self._over.set()
        sys.stdout.flush()
        if isinstance(sys.stdout, _Heard):
            sys.stdout.end()
        while (end := self._attempt(done, last=True)) is None:
            time.sleep(BEAT_SECONDS)
        if end:
            print(f"the last report was not heard: {end}", file=sys.stderr, flush=True)

    def _beat(self, jvm: Any) -> None:
        while not self._over.wait(BEAT_SECONDS):
            end = self._attempt()
            if end and not self._over.is_set():
                print(f"slshudi: this driver ends now: {end}", file=sys.stderr, flush=True)
                halting = threading.Thread(target=_halt, args=(jvm,), daemon=True)
                halting.start()
                halting.join(_HALT_SECONDS)
                os._exit(_STATUS)

    def _attempt(self, done: bool = False, last: bool = False) -> str | None:
        """Reports; empty if it was heard, why this driver has to end if that is sure, None if neither."""
        try:
            return self._report(done, last).end
        except Exception as error:
            refused = isinstance(error, OSError) and isinstance(error.__cause__, _GONE)
            self._gone = min(self._gone, clock()) if refused else float("inf")
            since, patience = (self._gone, GONE_SECONDS) if refused else (self._reached, LOST_SECONDS)
            if clock() - since < patience and clock() - self._reached < LOST_SECONDS:
                return None
            return f"the task was not reached for {clock() - self._reached:.0f} seconds: {error}"

    def _report(self, done: bool = False, last: bool = False, wants: bool = False) -> Reply:
        """Sends all that was printed; raises OSError."""
        with self._turn:
            while True:
                lines, size = list[str](), 0
                while len(lines) < len(self._lines) and size < _FULL:
                    lines.append(self._lines[len(lines)])
                    size += len(json.dumps(lines[-1])) + 2
                whole = len(lines) == len(self._lines)
                report = Report(self._me, self._host, self._sent, lines, done and whole, last and whole, wants)
                reply = Reply.from_json(self._place.ask(report.to_json()).decode())
                self._reached, self._gone = clock(), float("inf")
                for _ in lines:
                    self._lines.popleft()
                self._sent += len(lines)
                if whole or reply.end:
                    return reply


def _halt(jvm: Any) -> None:
    with suppress(Exception):
        jvm.java.lang.Runtime.getRuntime().halt(_STATUS)


class _Heard(Printed):
    """Standard output whose lines are reported, too."""

    def __init__(self, before: IO[str], lines: deque[str]) -> None:
        self._before, self._lines = before, lines

    def take(self, line: str) -> None:
        self._lines.append(line[:_LONGEST_LINE])

    def write(self, text: str) -> int:
        super().write(text)
        return self._before.write(text)

    def flush(self) -> None:
        self._before.flush()

    def end(self) -> None:
        """Reports what was begun, too."""
        if self._begun:
            self.write("\n")
