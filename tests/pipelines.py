"""Pipelines for tests, made from one description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_slshudi.config import Pipeline


def ad_events(location: Path | str, **changes: Any) -> Pipeline:
    """A small pipeline into `location`, a directory or URI; `changes` replace top-level fields."""
    path = f"file://{location}" if isinstance(location, Path) else location
    description: dict[str, Any] = {
        "name": "ad_events",
        "source": {"project": "ads", "logstore": "events"},
        "table": {
            "path": path,
            "name": "ad_events",
            "partition": {"by": "event_time", "column": "event_time"},
        },
        "columns": [
            {"name": "event_id"},
            {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
            {"name": "price", "type": "double"},
            {"name": "clicks", "type": "bigint"},
        ],
        "rest_column": "rest",
    }
    return Pipeline.model_validate({**description, **changes})
