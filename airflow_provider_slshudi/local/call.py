"""A verified request, and the values that endpoints read from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from airflow_provider_slshudi.exceptions import CursorError
from airflow_provider_slshudi.local.quotas import Quotas
from airflow_provider_slshudi.local.service_errors import ServiceFault, invalid_cursor, parameter_invalid
from airflow_provider_slshudi.local.store import Logstore, Store
from airflow_provider_slshudi.sls import cursors

LARGEST_BODY = 10 * 1024 * 1024
"""Bytes of a put, and about the bytes that one pull answers with, decompressed."""

_MOST_DIGITS = 19


def number(text: str) -> int | None:
    """The whole number that `text` writes in ASCII digits; None if it is no number, or has too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


@dataclass(frozen=True, slots=True)
class Call:
    """A verified request; `path` holds the names in it."""

    store: Store
    quotas: Quotas
    project: str
    path: Mapping[str, str]
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body, which is a JSON object."""
        content = self._parsed()
        if not isinstance(content, dict):
            raise ServiceFault(400, "PostBodyInvalid", "The body is no JSON object.")
        return content

    def ids(self) -> list[int]:
        """The body, which is a JSON array of whole numbers."""
        content = self._parsed()
        if not isinstance(content, list) or not all(type(item) is int for item in content):
            raise ServiceFault(400, "PostBodyInvalid", "The body is no JSON array of shard ids.")
        return content

    def logstore(self) -> Logstore:
        """The logstore that the path names."""
        return self.store.logstore(self.project, self.path["logstore"])

    def shard(self) -> int:
        """The shard that the path names."""
        shard = number(self.path["shard"])
        if shard is None:
            raise parameter_invalid(f"invalid shard id {self.path['shard']!r}")
        return shard

    def cursor(self, name: str) -> int:
        """The cursor that the query holds under `name`."""
        try:
            return cursors.parse(self.query.get(name, ""))
        except CursorError:
            raise invalid_cursor(self.query.get(name, "")) from None

    def _parsed(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


Endpoint = Callable[[Call], Response]
"""A function that answers one operation; its name is the operation's."""
