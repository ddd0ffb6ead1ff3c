"""A hop between client and server that changes answers as a scenario asks: real requests, real answers, real faults."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Answer = tuple[int, dict[str, str], bytes]
Change = Callable[[Answer], "Answer | None"]


class Disturbed:
    """Forwards to `server`; the first requests whose path holds `at` get one of `changes` each (None: no answer)."""

    def __init__(self, server: str) -> None:
        self.changes: list[Change] = []
        self.at = "type=log"
        self.seen: list[str] = []
        hop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hop.seen.append(self.path)
                upstream = http.client.HTTPConnection(server)
                upstream.putrequest("GET", self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders()
                got = upstream.getresponse()
                given: Answer = (got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
                upstream.close()
                answer = hop.changes.pop(0)(given) if hop.changes and hop.at in self.path else given
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                self.send_response_only(status)
                for name, value in headers.items():
                    if name not in ("content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("content-length", headers.get("content-length", str(len(body))))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = len(body) != int(headers.get("content-length", len(body)))

            def log_message(self, *args: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint = f"127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Disturbed:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()


def unchanged(answer: Answer) -> Answer:
    answer[1].pop("content-length", None)
    return answer


def dropped(answer: Answer) -> None:
    return None


def fault(status: int, code: str) -> Change:
    """An error of the service instead of the answer."""
    body = json.dumps({"errorCode": code, "errorMessage": "so it says"}).encode()
    return lambda answer: (status, {"x-log-requestid": "REQUEST"}, body)


def page(status: int) -> Change:
    """What a gateway in between answers: no JSON at all."""
    return lambda answer: (status, {"content-type": "text/html"}, b"<html>sorry</html>")


def headers(**changes: str | None) -> Change:
    """The answer with headers set (`x_log_count="1"`), or removed by None."""

    def change(answer: Answer) -> Answer:
        status, given, body = unchanged(answer)
        for name, value in changes.items():
            if value is None:
                given.pop(name.replace("_", "-"))
            else:
                given[name.replace("_", "-")] = value
        return status, given, body

    return change


def cut(answer: Answer) -> Answer:
    """The announced length, but only half of the bytes."""
    status, given, body = answer
    return status, {**given, "content-length": str(len(body))}, body[: len(body) // 2]


def garbled(answer: Answer) -> Answer:
    """As many bytes, but others."""
    status, given, body = unchanged(answer)
    return status, given, b"\xff" * len(body)


def empty(cursor: str) -> Change:
    """No log groups, and no step forward from `cursor`."""
    given = {"x-log-count": "0", "x-log-bodyrawsize": "0", "x-log-cursor": cursor}
    return lambda answer: (200, given, b"")


def hollow(answer: Answer) -> Answer:
    """As many log groups as announced, in which there is no log group."""
    status, given, _ = unchanged(answer)
    body = b"\x0a\x01\xff" * int(given["x-log-count"])
    given.pop("x-log-compresstype", None)
    return status, {**given, "x-log-bodyrawsize": str(len(body))}, body
