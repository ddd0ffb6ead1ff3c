"""The driver's channel in cluster mode: asks for its work, reports what it tells, ends when the task is gone."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.messages import (
    BEAT_SECONDS,
    GONE_SECONDS,
    LONGEST,
    LOST_SECONDS,
    Line,
    Reply,
    Report,
    Told,
    decode,
    encode,
)
from airflow_provider_slshudi.spark.driver.channel import Channel, Printed
from airflow_provider_slshudi.spark.keyserver import Place
from airflow_provider_slshudi.system.processes import clock

_FULL = LONGEST // 2
"""Bytes of messages that make a report full."""
_LONGEST_LINE = 2048
_HALT_SECONDS = 5.0
# Not 0: the task that asked for the work must not take it for done.
_STATUS = 70
# The task does not listen there any more, or another process does, with its own certificate.
_GONE = (ConnectionRefusedError, ssl.SSLCertVerificationError)


class Remote(Channel):
    """A driver's connection to the task that wants its work done.

    Args:
        file: says where the task is reached.

    Raises:
        JobFailed: the task is not there, is of another version, or another driver has the work.
    """

    def __init__(self, file: Path) -> None:
        self._place = Place.from_json(file.read_text(encoding="utf-8"))
        # Executors get every file of the job; this one is for the driver alone.
        with suppress(OSError):
            file.unlink()
        self._me, self._host = uuid4().hex, socket.gethostname()
        self._told, self._sent = deque[Told](), 0
        self._turn, self._over = threading.Lock(), threading.Event()
        self._reached, self._gone = clock(), float("inf")
        try:
            first = self._report(wants=True)
        except OSError as error:
            raise JobFailed(f"the task that wants this work is not there any more: {error}", verb="") from error
        except ValueError as error:
            raise JobFailed(f"this driver does not understand the task that wants its work: {error}", verb="") from None
        if first.job is None:
            raise JobFailed(first.end, verb="")
        self.job = first.job

    @property
    def keys(self) -> Place:
        """Where tasks are told the log service's credentials."""
        return Place.from_json(self.job.keys)

    def tell(self, message: Told) -> None:
        """As `Channel.tell`, with the next report; of a line its beginning."""
        self._told.append(Line(message.text[:_LONGEST_LINE]) if isinstance(message, Line) else message)

    def start(self, jvm: Any) -> None:
        """Reports from now on; ends this process, and the JVM of this py4j view, once the task is gone."""
        sys.stdout = Printed(self, sys.stdout)
        threading.Thread(target=self._beat, args=(jvm,), name="slshudi-remote", daemon=True).start()

    def close(self) -> None:
        """Reports for the last time, with the patience that every report has."""
        self._over.set()
        sys.stdout.flush()
        if isinstance(sys.stdout, Printed):
            sys.stdout.end()
        while (end := self._attempt(last=True)) is None:
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

    def _attempt(self, last: bool = False) -> str | None:
        """Reports; empty if it was heard, why this driver has to end if that is sure, None if neither."""
        try:
            return self._report(last).end
        except Exception as error:
            refused = isinstance(error, OSError) and isinstance(error.__cause__, _GONE)
            self._gone = min(self._gone, clock()) if refused else float("inf")
            since, patience = (self._gone, GONE_SECONDS) if refused else (self._reached, LOST_SECONDS)
            if clock() - since < patience and clock() - self._reached < LOST_SECONDS:
                return None
            return f"the task was not reached for {clock() - self._reached:.0f} seconds: {error}"

    def _report(self, last: bool = False, wants: bool = False) -> Reply:
        """Sends all that was told; raises OSError, and ValueError where the answer is no reply."""
        with self._turn:
            while True:
                messages, size = list[Told](), 0
                while len(messages) < len(self._told) and size < _FULL:
                    messages.append(self._told[len(messages)])
                    size += len(encode(messages[-1])) + 2
                whole = len(messages) == len(self._told)
                report = Report(self._me, self._host, self._sent, messages, last and whole, wants)
                reply = decode(self._place.ask(encode(report)))
                if not isinstance(reply, Reply):
                    raise ValueError("the task's answer is no reply")
                self._reached, self._gone = clock(), float("inf")
                for _ in messages:
                    self._told.popleft()
                self._sent += len(messages)
                if whole or reply.end:
                    return reply


def _halt(jvm: Any) -> None:
    with suppress(Exception):
        jvm.java.lang.Runtime.getRuntime().halt(_STATUS)
