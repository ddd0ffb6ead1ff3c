"""How a step tells a job what to do: a verb and a small JSON on the command line, nothing in it secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

REASON = "slshudi: "
"""What a job's last line begins with where it failed; the reason follows."""


class Verb(str, Enum):
    """What a job can do."""

    OPEN = "open"
    APPEND = "append"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    VERIFY = "verify"
    PLAN_CLEAN = "plan-clean"
    CLEAN = "clean"
    ARCHIVE = "archive"
    COUNT_QUARANTINE = "count-quarantine"
    PLAN_CLUSTERING = "plan-clustering"
    CLUSTER = "cluster"
    COMPLETE_CLUSTERING = "complete-clustering"
    PLAN_COMPACTION = "plan-compaction"
    COMPACT = "compact"
    COMPLETE_COMPACTION = "complete-compaction"
    COMPARE_METADATA = "compare-metadata"
    REBUILD_METADATA = "rebuild-metadata"
    SYNC = "sync"


IN_SESSION = frozenset({Verb.VERIFY, Verb.CLUSTER, Verb.COMPACT})
"""Verbs whose executors need Hudi's classes."""

DISTRIBUTED = IN_SESSION | {Verb.APPEND}
"""Verbs whose work a cluster's executors do; the others are a decision's seconds on the machine that decides."""


@dataclass(frozen=True)
class JobOrder:
    """What one job works on.

    Attributes:
        pipeline: the pipeline as its model's JSON.
        transaction, token, instant: empty or 0 where the verb needs none.
        digest: commit only, the SHA-256 of the manifest that was recorded.
        extra: commit only, the SHA-256 of what goes into the commit's extra metadata.
        until: when the job is to be over, on `time.monotonic`'s clock; 0 where it takes its time.
    """

    pipeline: dict[str, Any]
    transaction: str = ""
    token: int = 0
    instant: str = ""
    digest: str = ""
    extra: str = ""
    until: float = 0.0

    def to_json(self) -> str:
        """The command-line form."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> JobOrder:
        """The order that a command line holds."""
        return cls(**json.loads(text))
