"""A commit of which the ledger does not know to which partitions it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, LedgerShard, PartitionState, RangeTotals
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from tests.ledger.conftest import PIPELINE

DAY = 86_400
BEGIN = int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp())
FIRST, SECOND = "event_date=2026-01-01", "event_date=2026-01-02"


def commit(ledger: Ledger, number: int, partitions: Mapping[str, int] | None) -> None:
    """A batch of cursors [10 * number, 10 * number + 10) of shard 0."""
    part = Range(0, number * 10, number * 10 + 10)
    id_ = ledger.begin(PIPELINE, Kind.TAIL, [part], "dag", f"run-{number}").id
    ledger.opened(id_, 1, f"instant-{number}")
    ledger.prepared(id_, 1, {}, [RangeTotals(part, 7, 100, 1, 2)], partitions=partitions)
    ledger.committed(id_, 1, f"completed-{number}")


def looked(ledger: Ledger, cursor: int, moment: int) -> list[tuple[str, int]]:
    """Folds after a look at `moment` that saw the shard end at a cursor; the partitions that became complete."""
    ledger.save_look(PIPELINE, moment, {0: [Mark(cursor, moment)]})
    folded = ledger.fold(PIPELINE, Periods("day"), "event_date=", 0, None, [])
    return [(item.value, item.times) for item in folded.completions]


def states(ledger: Ledger) -> list[PartitionState]:
    return [item.state for item in ledger.partitions(PIPELINE, 0, BEGIN + 9 * DAY)]


def test_it_opens_all_complete_partitions_and_no_partition_is_complete_before_the_next_look(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [LedgerShard(0, "readwrite", "0", "f", 0)])
    commit(ledger, 0, {FIRST: 5, SECOND: 2})
    assert looked(ledger, 10, BEGIN + 2 * DAY) == [("2026-01-01", 1), ("2026-01-02", 1)]

    commit(ledger, 1, None)
    assert looked(ledger, 30, BEGIN + 2 * DAY + 60) == []
    assert states(ledger) == [PartitionState.REOPENED] * 2
    commit(ledger, 2, {SECOND: 1})
    assert looked(ledger, 30, BEGIN + 2 * DAY + 120) == [("2026-01-01", 2), ("2026-01-02", 2)]


def test_one_that_is_known_to_have_written_nothing_opens_none(ledger: Ledger) -> None:
    ledger.save_shards(PIPELINE, [LedgerShard(0, "readwrite", "0", "f", 0)])
    commit(ledger, 0, {FIRST: 5})
    assert looked(ledger, 10, BEGIN + DAY) == [("2026-01-01", 1)]
    commit(ledger, 1, {})
    assert looked(ledger, 20, BEGIN + DAY + 60) == []
    assert states(ledger) == [PartitionState.COMPLETE]
