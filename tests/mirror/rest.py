"""An Iceberg REST catalog over one in SQLite, as far as mirrors ask it (iceberg.apache.org/rest-catalog-spec)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest

_CODES = {NoSuchTableError: 404, CommitFailedException: 409, TableAlreadyExistsError: 409}


class RestCatalog(ThreadingHTTPServer):
    """Serves a catalog; `lost` answers of commits that took effect are sent as errors of the server."""

    def __init__(self, **properties: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.properties = properties
        self.lost = 0
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalog

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")][2:]
        try:
            with self.server.lock, load_catalog(**self.server.properties) as catalog:
                code, answer = 200, self._of(catalog, parts, body)
        except tuple(_CODES) as error:
            code, answer = _CODES[type(error)], _error(error, _CODES[type(error)])
        except Exception as error:
            code, answer = 500, _error(error, 500)
        if code == 200 and self.command == "POST" and len(parts) == 4 and self.server.lost:
            self.server.lost -= 1
            code, answer = 504, _error(TimeoutError("the gateway gave up"), 504)
        content = answer.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _of(self, catalog: Any, parts: list[str], body: str) -> str:
        match self.command, parts:
            case "GET", ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                with suppress(NamespaceAlreadyExistsError):
                    catalog.create_namespace(tuple(json.loads(body)["namespace"]))
                return body
            case "POST", ["namespaces", namespace, "tables"]:
                asked = CreateTableRequest.model_validate_json(body)
                assert asked.stage_create
                staged = catalog._create_staged_table(
                    (namespace, asked.name),
                    asked.table_schema,
                    asked.location,
                    asked.partition_spec,
                    asked.write_order,
                    asked.properties,
                )
                return _table(staged.metadata, None)
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", name]):
                table = catalog.load_table((namespace, name))
                return _table(table.metadata, table.metadata_location)
            case "DELETE", ["namespaces", namespace, "tables", name]:
                catalog.drop_table((namespace, name))
                return ""
            case "POST", ["namespaces", namespace, "tables", name]:
                change = CommitTableRequest.model_validate_json(body)
                stand_in = SimpleNamespace(name=lambda: (namespace, name))
                done = catalog.commit_table(stand_in, change.requirements, change.updates)
                return str(done.model_dump_json(by_alias=True))
        raise LookupError(f"this catalog answers no {self.command} {parts}")


def _table(metadata: Any, location: str | None) -> str:
    return json.dumps({"metadata-location": location, "metadata": json.loads(metadata.model_dump_json()), "config": {}})


def _error(error: Exception, code: int) -> str:
    return json.dumps({"error": {"message": str(error), "type": type(error).__name__, "code": code}})


@contextmanager
def rest_catalog(**properties: str) -> Iterator[RestCatalog]:
    """A REST catalog over the one that pyiceberg's properties describe."""
    with RestCatalog(**properties) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
