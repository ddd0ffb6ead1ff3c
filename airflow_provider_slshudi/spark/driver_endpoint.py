"""The task's side of a driver in cluster mode: gives it its work, hears what it tells, notices when it is lost.

A driver in client mode is a child of the task's process, connects to a socket of it (`spark.session`), and ends with
its parent. In cluster mode it runs where YARN or Kubernetes puts it. So the task listens, and the driver reports every
few seconds. It gets a file with the address, a certificate and a token (`--files`). The token is good for the first
driver that brings it, as long as the task works.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from airflow_provider_slshudi.handover.messages import (
    FILE,
    LONGEST,
    LOST_SECONDS,
    Job,
    Line,
    Reply,
    Report,
    Told,
    decode,
    encode,
)
from airflow_provider_slshudi.spark.keyserver import PORT, listening
from airflow_provider_slshudi.system.processes import clock

HOST = "spark.slshudi.access.host"
"""Spark's setting for the name by which a cluster reaches the machine of a task; its own address by default."""
_EVERYWHERE = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
# Nothing is sent there: the system only says from which of its addresses it would be (RFC 5737, RFC 3849).
_ANYWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_DISCARD = 9


class DriverEndpoint:
    """Serves one driver, from the start until `close`.

    Args:
        job: what it has to do.
        keys: tells its tasks the log service's credentials; None where they need none.
        conf: the settings of its Spark; `HOST` and `PORT` count.

    Raises:
        ConfigError: this machine cannot listen there.
    """

    def __init__(self, job: Job, keys: Callable[[str], bytes] | None, conf: Mapping[str, str]) -> None:
        named, port = conf.get(HOST, "").strip("[]"), conf.get(PORT, "0")
        host = named or _this_host()
        # A setting that names a host may mean a gateway's, or an address that containers do not see as their own.
        bind = _EVERYWHERE if named else host
        self._lock = threading.Lock()
        self._told = deque[Told]()
        self._driver, self._host, self._heard, self._at = "", "", 0, 0.0
        self._ended = float("inf")
        self._closed, self._refused = False, ""
        self._server = listening(self._answer, host, bind, port, LONGEST)
        self._job = job if keys is None else replace(job, keys=self._server.also(keys).to_json())

    def close(self) -> None:
        """Serves no driver any more; one that still runs ends itself."""
        self._closed = True
        self._server.close()

    def refused(self) -> str:
        """Why a driver was refused, where none has begun; empty otherwise."""
        return "" if self._driver else self._refused

    def unasked(self) -> str:
        """Where no driver asked, if none did; empty otherwise."""
        place = self._server.place.address
        return "" if self._driver else f"{place.host}:{place.port}"

    @contextmanager
    def file(self) -> Iterator[Path]:
        """A file for the driver, which says where and how it reports; deleted after the block."""
        with tempfile.TemporaryDirectory(prefix="slshudi-") as folder:
            path = Path(folder) / FILE
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(self._server.place.to_json())
            yield path

    def drain_reports(self) -> list[Told]:
        """What the driver has told since this was called last."""
        with self._lock:
            messages = [*self._told]
            self._told.clear()
        return messages

    def lost(self) -> str:
        """What is known of a driver that began and was not heard of for too long; empty if it is not lost."""
        with self._lock:
            if not self._driver or self._ended <= clock() or clock() - self._at < LOST_SECONDS:
                return ""
            return (
                f"its driver on {self._host} was not heard of for {LOST_SECONDS:.0f} seconds, so it ends itself or is "
                "gone; its container's log says more"
            )

    def works(self) -> bool:
        """Whether a driver has begun, has not ended, and is not lost."""
        return bool(self._driver) and not self._closed and self.ended_for() < 0 and not self.lost()

    def ended_for(self) -> float:
        """Seconds since the driver's last report; negative where that has not come."""
        return clock() - self._ended

    def _answer(self, question: str) -> bytes:
        return encode(self._reply(question)).encode()

    def _reply(self, question: str) -> Reply:
        try:
            report = decode(question)
            if not isinstance(report, Report):
                raise ValueError("it is none")
        except ValueError as error:
            self._refused = f"the task did not understand a report ({error})"
            return Reply(end=self._refused)
        with self._lock:
            if not self._driver:
                self._driver, self._host = report.driver, report.host
                self._told.append(Line(f"the driver runs on {report.host}"))
            elif report.driver != self._driver:
                return Reply(end=f"another driver, on {self._host}, has this work")
            self._at = clock()
            # A report may have come to rest somewhere on its way, and be an older one.
            if report.last:
                self._ended = min(self._ended, self._at)
            # An answer may have been lost on its way, and the report come again.
            self._told += report.messages[max(0, self._heard - report.first) :]
            self._heard = max(self._heard, report.first + len(report.messages))
        return Reply(self._job if report.wants else None)


def _this_host() -> str:
    """This machine's address on the way to others; loopback where it has no other."""
    for family in _ANYWHERE:
        for text in _own(family):
            address = ip_address(text)
            # Of this machine or its link alone, as pods of EKS have one beside their IPv6.
            if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                return text
    return "127.0.0.1"


def _own(family: socket.AddressFamily) -> Iterator[str]:
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ANYWHERE[family], _DISCARD))
        yield str(probe.getsockname()[0])
    with suppress(OSError):
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, family):
            yield str(place[0])
