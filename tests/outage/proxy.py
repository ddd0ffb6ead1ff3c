"""A way to an object store on which a request can fail, chosen by its number."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Self

_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}


class Fault(str, Enum):
    """What becomes of the chosen request."""

    REFUSED = "refused"
    """503; the store never saw it."""
    LOST = "answer lost"
    """The store did it; the connection ends without an answer."""
    CUT = "cut off"
    """The connection ends in the middle of what is sent; the store never sees a request without content."""
    GONE = "store gone"
    """503, as to every request after it."""
    MUTE = "store mute"
    """The store did it, as every request after it; no answer comes."""

    @property
    def lasts(self) -> bool:
        """Whether all requests after it fail too."""
        return self in (Fault.GONE, Fault.MUTE)


@dataclass
class Plan:
    """Which request fails, and how; `seen` are the requests since it was armed, and `hit` tells whether one failed."""

    number: int = 0
    fault: Fault | None = None
    seen: list[str] = field(default_factory=list)
    hit: bool = False

    def of(self, request: str) -> Fault | None:
        """What becomes of this request."""
        self.seen.append(request)
        if self.fault is None or len(self.seen) < self.number:
            return None
        if len(self.seen) > self.number and not self.fault.lasts:
            return None
        self.hit = True
        return self.fault


class Proxy:
    """Passes requests on to a store; its `url` stands for the `store`'s. `plan` may be replaced at any time."""

    def __init__(self, store: str) -> None:
        self.plan, self.store = Plan(), store
        self._lock = threading.Lock()
        self._store = urlsplit(store).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and content sent apart wait for one another's acknowledgement.
            wbufsize = -1

            def handle_expect_100(self) -> bool:
                told = super().handle_expect_100()
                self.wfile.flush()
                return told

            def handle_one_request(self) -> None:
                # A client that has ended may leave half a request.
                with suppress(ConnectionError):
                    super().handle_one_request()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: proxy._pass(self)
                raise AttributeError(name)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serves."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def arm(self, number: int, fault: Fault) -> Plan:
        """The request of this number from now on, from 1, fails."""
        self.plan = Plan(number, fault)
        return self.plan

    def heal(self) -> Plan:
        """No request fails from now on."""
        self.plan = Plan()
        return self.plan

    def refusal(self, client: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        """Status and code of the store's answer to a request that it does not take."""
        return None

    def _pass(self, client: BaseHTTPRequestHandler) -> None:
        body = _body(client)
        if (refused := self.refusal(client)) is not None:
            _answer(client, refused[0], [], f"<Error><Code>{refused[1]}</Code></Error>".encode())
            return
        with self._lock:
            fault = self.plan.of(f"{client.command} {client.path}")
        if fault in (Fault.REFUSED, Fault.GONE):
            _answer(client, 503, [], b"<Error><Code>ServiceUnavailable</Code></Error>")
            return
        if fault is Fault.CUT and not body:
            client.close_connection = True
            return
        upstream = http.client.HTTPConnection(self._store, timeout=60)
        try:
            upstream.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
            for name, value in client.headers.items():
                if name.lower() not in _HOP:
                    upstream.putheader(name, value)
            if "Content-Length" not in client.headers and body:
                upstream.putheader("Content-Length", str(len(body)))
            if fault is Fault.CUT:
                upstream.endheaders(body[: len(body) // 2])
                client.close_connection = True
                return
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            content = answer.read()
            if fault in (Fault.LOST, Fault.MUTE):
                client.close_connection = True
                return
            _answer(client, answer.status, answer.getheaders(), content)
        finally:
            upstream.close()


def _body(client: BaseHTTPRequestHandler) -> bytes:
    if client.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return client.rfile.read(int(client.headers.get("Content-Length") or 0))
    parts = []
    while size := int(client.rfile.readline().split(b";")[0], 16):
        parts.append(client.rfile.read(size))
        client.rfile.readline()
    while client.rfile.readline().strip():
        pass  # trailers
    return b"".join(parts)


def _answer(client: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    client.send_response_only(status)
    told = {name.lower() for name, _ in headers}
    for name, value in headers:
        if name.lower() not in _HOP:
            client.send_header(name, value)
    if "content-length" not in told:
        client.send_header("Content-Length", str(len(body)))
    client.end_headers()
    if client.command != "HEAD":
        client.wfile.write(body)
