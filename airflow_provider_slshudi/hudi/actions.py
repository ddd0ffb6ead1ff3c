"""What Hudi's timeline calls the actions that pipelines take (hudi.apache.org/docs/timeline), and which are ours."""

from __future__ import annotations

from airflow_provider_slshudi.config.table import Table
from airflow_provider_slshudi.hudi.timeline import Instant, Timeline

CLUSTERING = "clustering"
COMPACTION = "compaction"
COMMIT_ACTION = "commit"
OWNER = "slshudi.service"
"""What the plan of a table service carries: the pipeline's name."""


def action(table: Table) -> str:
    """What Hudi calls a commit of the table."""
    return "deltacommit" if table.type == "merge_on_read" else COMMIT_ACTION


def planned_by_us(timeline: Timeline, instant: Instant, pipeline: str) -> bool:
    """Whether this pipeline's services planned a pending instant; a plan that was cut off is nobody else's work."""
    plan = timeline.plan(instant)
    return not plan or (plan.get("extraMetadata") or {}).get(OWNER) == pipeline
