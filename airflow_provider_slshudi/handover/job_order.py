"""How a step tells a job what to do: a verb on the command line, and JSON without secrets on standard input.

Linux takes no argument of more than 128 KiB, and a pipeline of some hundred columns needs more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum, auto
from functools import cached_property
from tempfile import TemporaryFile
from typing import IO, Any

from airflow_provider_slshudi.config.pipeline import Pipeline

REASON = "slshudi: "
"""Begins the last line of a failed job; the reason follows."""
CPU = "CPU seconds of the driver: "
"""Begins the line of a driver that tells at its end what it took."""
PAGE = "Spark's page: "
"""Begins the line of a driver that has a web page; its address follows."""


def cpu_told(lines: Iterable[str]) -> float | None:
    """The CPU seconds that a driver told in the last of these lines that does; None if it did not."""
    seconds = [line.removeprefix(CPU) for line in lines if line.startswith(CPU)]
    try:
        return float(seconds[-1]) if seconds else None
    except ValueError:
        return None


class Where(Enum):
    """Where a verb's work is done."""

    HERE = auto()
    """On the machine that decides, in seconds."""
    EXECUTORS = auto()
    """By a cluster's executors, which run Python alone."""
    SESSION = auto()
    """By a cluster's executors, which need Hudi's classes."""


class Verb(str, Enum):
    """What a job can do, and where."""

    where: Where

    def __new__(cls, value: str, where: Where = Where.HERE) -> Verb:
        """A verb by its word."""
        verb = str.__new__(cls, value)
        verb._value_, verb.where = value, where
        return verb

    OPEN = "open"
    APPEND = "append", Where.EXECUTORS
    COMMIT = "commit"
    ROLLBACK = "rollback"
    VERIFY = "verify", Where.SESSION
    PLAN_CLEAN = "plan-clean"
    CLEAN = "clean"
    ARCHIVE = "archive"
    COUNT_QUARANTINE = "count-quarantine"
    PLAN_CLUSTERING = "plan-clustering"
    CLUSTER = "cluster", Where.SESSION
    COMPLETE_CLUSTERING = "complete-clustering"
    PLAN_COMPACTION = "plan-compaction"
    COMPACT = "compact", Where.SESSION
    COMPLETE_COMPACTION = "complete-compaction"
    COMPARE_METADATA = "compare-metadata"
    REBUILD_METADATA = "rebuild-metadata"
    LOOK = "look"
    UNESCAPE = "unescape"
    VERSION = "version"
    SYNC = "sync"

    @property
    def is_distributed(self) -> bool:
        """Whether a cluster's executors do the work."""
        return self.where is not Where.HERE


@dataclass(frozen=True)
class JobOrder:
    """What one job works on.

    Attributes:
        pipeline: the pipeline as its model's JSON.
        transaction, token, instant: empty or 0 where the verb needs none.
        digest: the SHA-256 of the note that the verb works by: an append's order, a commit's recorded manifest, a
            verification's question, a mending's findings, a rewriting's manifest; empty where it works by none.
        extra: commit only, the SHA-256 of what goes into the commit's extra metadata.
        creates: open only, whether to make the table if it is missing.
        duties: open only, the duties that the table should keep; empty where it keeps them already.
        size: append only, about how many raw bytes it reads; None where it is not known.
        until: when the job must be over, by `system.processes.clock`; 0 where it has no deadline.
        claim: the claim under which it changes the table's timeline, see `handover.fencing`; empty where it needs none.
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
    size: float | None = None

    @classmethod
    def of(cls, pipeline: Pipeline, **fields: Any) -> JobOrder:
        """The order of a pipeline that is validated already."""
        order = cls(pipeline.model_dump(mode="json"), **fields)
        order.__dict__["described"] = pipeline
        return order

    @cached_property
    def described(self) -> Pipeline:
        """The pipeline, validated at its first use."""
        return Pipeline.model_validate(self.pipeline)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> JobOrder:
        """The order that `to_json` wrote."""
        return cls(**json.loads(text))

    @contextmanager
    def as_input(self) -> Iterator[IO[bytes]]:
        """The order as a process's standard input: a nameless file, which vanishes once no process has it open."""
        with TemporaryFile() as content:
            content.write(self.to_json().encode())
            content.seek(0)
            yield content
