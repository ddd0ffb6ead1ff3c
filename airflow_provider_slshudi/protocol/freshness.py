"""What a plan keeps of its logs' age and of the pipeline's promise; only words and pages depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline

SINCE = "since"
"""Item of the event PLANNED: the oldest log that was unread then was received at this time (unix seconds) or later."""
PROMISE = "promise"
"""Item of the event PLANNED: the promised seconds, and how fast a shard (None: no limit) and all shards are read."""


def of_plan(pipeline: Pipeline, since: int | None) -> Mapping[str, Any]:
    """Items of the event PLANNED of a tail's batch."""
    found: dict[str, Any] = {} if since is None else {SINCE: since}
    if pipeline.promised is not None:
        source = pipeline.source
        limits = [source.read_bytes_per_second, source.total_bytes_per_second]
        found[PROMISE] = [pipeline.promised.total_seconds(), *limits]
    return found
