"""How long a backfill will take, and how far it has come."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.handover.names import BACKFILL, part_of
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import BACKFILL_DONE, AuditEntry, Kind, State, Transaction
from airflow_provider_slshudi.planning.ranges import Range, by_shard, subtract
from airflow_provider_slshudi.planning.windows import MOST_RANGES, filled, sizes
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.plan import BackfillRequest, left_of

BATCHES = 20
"""The newest batches by which the pace is measured."""


@dataclass(frozen=True)
class Estimate:
    """What a backfill would read; estimates are None where no batch has shown what they are made of.

    Attributes:
        groups: log groups; this is exact.
        bytes, rows: raw bytes and rows, by those of recent log groups.
        batches: how many runs it takes.
        seconds: how long, at the pace of recent batches, one run after the other.
    """

    ranges: list[Range]
    groups: int
    bytes: int | None
    rows: int | None
    batches: int | None
    seconds: float | None


def estimate_backfill(work: Work, request: BackfillRequest) -> Estimate:
    """What the backfill would read; asks the service and changes nothing.

    Raises:
        ConfigError: the request names cursors that the source does not hold.
        SourceError: the service refuses, or does not answer.
    """
    unread_ranges = left_of(work, request)
    if not unread_ranges:
        return Estimate([], 0, 0, 0, 0, 0.0)
    groups: Counter[int] = Counter()
    for item in unread_ranges:
        groups[item.shard] += len(item)
    name = work.pipeline.name
    size, rows = sizes(groups, filled(groups, work.ledger.density(name)))
    if size is None:
        return Estimate(unread_ranges, groups.total(), None, None, None, None)
    batches = max(math.ceil(size / work.pipeline.batch.max_bytes), math.ceil(len(unread_ranges) / MOST_RANGES), 1)
    rate = pace(work.ledger.last(name, BATCHES, State.COMMITTED))
    return Estimate(unread_ranges, groups.total(), size, rows, batches, None if rate is None else size / rate)


def pace(batches: Iterable[Transaction]) -> float | None:
    """Raw bytes a second of batches that read logs, from plan to commit; None where there are none."""
    read = [item for item in batches if item.kind in (Kind.TAIL, Kind.BACKFILL) and item.bytes]
    seconds = sum((item.changed - item.created).total_seconds() for item in read)
    return sum(item.bytes for item in read) / seconds if seconds else None


_log = logging.getLogger(__name__)
_NEWEST = 5


@dataclass(frozen=True)
class Progress:
    """How far a backfill is. Bytes are raw; bytes and rows are estimates, None if no batch tells how large logs are.

    Attributes:
        groups, bytes, rows: what no committed batch had of what was asked for, when the backfill began.
        groups_left, bytes_left, rows_left: what no batch has now.
        rate: raw bytes a second of its newest batches, or of the pipeline's while it has none; from plan to commit.
        seconds: what is left at that rate.
        live: its batch that is under way.
    """

    deed: AuditEntry
    groups: int
    groups_left: int
    bytes: int | None
    bytes_left: int | None
    rows: int | None
    rows_left: int | None
    rate: float | None
    seconds: float | None
    live: Transaction | None

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1, by bytes, or by log groups if the bytes are not known."""
        if self.bytes and self.bytes_left is not None:
            return 1 - self.bytes_left / self.bytes
        return 1 - self.groups_left / self.groups if self.groups else 1.0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return not self.groups_left

    @property
    def failure(self) -> str:
        """Why its run failed; empty where it did not, or where others have read what was left."""
        return "" if self.is_over else self.deed.failure


def began(work: Work, who: str, said: str, run: str, cursors: Mapping[int, tuple[int, int]]) -> None:
    """Keeps that a backfill began, once for each `run`, and how much of its `cursors` no batch has committed.

    Never fails: a plan does not depend on it.

    Args:
        work: the pipeline's.
        who: the person.
        said: the request, in words.
        run: the DAG run, as text.
        cursors: {shard: (begin, end)} of the request.
    """
    name = work.pipeline.name
    try:
        covered = by_shard(work.ledger.coverage(name))
        about = {
            str(shard): [str(begin), str(end), _unread(Range(shard, begin, end), covered)]
            for shard, (begin, end) in cursors.items()
        }
        work.ledger.ask(name, BACKFILL, who, said, run, about)
    except LedgerError as error:
        _log.warning("that the backfill began is not kept: %s", error)


def ended(work: Work, run: str) -> None:
    """Keeps that nothing is left of the backfill that began with `run`; never fails."""
    try:
        work.ledger.answer(work.pipeline.name, BACKFILL, run, BACKFILL_DONE)
    except LedgerError as error:
        _log.warning("that the backfill ended is not kept: %s", error)


def refused(ledger: Ledger, pipeline: str) -> list[AuditEntry]:
    """The newest requests for a backfill that failed before a batch began, the newest first."""
    return [deed for deed in ledger.audit_entries(pipeline, _NEWEST, BACKFILL) if not deed.about and deed.failure]


def progress(ledger: Ledger, pipeline: str) -> list[Progress]:
    """How far the newest backfills are, the newest first; asks the ledger alone."""
    deeds = [deed for deed in ledger.audit_entries(pipeline, _NEWEST, BACKFILL) if deed.about]
    if not deeds:
        return []
    covered, density = by_shard(ledger.coverage(pipeline)), ledger.density(pipeline)
    recent = ledger.last(pipeline, BATCHES, State.COMMITTED)
    live = [item for item in ledger.live(pipeline) if item.kind is Kind.BACKFILL]
    backfills = []
    for deed in deeds:
        requested_spans = {
            int(shard): (int(begin), int(end), groups) for shard, (begin, end, groups) in (deed.about or {}).items()
        }
        groups = {shard: count for shard, (_, _, count) in requested_spans.items()}
        unread_groups = {
            shard: _unread(Range(shard, begin, end), covered) for shard, (begin, end, _) in requested_spans.items()
        }
        densities = filled(groups, density)
        (size, rows), (size_left, rows_left) = sizes(groups, densities), sizes(unread_groups, densities)
        own = [item for item in recent if item.kind is Kind.BACKFILL and item.created >= deed.at]
        rate = pace(own) or pace(recent)
        seconds = None if size_left is None or rate is None else size_left / rate
        mine = next((item for item in live if _is_of(item, deed)), None)
        counts = sum(groups.values()), sum(unread_groups.values())
        backfills.append(Progress(deed, *counts, size, size_left, rows, rows_left, rate, seconds, mine))
    return backfills


def _unread(asked: Range, covered: Mapping[int, Sequence[Range]]) -> int:
    """Log groups of a range that no batch has committed."""
    return sum(map(len, subtract([asked], covered.get(asked.shard, []))))


def _is_of(transaction: Transaction, deed: AuditEntry) -> bool:
    """Whether a transaction is a part of a backfill: the parts' runs have the first run's name and a number."""
    return f"{transaction.dag_id}/{part_of(transaction.run_id)[0]}" == deed.run
