"""What a backfill would read and how long it would take, before anything starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.ledger.states import Kind, State
from airflow_provider_slshudi.planning.windows import MOST_RANGES, filled, sizes
from airflow_provider_slshudi.protocol.plan import BackfillRequest, left_of
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import Range

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
    left = left_of(work, request)
    if not left:
        return Estimate([], 0, 0, 0, 0, 0.0)
    groups: Counter[int] = Counter()
    for item in left:
        groups[item.shard] += len(item)
    name = work.pipeline.name
    size, rows = sizes(groups, filled(groups, work.ledger.density(name)))
    if size is None:
        return Estimate(left, groups.total(), None, None, None, None)
    batches = max(math.ceil(size / work.pipeline.batch.max_bytes), math.ceil(len(left) / MOST_RANGES), 1)
    rate = pace(work.ledger.last(name, BATCHES, State.COMMITTED))
    return Estimate(left, groups.total(), size, rows, batches, None if rate is None else size / rate)


def pace(batches: Iterable[Transaction]) -> float | None:
    """Raw bytes a second of batches that read logs, from plan to commit; None where there are none."""
    read = [item for item in batches if item.kind in (Kind.TAIL, Kind.BACKFILL) and item.bytes]
    seconds = sum((item.changed - item.created).total_seconds() for item in read)
    return sum(item.bytes for item in read) / seconds if seconds else None
