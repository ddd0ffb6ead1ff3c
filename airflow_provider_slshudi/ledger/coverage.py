"""What a commit changes for the pipeline: its coverage and the density of its shards."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, update

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.records import Density, RangeTotals
from airflow_provider_slshudi.ranges import Range, merge


def cover(connection: Connection, pipeline: str, ranges: Sequence[Range]) -> None:
    """Adds `ranges` to the coverage and keeps it in as few intervals as possible; the pipeline must be locked."""
    before = set(reads.coverage(connection, pipeline))
    after = set(merge([*before, *ranges]))
    table = models.coverage
    if before - after:
        keys = (table.c.shard == bindparam("of_shard"), table.c.begin_cursor == bindparam("of_begin"))
        gone = [{"of_shard": item.shard, "of_begin": item.begin} for item in before - after]
        connection.execute(delete(table).where(table.c.pipeline == pipeline, *keys), gone)
    if after - before:
        connection.execute(
            insert(table),
            [
                {"pipeline": pipeline, "shard": item.shard, "begin_cursor": item.begin, "end_cursor": item.end}
                for item in sorted(after - before)
            ],
        )


def learn_density(connection: Connection, pipeline: str, totals: Sequence[RangeTotals]) -> None:
    """Moves each shard's bytes and rows per log group half the way to this batch's; the first batch sets them."""
    sums: dict[int, tuple[int, int, int]] = {}
    for item in totals:
        groups, bytes_, rows = sums.get(item.range.shard, (0, 0, 0))
        sums[item.range.shard] = (groups + len(item.range), bytes_ + item.bytes, rows + item.rows)
    before = reads.density(connection, pipeline)
    table = models.shards
    figures = []
    for shard, (groups, bytes_, rows) in sums.items():
        new = Density(bytes_ / groups, rows / groups)
        old = before.get(shard, new)
        figures.append(
            {"of_shard": shard, "new_bytes": (old.bytes + new.bytes) / 2, "new_rows": (old.rows + new.rows) / 2}
        )
    if figures:
        connection.execute(
            update(table)
            .where(table.c.pipeline == pipeline, table.c.shard == bindparam("of_shard"))
            .values(bytes_per_group=bindparam("new_bytes"), rows_per_group=bindparam("new_rows")),
            figures,
        )
