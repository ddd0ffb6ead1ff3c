"""Names the points of the protocol at which state changes.

Each process announces a point that it reaches as an audit event (PEP 578), so that tests hold or kill it there.
"""

from __future__ import annotations

import sys
from enum import Enum


class Where(Enum):
    """The process that reaches a point: the task that runs a step, its Spark driver, an executor's Python worker."""

    TASK = "task"
    DRIVER = "driver"
    WORKER = "worker"


class Point(str, Enum):
    """Before and after each change of ledger, timeline or storage; the first word is the step."""

    where: Where

    def __new__(cls, name: str, where: Where) -> Point:
        """A member whose value is its name, as files are named after it."""
        point = str.__new__(cls, name)
        point._value_ = name
        point.where = where
        return point

    SETTLE_LEASED = "settle-leased", Where.TASK
    SETTLE_TAKEN_OVER = "settle-taken-over", Where.TASK
    SETTLE_DECIDED = "settle-decided", Where.TASK
    SETTLE_FENCED = "settle-fenced", Where.TASK
    ROLLBACK_STARTED = "rollback-started", Where.DRIVER
    ROLLBACK_QUARANTINE = "rollback-quarantine", Where.DRIVER
    ROLLBACK_COMPLETED = "rollback-completed", Where.DRIVER
    SETTLE_ROLLED_BACK = "settle-rolled-back", Where.TASK
    SETTLE_ABORTED = "settle-aborted", Where.TASK
    SETTLE_CLEANED = "settle-cleaned", Where.TASK
    PLAN_LEASED = "plan-leased", Where.TASK
    PLAN_SHARDS_SAVED = "plan-shards-saved", Where.TASK
    PLAN_BEGINNING = "plan-beginning", Where.TASK
    PLAN_BEGUN = "plan-begun", Where.TASK
    OPEN_STARTED = "open-started", Where.TASK
    OPEN_TABLE_READY = "open-table-ready", Where.DRIVER
    OPEN_OWNED = "open-owned", Where.DRIVER
    OPEN_REQUESTED = "open-requested", Where.DRIVER
    OPEN_SEEN = "open-seen", Where.TASK
    OPEN_ORDERED = "open-ordered", Where.TASK
    OPEN_TOLD = "open-told", Where.TASK
    APPEND_LAUNCHED = "append-launched", Where.TASK
    APPEND_STARTED = "append-started", Where.DRIVER
    APPEND_INFLIGHT = "append-inflight", Where.DRIVER
    APPEND_TASK_STARTED = "append-task-started", Where.WORKER
    APPEND_TASK_MARKING = "append-task-marking", Where.WORKER
    APPEND_TASK_MARKED = "append-task-marked", Where.WORKER
    APPEND_TASK_ENDED = "append-task-ended", Where.WORKER
    APPEND_TASK_NAMED = "append-task-named", Where.WORKER
    APPEND_TASK_WRITTEN = "append-task-written", Where.WORKER
    APPEND_TASK_STAGED = "append-task-staged", Where.WORKER
    APPEND_QUARANTINE_REQUESTED = "append-quarantine-requested", Where.DRIVER
    APPEND_QUARANTINE_OPEN = "append-quarantine-open", Where.DRIVER
    APPEND_WRITTEN = "append-written", Where.DRIVER
    APPEND_LEFT_MANIFEST = "append-left-manifest", Where.DRIVER
    APPEND_ENDED = "append-ended", Where.TASK
    RECORD_CHECKED = "record-checked", Where.TASK
    RECORD_HALF = "record-half", Where.TASK
    RECORD_TOLD = "record-told", Where.TASK
    COMMIT_LEASED = "commit-leased", Where.TASK
    COMMIT_DECIDED = "commit-decided", Where.TASK
    COMMIT_STARTED = "commit-started", Where.DRIVER
    COMMIT_LISTED = "commit-listed", Where.DRIVER
    COMMIT_LOOKED = "commit-looked", Where.DRIVER
    COMMIT_COMPLETED = "commit-completed", Where.DRIVER
    COMMIT_QUARANTINED = "commit-quarantined", Where.DRIVER
    COMMIT_SEEN = "commit-seen", Where.TASK
    COMMIT_HALF = "commit-half", Where.TASK
    COMMIT_TOLD = "commit-told", Where.TASK
    COMMIT_CLEANED = "commit-cleaned", Where.TASK
    CLUSTER_LEASED = "cluster-leased", Where.TASK
    CLUSTER_PLANNED = "cluster-planned", Where.DRIVER
    CLUSTER_INFLIGHT = "cluster-inflight", Where.DRIVER
    CLUSTER_WRITTEN = "cluster-written", Where.DRIVER
    CLUSTER_LEFT_MANIFEST = "cluster-left-manifest", Where.DRIVER
    CLUSTER_STARTED = "cluster-started", Where.DRIVER
    CLUSTER_COMPLETED = "cluster-completed", Where.DRIVER
    CLUSTER_SEEN = "cluster-seen", Where.TASK
    COMPACT_LEASED = "compact-leased", Where.TASK
    COMPACT_PLANNED = "compact-planned", Where.DRIVER
    COMPACT_INFLIGHT = "compact-inflight", Where.DRIVER
    COMPACT_WRITTEN = "compact-written", Where.DRIVER
    COMPACT_LEFT_MANIFEST = "compact-left-manifest", Where.DRIVER
    COMPACT_STARTED = "compact-started", Where.DRIVER
    COMPACT_COMPLETED = "compact-completed", Where.DRIVER
    COMPACT_SEEN = "compact-seen", Where.TASK
    CLEAN_LEASED = "clean-leased", Where.TASK
    CLEAN_PLANNED = "clean-planned", Where.DRIVER
    CLEAN_DELETED = "clean-deleted", Where.TASK
    CLEAN_STARTED = "clean-started", Where.DRIVER
    CLEAN_COMPLETED = "clean-completed", Where.DRIVER
    METADATA_LEASED = "metadata-leased", Where.TASK
    METADATA_STARTED = "metadata-started", Where.DRIVER
    METADATA_DELETED = "metadata-deleted", Where.DRIVER
    METADATA_MADE = "metadata-made", Where.DRIVER
    VERSION_CHANGED = "version-changed", Where.DRIVER
    ARCHIVE_LEASED = "archive-leased", Where.TASK
    ARCHIVE_STARTED = "archive-started", Where.DRIVER
    ARCHIVE_COMPLETED = "archive-completed", Where.DRIVER


def reach(point: Point) -> None:
    """Announces the point to audit hooks, as the event `airflow_provider_slshudi.point`."""
    sys.audit("airflow_provider_slshudi.point", point.value)
