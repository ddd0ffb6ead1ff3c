"""Rolls an instant back with Hudi's write client.

`job.verbs` rolls the quarantine's part back first; `hudi.markers` and `hudi.leftovers` know what a writer left beside
its markers. Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata import require_none_later
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.storage import Storage


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending instant off the timeline and deletes the files that its markers name."""
    with client(gateway, pipeline) as writer:
        require_none_later(writer, Storage(pipeline.table.path), instant)
        writer.rollback(instant)
