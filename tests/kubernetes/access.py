"""Asking an API server."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_HERE = "/api/v1/namespaces/default"


@dataclass(frozen=True)
class Access:
    """How somebody asks an API server.

    Attributes:
        address: its URL.
        authority: the file of the certificate that vouches for it; None without TLS.
        token: says who asks; empty where everybody may.
    """

    address: str
    authority: Path | None = None
    token: str = ""

    def ask(self, method: str, path: str, body: Json | None = None) -> Json | None:
        """What it answers about a path, or about something in the namespace `default`; None where there is none."""
        whole = path if path.startswith("/") else f"{_HERE}/{path}"
        try:
            with self._open(method, whole, body) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise OSError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error

    def events(self, kind: str) -> Iterator[Json]:
        """What happens to objects of a kind, from all that there are; ends when the server ends it."""
        with self._open("GET", f"{_HERE}/{kind}?watch=true", None) as answer:
            for line in answer:
                yield json.loads(line)

    def kubeconfig(self) -> Json:
        """What Kubernetes' clients read of it, which take a file of YAML."""
        cluster = {"server": self.address}
        if self.authority is not None:
            cluster["certificate-authority"] = str(self.authority)
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": self.token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": "default"}}],
        }

    def _open(self, method: str, path: str, body: Json | None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)  # noqa: S310
        trusted = None if self.authority is None else ssl.create_default_context(cafile=str(self.authority))
        ways: list[Any] = [urllib.request.ProxyHandler({})]
        if trusted is not None:
            ways.append(urllib.request.HTTPSHandler(context=trusted))
        return urllib.request.build_opener(*ways).open(request)
