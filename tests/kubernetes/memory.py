"""An API server of the tests' own, which keeps objects in memory: whoever asks may do all, and nothing is checked."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.access import Access, Json

_PATH = re.compile(r"/api/v1/namespaces/default/(\w+)(?:/([\w.-]+))?(/status)?")
_EMPTY: Json = {"kind": "Status", "apiVersion": "v1"}


@contextmanager
def memory() -> Iterator[Access]:
    """A server without objects."""
    api = _Api()
    threading.Thread(target=api.serve_forever, daemon=True).start()
    try:
        yield Access(f"http://127.0.0.1:{api.server_port}")
    finally:
        api.shutdown()
        api.server_close()


class _Api(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[tuple[str, str], Json] = {}
        self.events: list[tuple[str, Json]] = []
        """What happened, by kind of object; an object's version is the number of its last one."""
        self.changed = threading.Condition()

    def keep(self, kind: str, item: Json) -> Json:
        """Makes or changes an object."""
        with self.changed:
            name = item["metadata"]["name"]
            before = self.objects.get((kind, name))
            made: Json = {} if before is not None or kind != "pods" else {"status": {"phase": "Pending"}}
            kept = made | (before or {}) | item
            kept["metadata"] = {**(before or {}).get("metadata", {}), **item["metadata"]}
            kept["metadata"] |= {"uid": f"uid-{name}", "namespace": "default"}
            self._happened("ADDED" if before is None else "MODIFIED", kind, kept)
            self.objects[kind, name] = kept
            return kept

    def delete(self, kind: str, name: str) -> bool:
        """Whether there was such an object."""
        with self.changed:
            found = self.objects.pop((kind, name), None)
            if found is not None:
                self._happened("DELETED", kind, {**found, "metadata": {**found["metadata"]}})
            return found is not None

    def _happened(self, what: str, kind: str, item: Json) -> None:
        item["metadata"]["resourceVersion"] = str(len(self.events) + 1)
        self.events.append((kind, {"type": what, "object": item}))
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Api

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        kind, _ = self._place()
        self._answer(201, self.server.keep(kind, self._body()))

    def do_PATCH(self) -> None:
        kind, name = self._place()
        body = self._body()
        if isinstance(body, list):
            body = {}
        body["metadata"] = {**body.get("metadata", {}), "name": name}
        # By a server-side apply, which makes what is not there.
        if (kind, name) in self.server.objects or "apply" in self.headers["Content-Type"]:
            self._answer(200, self.server.keep(kind, body))
        else:
            self._missing()

    do_PUT = do_PATCH

    def do_DELETE(self) -> None:
        kind, name = self._place()
        self._body()
        for found in [name] if name else [item["metadata"]["name"] for item in self._listed(kind)]:
            self.server.delete(kind, found)
        self._answer(200, _EMPTY | {"status": "Success"})

    def do_GET(self) -> None:
        kind, name = self._place()
        if "watch" in self._asked():
            self._watch(kind)
        elif name:
            found = self.server.objects.get((kind, name))
            if found is None:
                self._missing()
            else:
                self._answer(200, found)
        else:
            version = str(len(self.server.events))
            listed = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
            self._answer(200, listed | {"items": self._listed(kind)})

    def _asked(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)

    def _place(self) -> tuple[str, str]:
        found = _PATH.fullmatch(urlsplit(self.path).path)
        assert found is not None, self.path
        return found[1], found[2] or ""

    def _listed(self, kind: str) -> list[Json]:
        with self.server.changed:
            return [item for (of, _), item in self.server.objects.items() if of == kind and self._wanted(item)]

    def _wanted(self, item: Json) -> bool:
        """Whether an object is among those that the request selects."""
        asked = self._asked()
        labels = dict(part.split("=", 1) for part in ",".join(asked.get("labelSelector", [])).split(",") if "=" in part)
        names = [text.partition("metadata.name=")[2] for text in asked.get("fieldSelector", [])]
        found = item["metadata"]
        return labels.items() <= found.get("labels", {}).items() and (not names or found["name"] in names)

    def _watch(self, kind: str) -> None:
        """Events of objects, as lines of one answer without an end."""
        if "upgrade" in self.headers.get("Connection", "").lower():
            # As a proxy without web sockets: the client asks again without.
            self._answer(200, {})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        told = int(self._asked().get("resourceVersion", ["0"])[0] or 0)
        try:
            while True:
                with self.server.changed:
                    self.server.changed.wait_for(lambda told=told: len(self.server.events) > told, 1.0)  # type: ignore[misc]
                    news = self.server.events[told:]
                told += len(news)
                for of, event in news:
                    if of == kind and self._wanted(event["object"]):
                        line = json.dumps(event).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _body(self) -> Any:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(content) if content else {}

    def _missing(self) -> None:
        self._answer(404, _EMPTY | {"status": "Failure", "code": 404})

    def _answer(self, code: int, content: Json) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
