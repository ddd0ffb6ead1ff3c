"""A batch costs the ledger as many statements over many shards as over few, and touches no other shards' coverage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, LedgerShard, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range

PIPELINE = "clicks"


@contextmanager
def counted(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """What is sent to the database within the block; many rows of one statement count once."""
    seen: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        seen.append((statement, values))

    event.listen(engine, "before_cursor_execute", listen)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", listen)


def whole_life(ledger: Ledger, shards: range, run: int) -> None:
    """A tail batch over `shards`, all of whose intervals grow."""
    ledger.save_shards(PIPELINE, [LedgerShard(shard, "readwrite", "0", f"{run}", 0) for shard in shards])
    ranges = [Range(shard, run * 10, run * 10 + 10) for shard in shards]
    begun = ledger.begin(PIPELINE, Kind.TAIL, ranges, "dag", f"run-{run}")
    ledger.opened(begun.id, 1, f"instant-{run}")
    ledger.prepared(begun.id, 1, {}, [RangeTotals(item, 1, 100, 1, 2) for item in ranges])
    ledger.committed(begun.id, 1, f"completed-{run}")


def test_the_number_of_statements_grows_neither_with_shards_nor_with_batches(engine: Engine, ledger: Ledger) -> None:
    counts = []
    for shards in (2, 500):
        for run in (0, 1, 2):
            with counted(engine) as seen:
                whole_life(ledger, range(shards), run + 10 * shards)
            counts.append(len(seen))
    # The first batch of all has no coverage that goes or shard that changes.
    assert len(set(counts[1:])) == 1, counts


def test_a_batch_over_few_shards_reads_and_writes_the_coverage_of_these(engine: Engine, ledger: Ledger) -> None:
    whole_life(ledger, range(200), 0)
    begun = ledger.begin(PIPELINE, Kind.TAIL, [Range(shard, 10, 20) for shard in (3, 199)], "dag", "few")
    ledger.opened(begun.id, 1, "few")
    ledger.prepared(begun.id, 1, {}, [RangeTotals(item, 1, 1, 1, 1) for item in ledger.ranges(begun.id)])
    with counted(engine) as seen:
        ledger.committed(begun.id, 1, "few")
    reads = [
        (statement, values) for statement, values in seen if re.match("SELECT .*slshudi_coverage", statement, re.S)
    ]
    with engine.connect() as connection:
        assert [len(connection.exec_driver_sql(*asked).all()) for asked in reads] == [2]
    covered = ledger.coverage(PIPELINE)
    assert len(covered) == 200
    assert [item for item in covered if item.end == 20] == [Range(3, 0, 20), Range(199, 0, 20)]


@pytest.mark.parametrize("count", [0, 1, 40_000])
def test_a_timeline_of_any_length_is_compared_with_the_ledger(ledger: Ledger, count: int) -> None:
    whole_life(ledger, range(2), 7)
    instants = [f"instant-{number}" for number in range(count)]
    assert ledger.committed_instants(PIPELINE, instants) == {"instant-7"} & set(instants)


def test_instants_are_looked_up_by_their_index(engine: Engine, ledger: Ledger) -> None:
    """SQLite, which knows nothing of how many are committed, would rather read all of these."""
    if engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL knows how many there are; test_history counts the rows that it reads")
    with counted(engine) as seen:
        ledger.committed_instants(PIPELINE, ["a", "b", "c"])
    with engine.connect() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", values).all() for asked, values in seen[1:]]
    assert [["(pipeline=? AND instant=?)" in row[3] for row in plan] for plan in plans] == [[True]], plans


def test_where_the_last_batch_of_a_kind_ended(ledger: Ledger) -> None:
    assert ledger.last_shard(PIPELINE, Kind.TAIL) is None
    whole_life(ledger, range(4), 0)
    ledger.begin(PIPELINE, Kind.BACKFILL, [Range(9, 0, 1)], "backfill", "run")
    assert ledger.last_shard(PIPELINE, Kind.TAIL) == 3
    assert ledger.last_shard(PIPELINE, Kind.BACKFILL) == 9


def test_a_shard_that_changes_keeps_its_first_cursor_and_its_figures(ledger: Ledger) -> None:
    whole_life(ledger, range(2), 0)
    figures = ledger.density(PIPELINE)
    ledger.save_shards(PIPELINE, [LedgerShard(1, "readonly", "5", "6", 4_711)])
    assert ledger.shards(PIPELINE)[1] == LedgerShard(1, "readonly", "5", "6", 0)
    assert ledger.density(PIPELINE) == figures
    assert set(figures) == {0, 1}
