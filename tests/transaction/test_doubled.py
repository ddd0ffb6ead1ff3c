"""What commits hold twice, and gaps of several of them."""

from __future__ import annotations

from airflow_provider_slshudi.ledger.records import CommittedBatch, Kind
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.rebuild import doubled, without_filled_gaps


def batch(number: int, *ranges: Range) -> CommittedBatch:
    return CommittedBatch(f"t{number}", Kind.TAIL, f"{number}", f"{number}", "dag", "run", ranges, ())


def test_a_gap_that_two_ledgers_recorded_is_one_gap_and_nothing_doubled() -> None:
    """Both skipped what had expired; the second one somewhat more."""
    first, second = batch(1, Range(0, 0, 10, gap=True)), batch(2, Range(0, 0, 15, gap=True), Range(0, 15, 20))
    assert doubled([first, second]) == []
    left = without_filled_gaps([first, second])
    assert [item.ranges for item in left] == [
        (Range(0, 0, 10, gap=True),),
        (Range(0, 15, 20), Range(0, 10, 15, gap=True)),
    ]


def test_a_gap_that_another_batch_read_is_none() -> None:
    left = without_filled_gaps([batch(1, Range(0, 0, 10, gap=True)), batch(2, Range(0, 3, 5))])
    assert [item.ranges for item in left] == [
        (Range(0, 0, 3, gap=True), Range(0, 5, 10, gap=True)),
        (Range(0, 3, 5),),
    ]
