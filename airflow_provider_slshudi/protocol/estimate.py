"""What a backfill would read and how long it would take, before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from airflow_provider_slshudi.ledger.states import Kind, State
from airflow_provider_slshudi.planning.windows import MOST_RANGES, estimate
from airflow_provider_slshudi.protocol.plan import BackfillRequest, left_of
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import Range

_BATCHES = 20
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
    groups = sum(map(len, left))
    density = work.ledger.density(work.pipeline.name)
    if not left:
        return Estimate([], 0, 0, 0, 0, 0.0)
    if not density:
        return Estimate(left, groups, None, None, None, None)
    known = [item for item in left if item.shard in density]
    # Of a shard without a batch the others tell.
    scale = groups / sum(map(len, known)) if known else 0.0
    size = round(estimate(known, density) * scale) if known else round(estimate(left, density))
    rows = round(sum(len(item) * density[item.shard].rows for item in known) * scale) if known else None
    batches = max(math.ceil(size / work.pipeline.batch.max_bytes), math.ceil(len(left) / MOST_RANGES), 1)
    pace = _pace(work)
    return Estimate(left, groups, size, rows, batches, None if pace is None else size / pace)


def _pace(work: Work) -> float | None:
    """Raw bytes a second of recent batches, from plan to commit; None where there are none."""
    found = work.ledger.last(work.pipeline.name, _BATCHES, State.COMMITTED)
    read = [item for item in found if item.kind in (Kind.TAIL, Kind.BACKFILL) and item.bytes]
    seconds = sum((item.changed - item.created).total_seconds() for item in read)
    return sum(item.bytes for item in read) / seconds if seconds else None
