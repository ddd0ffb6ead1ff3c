"""Hudi's names for the actions that pipelines take (hudi.apache.org/docs/timeline), and which plans are ours."""

from __future__ import annotations

from airflow_provider_slshudi.config.table import Table
from airflow_provider_slshudi.hudi.layout import Instant
from airflow_provider_slshudi.hudi.timeline import Timeline

COMPACTION = "compaction"
COMMIT_ACTION = "commit"
SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
"""Operations that move rows into other files and change no row."""
OWNER = "slshudi.service"
"""Key in a table service's plan; its value is the pipeline's name."""


def action(table: Table) -> str:
    """Hudi's name for a commit of the table."""
    return "deltacommit" if table.type == "merge_on_read" else COMMIT_ACTION


def planned_by_us(timeline: Timeline, instant: Instant, pipeline: str) -> bool:
    """Whether this pipeline planned a pending instant; a plan that was cut off counts as its own."""
    plan = timeline.plan(instant)
    return not plan or (plan.get("extraMetadata") or {}).get(OWNER) == pipeline
