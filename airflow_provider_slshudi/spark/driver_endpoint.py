"""The task's side of a driver in cluster mode: gives it its order, hears what it prints, notices when it is lost.

A driver in client mode is a child of the task's process: it has its order on standard input, the key in its
environment, and ends with its parent. In cluster mode it runs where YARN or Kubernetes puts it, and no argument,
setting or environment variable is a way for a secret. So the task listens, and the driver reports every few seconds. It
gets a file with the address, a certificate and a token (`--files`). The token is good for the first driver that brings
it, as long as the task works.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from airflow_provider_slshudi.handover.cluster import FILE, LONGEST, LOST_SECONDS, Reply, Report
from airflow_provider_slshudi.handover.job_order import JobOrder
from airflow_provider_slshudi.spark.keyserver import PORT, Place, listening
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
        order: what it works on.
        keys: tells its tasks the log service's credentials; None where they need none.
        conf: the settings of its Spark; `HOST` and `PORT` count.

    Raises:
        ConfigError: this machine cannot listen there.
    """

    def __init__(self, order: JobOrder, keys: Callable[[str], bytes] | None, conf: Mapping[str, str]) -> None:
        named, port = conf.get(HOST, "").strip("[]"), conf.get(PORT, "0")
        host = named or _this_host()
        # A setting that names a host may mean a gateway's, or an address that containers do not see as their own.
        bind = _EVERYWHERE if named else host
        self._order = order.to_json()
        self._lock = threading.Lock()
        self._lines = deque[str]()
        self._driver, self._host, self._heard, self._at = "", "", 0, 0.0
        self._ended = float("inf")
        self._closed = False
        self.done = False
        """Whether the driver said that its work is done."""
        self._server = listening(self._answer, host, bind, port, LONGEST)
        self._keys: Place | None = None if keys is None else self._server.also(keys)

    def close(self) -> None:
        """Serves no driver any more; one that still runs ends itself."""
        self._closed = True
        self._server.close()

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

    def drain_reports(self) -> list[str]:
        """What the driver has printed since this was called last."""
        with self._lock:
            lines = [*self._lines]
            self._lines.clear()
        return lines

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
        return self._reply(question).to_json().encode()

    def _reply(self, question: str) -> Reply:
        try:
            report = Report.from_json(question)
        except ValueError as error:
            return Reply(end=f"the task did not understand a report ({error})")
        with self._lock:
            if not self._driver:
                self._driver, self._host = report.driver, report.host
                self._lines.append(f"the driver runs on {report.host}")
            elif report.driver != self._driver:
                return Reply(end=f"another driver, on {self._host}, has this work")
            self._at = clock()
            # A report may have come to rest somewhere on its way, and be an older one.
            self.done = self.done or report.done
            if report.last:
                self._ended = min(self._ended, self._at)
            # An answer may have been lost on its way, and the report come again.
            self._lines += report.lines[max(0, self._heard - report.first) :]
            self._heard = max(self._heard, report.first + len(report.lines))
        if not report.wants:
            return Reply()
        return Reply(self._order, "" if self._keys is None else self._keys.to_json())


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
