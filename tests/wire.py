"""A TCP proxy in front of a database that loses what it is told to lose; of statements it knows PostgreSQL's COMMIT."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

# A simple query of that text, and the tag of the answer to it, as PostgreSQL's protocol 3 sends them
# (https://www.postgresql.org/docs/current/protocol-message-formats.html).
_COMMIT = b"COMMIT\0"


class Fault(Enum):
    """What the proxy does to the next COMMIT that passes, or to everything."""

    REQUEST_LOST = "the next COMMIT never reaches the server and the connection ends"
    ANSWER_LOST = "the server carries the next COMMIT out and the connection ends before its answer passes"
    SILENT = "nothing passes any more and no connection ends"


class Wire:
    """The proxy: connect to `port` instead of the server's.

    `fault`, `delay` (seconds) and `leads_to` (the port that new connections reach) may be set at any time.
    """

    def __init__(self, server_port: int) -> None:
        self.leads_to = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: Fault | None = None
        self.delay = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.leads_to))
            except OSError:  # it is down: its port would refuse too
                client.close()
                continue
            awaited = threading.Event()
            for run in (self._requests, self._answers):
                threading.Thread(target=run, args=(client, server, awaited), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, awaited: threading.Event) -> None:
        for data in self._passing(client):
            if _COMMIT in data and self.fault is Fault.REQUEST_LOST:
                self.fault = None
                break
            if _COMMIT in data and self.fault is Fault.ANSWER_LOST:
                self.fault = None
                awaited.set()
            with suppress(OSError):
                server.sendall(data)
        _hang_up(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, awaited: threading.Event) -> None:
        for data in self._passing(server):
            if awaited.is_set() and _COMMIT in data:
                break
            with suppress(OSError):
                client.sendall(data)
        _hang_up(client, server)

    def _passing(self, side: socket.socket) -> Iterator[bytes]:
        with suppress(OSError):
            while data := side.recv(1 << 16):
                while self.fault is Fault.SILENT:
                    time.sleep(0.02)
                time.sleep(self.delay)
                yield data


def _hang_up(*sides: socket.socket) -> None:
    for side in sides:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire_to(server_port: int) -> Iterator[Wire]:
    """A proxy to a port of this machine."""
    wire = Wire(server_port)
    try:
        yield wire
    finally:
        wire.fault = None
        wire.close()
