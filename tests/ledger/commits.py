"""Batches of a ledger's pipeline that are committed, without a table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, Transaction
from airflow_provider_slshudi.planning.ranges import Range

PIPELINE = "clicks"
_OTHER_SHARD = 99
_numbers = itertools.count(1)


def prepare(
    ledger: Ledger,
    ranges: Sequence[Range] = (),
    partitions: Mapping[str, int] | None = None,
    kind: Kind = Kind.TAIL,
    pipeline: str = PIPELINE,
) -> Transaction:
    """A batch that has read `ranges`, or others, and written rows, by partition, and waits for its commit."""
    number = next(_numbers)
    ranges = ranges or [Range(_OTHER_SHARD, number, number + 1)]
    planned = ledger.begin(pipeline, kind, ranges, "dag", f"run-{number}")
    ledger.opened(planned.id, 1, f"2026112107{number:08}")
    rows = sum((partitions or {}).values())
    totals = [RangeTotals(item, rows if index == 0 else 0, 0, None, None) for index, item in _read(ranges)]
    return ledger.prepared(planned.id, 1, {"stats": []}, totals, partitions=partitions)


def commit(
    ledger: Ledger,
    ranges: Sequence[Range] = (),
    partitions: Mapping[str, int] | None = None,
    kind: Kind = Kind.TAIL,
    pipeline: str = PIPELINE,
) -> Transaction:
    """Such a batch, committed."""
    return complete(ledger, prepare(ledger, ranges, partitions, kind, pipeline))


def complete(ledger: Ledger, prepared: Transaction) -> Transaction:
    """Tells the ledger that the batch is committed."""
    return ledger.committed(prepared.id, 1, f"{prepared.instant}9")


def _read(ranges: Sequence[Range]) -> list[tuple[int, Range]]:
    return list(enumerate(item for item in ranges if not item.gap))
