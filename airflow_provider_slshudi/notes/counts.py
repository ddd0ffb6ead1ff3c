"""Counts of the quarantine's logs, left by the driver that counted them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_provider_slshudi.notes import ROOT
from airflow_provider_slshudi.storage import Storage


def leave_counts(storage: Storage, id_: str, counts: Sequence[dict[str, Any]]) -> None:
    """Leaves the counts beside the main table."""
    storage.write(_answer(id_), json.dumps(counts).encode())


def take_counts(storage: Storage, id_: str) -> list[dict[str, Any]]:
    """Returns the counts and removes their file."""
    found: list[dict[str, Any]] = storage.read_json(_answer(id_)) or []
    storage.delete(_answer(id_))
    return found


def _answer(id_: str) -> str:
    return f"{ROOT}/quarantine-{id_}.json"
