"""Compares the coverage, which planning uses, with the ranges of committed transactions, which the table holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, select

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.records import Audit
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.ranges import Range, merge, overlap, subtract

_AT_ONCE = 1_000
_PACKED_AT_ONCE = 100_000


def audit(connection: Connection, pipeline: str) -> Audit:
    """See `Ledger.audit`. Reads the whole history, a part of it at a time."""
    covered = reads.coverage(connection, pipeline)
    union, twice = _joined(_committed(connection, pipeline))
    for part in _packed(connection, pipeline):
        old, again = _joined(sorted(part))
        twice += again + overlap(union, old)
        union = merge([*union, *old])
    return Audit(subtract(union, covered), subtract(covered, union), merge(twice))


def _joined(ranges: Iterable[Range]) -> tuple[list[Range], list[Range]]:
    """Sorted ranges in as few intervals as possible, and what is in two of them."""
    union: list[Range] = []
    twice: list[Range] = []
    for item in ranges:
        last = union[-1] if union else None
        if last is None or last.shard != item.shard or item.begin > last.end:
            union.append(item)
            continue
        if item.begin < last.end:
            twice.append(Range(item.shard, item.begin, min(item.end, last.end)))
        union[-1] = Range(last.shard, last.begin, max(last.end, item.end))
    return union, twice


def _committed(connection: Connection, pipeline: str) -> Iterator[Range]:
    """The ranges of committed transactions, gaps too, sorted."""
    ranges, of = models.ranges.c, models.transactions.c
    query = select(ranges.shard, ranges.begin_cursor, ranges.end_cursor).join(
        models.transactions, ranges.transaction_id == of.id
    )
    query = query.where(of.pipeline == pipeline, of.state == State.COMMITTED.value)
    found = connection.execution_options(yield_per=_AT_ONCE).execute(query.order_by(ranges.shard, ranges.begin_cursor))
    return (Range(*row) for row in found)


def _packed(connection: Connection, pipeline: str) -> Iterator[list[Range]]:
    """The packed ranges, many at a time, in no order."""
    part: list[Range] = []
    for item in reads.packed(connection, pipeline):
        part.append(Range(item.shard, item.begin_cursor, item.end_cursor))
        if len(part) == _PACKED_AT_ONCE:
            yield part
            part = []
    yield part
