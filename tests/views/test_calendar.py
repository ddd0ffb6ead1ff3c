"""A pipeline's partitions of event times by day, month or year, as far as commits and looks are folded into them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import PartitionState
from airflow_provider_slshudi.planning.periods import Every, Periods
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.calendar import Watermark, calendar, partition, watermark
from tests.seen import committed, looked, registered

HOUR = 3_600


def at(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=timezone.utc).timestamp())  # type: ignore[arg-type,misc]


NOON = at(2026, 1, 31, 12)


def wrote(ledger: Ledger, *values: str, cursor: int, every: Every = "hour", until: int = NOON) -> str:
    """A batch up to a cursor of the only shard writes a row to each partition; then a look finds nothing more."""
    rows = {f"event_date={value}": 1 for value in values}
    batch = committed(ledger, "clicks", [Range(0, cursor - 10, cursor)], f"run-{cursor}", partitions=rows)
    looked(ledger, "clicks", until, {0: cursor})
    ledger.fold("clicks", Periods(every), "event_date=", HOUR, None, [])
    return batch.id


@pytest.fixture
def clicks(ledger: Ledger) -> Ledger:
    registered(ledger, "clicks")
    looked(ledger, "clicks", at(2026, 1, 30), {0: 0})
    return ledger


def test_hours_are_shown_by_day_the_newest_first_each_with_its_state(clicks: Ledger) -> None:
    wrote(clicks, "2026-01-30-23", "2026-01-31-09", "2026-01-31-11", cursor=10)
    wrote(clicks, "2026-01-31-09", cursor=20)
    shown = calendar(clicks, "clicks", NOON, None)
    assert shown is not None
    assert [*shown.lines] == ["2026-01-31", "2026-01-30"] and "23" in shown.lines["2026-01-30"]
    today = shown.lines["2026-01-31"]
    assert today["10"].state is PartitionState.COMPLETE and today["10"].rows == 0, "it ended, and no log came"
    assert today["09"].state is PartitionState.COMPLETE and today["09"].times == 2, "all that came is committed"
    assert today["11"].state is PartitionState.OPEN
    assert shown.counts[PartitionState.OPEN] == 1 and shown.older is None


@pytest.mark.parametrize(
    ("every", "values", "lines", "columns"),
    [
        ("day", ["2025-11-30", "2026-01-02"], ["2026-01", "2025-11"], 31),
        ("month", ["2025-11", "2026-01"], ["2026", "2025"], 12),
    ],
)
def test_days_are_shown_by_month_and_months_by_year(
    clicks: Ledger, every: Every, values: list[str], lines: list[str], columns: int
) -> None:
    wrote(clicks, *values, cursor=10, every=every)
    shown = calendar(clicks, "clicks", NOON, None)
    assert shown is not None and [*shown.lines] == lines and len(shown.layout.columns) == columns


def test_hours_that_are_yet_to_begin_by_a_wrong_clock_are_left_out(clicks: Ledger) -> None:
    wrote(clicks, "2026-01-31-09", "2099-01-01-00", cursor=10)
    shown = calendar(clicks, "clicks", NOON, None)
    assert shown is not None and max(shown.lines) == "2026-01-31"
    assert calendar(clicks, "clicks", at(2026, 1, 29), None) is None


def test_older_partitions_are_one_step_away_however_long_ago(clicks: Ledger) -> None:
    wrote(clicks, "2019-05-01-07", "2026-01-31-09", cursor=10, until=at(2026, 1, 31, 9))
    shown = calendar(clicks, "clicks", NOON, 2)
    assert shown is not None and shown.shown == 2 and "2019-05-01" not in shown.lines
    before = shown.older
    while before is not None:
        shown = calendar(clicks, "clicks", before, 31)
        assert shown is not None
        before = shown.older
    assert [*shown.lines] == ["2019-05-01"]


def test_a_number_of_lines_that_is_not_offered_becomes_the_usual_one(clicks: Ledger) -> None:
    wrote(clicks, "2026-01-31-09", cursor=10)
    for lines in (None, 1_000_000, -1):
        shown = calendar(clicks, "clicks", NOON, lines)
        assert shown is not None and shown.shown == 7


def test_a_partition_tells_each_time_that_it_became_complete_and_its_last_batch(clicks: Ledger) -> None:
    wrote(clicks, "2026-01-31-09", cursor=10)
    last = wrote(clicks, "2026-01-31-09", "2026-01-31-11", cursor=20)
    wrote(clicks, "2026-01-31-11", cursor=30)
    shown = calendar(clicks, "clicks", NOON, None)
    assert shown is not None
    hour = partition(clicks, "clicks", shown, "2026-01-31-09")
    assert hour is not None and hour.last is not None
    assert (hour.row.rows, hour.row.commits, hour.last.id) == (2, 2, last)
    assert [(item.times, item.rows) for item in hour.completions] == [(2, 2), (1, 1)]
    assert hour.row.late == pytest.approx(clicks.now().timestamp() - at(2026, 1, 31, 10), abs=5)
    without = partition(clicks, "clicks", shown, "2026-01-31-10")
    assert without is not None and without.last is None
    assert partition(clicks, "clicks", shown, "<script>") is None


def test_the_watermark_is_told_once_a_run_looked(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    assert watermark(ledger, "clicks") is None
    looked(ledger, "clicks", NOON, {})
    assert watermark(ledger, "clicks") == Watermark(None, NOON), "a shard is not known to be read up to any look"
    wrote(ledger, cursor=10, until=NOON + 60)
    assert watermark(ledger, "clicks") == Watermark(NOON + 60, NOON + 60)
