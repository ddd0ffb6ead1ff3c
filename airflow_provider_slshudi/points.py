"""The points at which a job can be made to die: one place that names them, for tests of recovery.

A process whose environment has SLSHUDI_DIE_AT set to a point's name kills its Spark driver, JVM and Python, with
SIGKILL when it gets there. Without it a point is one look into the environment.
"""

from __future__ import annotations

import os
import signal
from enum import Enum

DIE_AT = "SLSHUDI_DIE_AT"


class Point(str, Enum):
    """Before and after each change that a job makes to the table."""

    OPEN_OWNED = "open-owned"
    OPEN_REQUESTED = "open-requested"
    APPEND_STARTED = "append-started"
    APPEND_INFLIGHT = "append-inflight"
    APPEND_WRITTEN = "append-written"
    APPEND_LEFT_MANIFEST = "append-left-manifest"
    COMMIT_STARTED = "commit-started"
    COMMIT_COMPLETED = "commit-completed"
    ROLLBACK_STARTED = "rollback-started"
    ROLLBACK_COMPLETED = "rollback-completed"


def reach(point: Point) -> None:
    """Dies here where that was asked for."""
    if os.environ.get(DIE_AT) == point.value:
        # spark-submit's JVM started this interpreter; the JVM is what the driver is.
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
