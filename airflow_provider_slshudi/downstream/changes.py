"""What a consumer is given: commits or complete partitions that it has not confirmed, again after a crash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.pipeline_rows import COMMANDS
from airflow_provider_slshudi.ledger.records import Completion, Consumer, Feed, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.system.processes import is_gone, is_here
from airflow_provider_slshudi.transaction.context import Run
from airflow_provider_slshudi.transaction.dangling import Ended, claimant

MOST = 100
"""How many commits or partitions a consumer is given at once, unless it says otherwise."""
HOLD = timedelta(days=7)
"""For how long cleaning and archival wait for a consumer, unless it says otherwise."""
_LOST_AFTER = timedelta(days=1)
"""After it what a run took that is not known to be over is given to another one."""


@dataclass(frozen=True)
class Commit:
    """A commit of the table.

    Attributes:
        place: in the order in which the ledger heard of commits: 1, 2, 3 ... of each pipeline.
        kind: tail, backfill or replay.
        instant: Hudi's, which each of its rows has as `_hoodie_commit_time`.
        completed: Hudi's completion time.
        rows, bytes: rows read, and their raw bytes.
        partitions: rows by the path of each partition that it wrote to; None where not known, or there are none.
        ranges: what it read, each [shard, begin cursor, end cursor].
        quarantined: how many of the logs are in the quarantine's table; None where a rebuilt ledger does not know.
    """

    place: int
    transaction: str
    kind: str
    instant: str
    completed: str
    rows: int
    bytes: int
    partitions: dict[str, int] | None
    ranges: list[list[int]]
    quarantined: int | None


@dataclass(frozen=True)
class CompletePartition:
    """A partition that became complete; see `records.Completion`, whose `number` is its place here.

    Attributes:
        partition: its value.
        times: 1 at first; more once it was opened and completed again, so that what was made of it is to be replaced.
        commit: the place of the last commit that was in the table by then.
        watermark: all logs that the service received before it (unix seconds) were committed.
    """

    place: int
    partition: str
    times: int
    rows: int
    gaps: int
    commit: int
    watermark: int

    @classmethod
    def of(cls, item: Completion) -> CompletePartition:
        """What the ledger has of it."""
        figures = item.rows, item.gaps, item.place, item.watermark
        return cls(item.number, item.value, item.times, *figures)


@dataclass(frozen=True)
class Changes:
    """What a consumer has taken; `Ledger.confirm` with `last` and `nonce` says that it is done.

    Attributes:
        key: the same text each time that this is given, for sinks that keep what they have.
        first, last: the places of the first and last of them.
        commits: empty for a consumer of partitions. Those that went with a table that was restored, or is gone, are
            missing; there may be none left.
        partitions: empty for a consumer of commits.
    """

    pipeline: str
    consumer: str
    key: str
    first: int
    last: int
    nonce: str
    commits: list[Commit] = field(default_factory=list)
    partitions: list[CompletePartition] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Changes:
        """What `to_dict` made."""
        commits = [Commit(**item) for item in value["commits"]]
        partitions = [CompletePartition(**item) for item in value["partitions"]]
        return cls(**{**value, "commits": commits, "partitions": partitions})

    @property
    def instants(self) -> list[str]:
        """The instants of its commits."""
        return [item.instant for item in self.commits]

    @property
    def rows(self) -> int:
        """The rows of its commits, or of its partitions."""
        return sum(item.rows for item in self.commits) + sum(item.rows for item in self.partitions)


def take(ledger: Ledger, pipeline: str, consumer: str, run: Run, ended: Ended, most: int = MOST) -> Changes | None:
    """Gives the run what the consumer has not confirmed: what a run took that is over, as it was, or what follows.

    Returns None where there is nothing.

    Args:
        ledger: the pipeline's.
        pipeline: its name.
        consumer: its name.
        run: who takes it.
        ended: tells whether a run is over.
        most: how many commits or partitions at most; what was taken before stays as it was.

    Raises:
        ConsumerUnderWay: another run has taken it, and is not known to be over.
        ConsumerBehind: cleaning waited for the consumer as long as it may, and deleted rows as these commits wrote
            them. Of a table without `upsert` no row changes, so all stay readable.
        LedgerError: there is no such consumer.
    """
    stored = ledger.consumer(pipeline, consumer)
    instead = stored.nonce if stored is not None and _is_over(ledger, stored, ended) else None
    taken = ledger.take(pipeline, consumer, most, claimant(run), instead)
    return None if taken is None else _changes(ledger, taken)


def _is_over(ledger: Ledger, consumer: Consumer, ended: Ended) -> bool:
    """Whether who took it confirms no more, as far as that can be known."""
    if consumer.taken is None:
        return False
    airflow, dag_id, run_id = consumer.run
    process = consumer.process or ""
    if dag_id != COMMANDS:
        over = ended(Run(dag_id, run_id, airflow))
    else:
        over = True if is_gone(process) else False if is_here(process) else None
    return ledger.now() - consumer.changed > _LOST_AFTER if over is None else over


def _changes(ledger: Ledger, taken: Consumer) -> Changes:
    first, last = taken.confirmed + 1, taken.taken or 0
    commits, partitions = list[Commit](), list[CompletePartition]()
    if taken.of is Feed.PARTITIONS:
        partitions += map(CompletePartition.of, ledger.completions(taken.pipeline, first - 1, last))
    else:
        transactions = ledger.commits(taken.pipeline, first - 1, last)
        ranges = ledger.ranges_of([item.id for item in transactions])
        commits += (_commit(item, ranges.get(item.id, [])) for item in transactions)
    # A ledger that was lost and rebuilt counts anew: the same places may be of other commits.
    content = json.dumps([[item.instant for item in commits], [asdict(item) for item in partitions]])
    key = f"{taken.span}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return Changes(taken.pipeline, taken.name, key, first, last, taken.nonce or "", commits, partitions)


def _commit(item: Transaction, read: Sequence[Range]) -> Commit:
    ranges = [[part.shard, part.begin, part.end] for part in read if not part.gap]
    quarantined = None if item.manifest is None else int(item.manifest.get("quarantined") or 0)
    partitions = None if item.partitions is None else dict(item.partitions)
    named = item.place or 0, item.id, item.kind.value, item.instant or "", item.completed or ""
    return Commit(*named, item.rows, item.bytes, partitions, ranges, quarantined)
