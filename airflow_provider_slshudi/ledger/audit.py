"""Compares the coverage, which planning uses, with the ranges of committed transactions, which the table holds."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, select

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.records import Audit
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.ranges import Range, merge, subtract

_AT_ONCE = 1_000


def audit(connection: Connection, pipeline: str) -> Audit:
    """See `Ledger.audit`. Reads the whole history, a part of it at a time."""
    covered = reads.coverage(connection, pipeline)
    union: list[Range] = []
    twice: list[Range] = []
    for item in _committed(connection, pipeline):
        last = union[-1] if union else None
        if last is None or last.shard != item.shard or item.begin > last.end:
            union.append(item)
            continue
        if item.begin < last.end:
            twice.append(Range(item.shard, item.begin, min(item.end, last.end)))
        union[-1] = Range(last.shard, last.begin, max(last.end, item.end))
    return Audit(subtract(union, covered), subtract(covered, union), merge(twice))


def _committed(connection: Connection, pipeline: str) -> Iterator[Range]:
    """The ranges of committed transactions, gaps too, sorted."""
    ranges, of = models.ranges.c, models.transactions.c
    query = select(ranges.shard, ranges.begin_cursor, ranges.end_cursor).join(
        models.transactions, ranges.transaction_id == of.id
    )
    query = query.where(of.pipeline == pipeline, of.state == State.COMMITTED.value)
    found = connection.execution_options(yield_per=_AT_ONCE).execute(query.order_by(ranges.shard, ranges.begin_cursor))
    return (Range(*row) for row in found)
