"""How a step tells a job what to do: a verb on the command line, and a JSON on standard input, nothing in it secret.

Linux takes no argument of more than 128 KiB, which a pipeline of some hundred columns has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from tempfile import TemporaryFile
from typing import IO, Any

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
    LOOK = "look"
    PLAN_MENDING = "plan-mending"
    UNESCAPE = "unescape"
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
        creates: open only, whether a table that is not there is to be made.
        duties: open only, what the table is to keep of the pipeline's shards; empty where it has that.
        until: when the job is to be over, on `processes.clock`'s; 0 where it takes its time.
        claim: the claim under which it changes the table's timeline, see `exchange.claim`; empty where it needs none.
    """

    pipeline: dict[str, Any]
    transaction: str = ""
    token: int = 0
    instant: str = ""
    digest: str = ""
    extra: str = ""
    until: float = 0.0
    claim: str = ""
    creates: bool = False
    duties: str = ""

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> JobOrder:
        """The order that `to_json` wrote."""
        return cls(**json.loads(text))

    @contextmanager
    def as_input(self) -> Iterator[IO[bytes]]:
        """The order as a process's standard input: a file without a name, gone with whoever has it open."""
        with TemporaryFile() as content:
            content.write(self.to_json().encode())
            content.seek(0)
            yield content
