"""The details of events, which are text or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def items(detail: str) -> Mapping[str, Any] | None:
    """An event's items; None where its detail is text."""
    try:
        found = json.loads(detail)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
