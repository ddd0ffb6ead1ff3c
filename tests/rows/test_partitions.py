"""The partitions of event times where clocks are set forward and back."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from airflow_provider_slshudi.planning.periods import Every, Periods
from airflow_provider_slshudi.rows.partitions import PartitionSpec, partitions_of

STEP = 600
DAY = 86_400


def partitions(zone: str, every: Every, *times: int) -> list[str | None]:
    """Of logs of these times, unix seconds."""
    values = pa.array([time * 1_000_000 for time in times], pa.timestamp("us"))
    found: list[str | None] = partitions_of(values, PartitionSpec("dated", "t", every, zone)).to_pylist()
    return found


def at(utc: str) -> int:
    return int(datetime.fromisoformat(f"{utc}+00:00").timestamp())


@pytest.mark.parametrize(
    ("zone", "every", "utc", "value"),
    [
        ("America/New_York", "hour", "2026-11-01T05:30:00", "2026-11-01-01"),  # the hour comes twice
        ("America/New_York", "hour", "2026-11-01T06:30:00", "2026-11-01-01"),
        ("Australia/Lord_Howe", "hour", "2026-04-04T15:15:00", "2026-04-05-01"),  # half of it does
        ("America/Santiago", "day", "2026-09-06T12:30:00", "2026-09-06"),  # without a midnight
        ("America/Havana", "day", "2026-11-01T12:30:00", "2026-11-01"),  # with two
        ("America/Havana", "month", "2026-11-01T12:30:00", "2026-11"),
    ],
)
def test_a_log_has_its_partition_also_where_clocks_are_set(zone: str, every: Every, utc: str, value: str) -> None:
    assert partitions(zone, every, at(utc)) == [value]
    # Beside one of another partition, times are not told by the first and the last alone.
    assert partitions(zone, every, at(utc), at(utc) - 40 * DAY)[0] == value


def test_another_partition_in_between_is_not_overlooked_where_clocks_go_back_by_hours() -> None:
    hour, other = at("2026-10-24T23:30:00"), at("2026-10-25T00:30:00")
    again = hour + 7_200
    assert partitions("Antarctica/Troll", "hour", hour, other, again) == [
        "2026-10-25-01",
        "2026-10-25-02",
        "2026-10-25-01",
    ]


@pytest.mark.parametrize("every", ["hour", "day"])
@pytest.mark.parametrize("zone", ["America/New_York", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll"])
@pytest.mark.parametrize("around", ["2026-03-08", "2026-03-29", "2026-04-04", "2026-10-04", "2026-10-25", "2026-11-01"])
def test_each_log_is_within_its_partition_s_period(zone: str, every: Every, around: str) -> None:
    first = at(around) - DAY
    times = [*range(first, first + 3 * DAY, STEP)]
    for time, value in zip(times, partitions(zone, every, *times), strict=True):
        period = Periods(every, zone).of(value or "")
        assert period is not None and period.begin <= time < period.end
