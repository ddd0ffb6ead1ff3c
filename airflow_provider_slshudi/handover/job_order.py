"""What a job does, and what it works on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from pydantic import ConfigDict

from airflow_provider_slshudi.config.pipeline import Pipeline


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
        drains: append only, whether batches of the pipeline follow one another, which one driver may append.
        until: when the job must be over, by `system.processes.clock`; 0 where it has no deadline.
        keep: plan-clean and archive only, the oldest instant that a consumer needs; it and later ones stay. Empty where
            none does.
        claim: the claim under which it changes the table's timeline, see `handover.fencing`; empty where it needs none.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

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
    drains: bool = False
    keep: str = ""

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
