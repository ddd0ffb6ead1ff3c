"""Which ranges of each shard are covered by batches, on a connection, and an audit of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection, bindparam, delete, select

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.pipeline_rows import shard_row
from airflow_provider_slshudi.ledger.records import Audit, RangeTotals, State
from airflow_provider_slshudi.planning.ranges import Density, Range, merge, overlap, subtract


def cover(connection: Connection, pipeline: str, ranges: Sequence[Range]) -> None:
    """Adds `ranges` to the coverage and keeps it in as few intervals as possible; the pipeline must be locked.

    Writes only intervals that change: a tail's batch, whose intervals grow, changes one row of each of its shards.
    """
    before = reads.coverage_of(connection, pipeline, {item.shard for item in ranges})
    after = merge([*before, *ranges])
    table = models.coverage
    stale_keys = {(item.shard, item.begin) for item in before} - {(item.shard, item.begin) for item in after}
    if stale_keys:
        keys = (table.c.shard == bindparam("of_shard"), table.c.begin_cursor == bindparam("of_begin"))
        connection.execute(
            delete(table).where(table.c.pipeline == pipeline, *keys),
            [{"of_shard": shard, "of_begin": begin} for shard, begin in sorted(stale_keys)],
        )
    stored_ranges = set(before)
    upsert(
        connection,
        table,
        [
            {"pipeline": pipeline, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
            for item in after
            if item not in stored_ranges
        ],
        ["end_cursor"],
    )


def learn_density(connection: Connection, pipeline: str, totals: Sequence[RangeTotals]) -> None:
    """Moves each shard's bytes and rows per log group half the way to this batch's; the first batch sets them."""
    sums: dict[int, tuple[int, int, int]] = {}
    for item in totals:
        groups, bytes_, rows = sums.get(item.range.shard, (0, 0, 0))
        sums[item.range.shard] = (groups + len(item.range), bytes_ + item.bytes, rows + item.rows)
    before = reads.density(connection, pipeline)
    changed = []
    # The rows are written whole; a shard that was never saved has none.
    for stored in reads.shards(connection, pipeline):
        if stored.id in sums:
            groups, bytes_, rows = sums[stored.id]
            new = Density(bytes_ / groups, rows / groups)
            old = before.get(stored.id, new)
            figures = {"bytes_per_group": (old.bytes + new.bytes) / 2, "rows_per_group": (old.rows + new.rows) / 2}
            changed.append(shard_row(pipeline, stored) | figures)
    upsert(connection, models.shards, changed, ["bytes_per_group", "rows_per_group"])


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
    ranges, transactions = models.ranges.c, models.transactions.c
    query = select(ranges.shard, ranges.begin_cursor, ranges.end_cursor).join(
        models.transactions, ranges.transaction_id == transactions.id
    )
    query = query.where(transactions.pipeline == pipeline, transactions.state == State.COMMITTED.value)
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(query.order_by(ranges.shard, ranges.begin_cursor))
    return (Range(*row) for row in rows)


def _packed(connection: Connection, pipeline: str) -> Iterator[list[Range]]:
    """The packed ranges, many at a time, in no order."""
    part: list[Range] = []
    for item in reads.packed(connection, pipeline):
        part.append(Range(item.shard, item.begin_cursor, item.end_cursor))
        if len(part) == _PACKED_AT_ONCE:
            yield part
            part = []
    yield part
