"""Coverage stays as few intervals as possible, and densities follow the last batches."""

from __future__ import annotations

import random

from sqlalchemy import Engine, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Audit, Kind, LedgerShard, RangeTotals, RecordedRange, State
from airflow_provider_slshudi.planning.ranges import Density, Range, merge

PIPELINE = "clicks"


def commit(ledger: Ledger, ranges: list[Range], run: str, bytes_: int = 10, rows: int = 1) -> None:
    id_ = ledger.begin(PIPELINE, Kind.TAIL, ranges, "dag", run).id
    ledger.opened(id_, 1, run)
    ledger.prepared(id_, 1, {}, [RangeTotals(item, rows, bytes_, 1, 2) for item in ranges if not item.gap])
    ledger.committed(id_, 1, run)


def test_a_tail_stays_one_interval_per_shard(ledger: Ledger) -> None:
    for number in range(5):
        begin, end = number * 10, number * 10 + 10
        commit(ledger, [Range(shard, begin, end) for shard in (0, 1)], f"run-{number}")
    assert ledger.coverage(PIPELINE) == [Range(0, 0, 50), Range(1, 0, 50)]


def test_a_range_in_between_joins_its_neighbours(ledger: Ledger) -> None:
    commit(ledger, [Range(0, 0, 10), Range(0, 20, 30)], "run-1")
    assert ledger.coverage(PIPELINE) == [Range(0, 0, 10), Range(0, 20, 30)]
    commit(ledger, [Range(0, 10, 20, gap=True)], "run-2")
    assert ledger.coverage(PIPELINE) == [Range(0, 0, 30)]


def test_any_order_of_commits_covers_what_was_committed(ledger: Ledger) -> None:
    dice = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    pieces = [Range(shard, begin, begin + 3) for shard in range(3) for begin in range(0, 30, 3)]
    dice.shuffle(pieces)
    done: list[Range] = []
    while pieces:
        batch = [pieces.pop() for _ in range(min(len(pieces), dice.randint(1, 6)))]
        commit(ledger, batch, f"run-{len(pieces)}")
        done += batch
        assert ledger.coverage(PIPELINE) == merge(done)
    assert ledger.coverage(PIPELINE) == [Range(shard, 0, 30) for shard in range(3)]


def test_a_coverage_that_is_not_what_was_committed_is_told_by_kind(ledger: Ledger, engine: Engine) -> None:
    commit(ledger, [Range(0, 0, 10), Range(1, 0, 10)], "run-1")
    commit(ledger, [Range(0, 10, 20, gap=True)], "run-2")
    ledger.begin(PIPELINE, Kind.TAIL, [Range(0, 20, 30)], "dag", "not committed")
    assert ledger.audit(PIPELINE).ok
    commit(ledger, [Range(2, 0, 5)], "run-3")
    with engine.begin() as connection:
        table = models.coverage
        connection.execute(update(table).where(table.c.shard == 0).values(end_cursor=15))
        connection.execute(update(table).where(table.c.shard == 1).values(end_cursor=99))
        ranges = models.ranges
        connection.execute(update(ranges).where(ranges.c.shard == 2).values(shard=1, begin_cursor=7, end_cursor=12))
    assert ledger.audit(PIPELINE) == Audit(
        uncovered=[Range(0, 15, 20)], unrecorded=[Range(1, 12, 99), Range(2, 0, 5)], twice=[Range(1, 7, 10)]
    )


def test_density_is_learnt_from_commits_and_follows_them(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [LedgerShard(id, "readwrite", "", "", 0) for id in (0, 1)])
    commit(ledger, [Range(0, 0, 10), Range(0, 10, 20), Range(7, 0, 1)], "run-1", bytes_=1_000, rows=40)
    assert ledger.density(PIPELINE) == {0: Density(100.0, 4.0)}  # shard 7 was never saved
    commit(ledger, [Range(0, 20, 30), Range(1, 0, 5, gap=True)], "run-2", bytes_=3_000, rows=80)
    assert ledger.density(PIPELINE) == {0: Density(200.0, 6.0)}


def test_what_was_recorded_of_each_range_is_told_from_prepared_on(ledger: Ledger) -> None:
    commit(ledger, [Range(1, 0, 5, gap=True), Range(0, 0, 10)], "run-1", rows=7)
    prepared = ledger.begin(PIPELINE, Kind.TAIL, [Range(0, 10, 20)], "dag", "run-2").id
    ledger.opened(prepared, 1, "run-2")
    (first,) = ledger.last(PIPELINE, 1, State.COMMITTED)
    done = [
        RecordedRange(Range(0, 0, 10), first.id, State.COMMITTED, "run-1", "run-1", 7),
        RecordedRange(Range(1, 0, 5, gap=True), first.id, State.COMMITTED, "run-1", "run-1", None),
    ]
    assert ledger.recorded(PIPELINE) == done
    ledger.prepared(prepared, 1, {}, [RangeTotals(Range(0, 10, 20), 3, 1, 1, 2)])
    half = RecordedRange(Range(0, 10, 20), prepared, State.PREPARED, "run-2", None, 3)
    assert ledger.recorded(PIPELINE) == [done[0], half, done[1]]
