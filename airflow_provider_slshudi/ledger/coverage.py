"""What a commit changes for the pipeline: its coverage and the density of its shards."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.pipelines import shard_row
from airflow_provider_slshudi.ledger.records import RangeTotals
from airflow_provider_slshudi.ledger.upsert import upsert
from airflow_provider_slshudi.ranges import Density, Range, merge


def cover(connection: Connection, pipeline: str, ranges: Sequence[Range]) -> None:
    """Adds `ranges` to the coverage and keeps it in as few intervals as possible; the pipeline must be locked.

    Writes only intervals that change: a tail's batch, whose intervals grow, changes one row of each of its shards.
    """
    before = reads.coverage_of(connection, pipeline, {item.shard for item in ranges})
    after = merge([*before, *ranges])
    table = models.coverage
    gone = {(item.shard, item.begin) for item in before} - {(item.shard, item.begin) for item in after}
    if gone:
        keys = (table.c.shard == bindparam("of_shard"), table.c.begin_cursor == bindparam("of_begin"))
        connection.execute(
            delete(table).where(table.c.pipeline == pipeline, *keys),
            [{"of_shard": shard, "of_begin": begin} for shard, begin in sorted(gone)],
        )
    known = set(before)
    upsert(
        connection,
        table,
        [
            {"pipeline": pipeline, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
            for item in after
            if item not in known
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
