"""When partitions begin and end, also where clocks are odd."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from airflow_provider_slshudi.planning.periods import _FORMATS, Every, Period, Periods

STEP = 300
"""Seconds between two looks at a clock: less than any clock was ever set back by here."""
CLOCKS = {
    "UTC": ["2024-02-28"],
    "Asia/Shanghai": ["2024-12-30"],
    "Asia/Kathmandu": ["2024-06-30"],
    "America/New_York": ["2024-03-09", "2024-11-02"],
    "America/Sao_Paulo": ["2017-10-14", "2018-02-16"],  # midnight is skipped, and comes twice
    "America/St_Johns": ["2010-03-13", "2010-11-06"],  # a minute behind midnight, the day before goes on
    "Australia/Lord_Howe": ["2024-04-06", "2024-10-05"],  # half an hour
    "Antarctica/Troll": ["2024-03-30", "2024-10-26"],  # two hours, so the first of them comes again behind the second
    "Pacific/Apia": ["2011-12-29"],  # a whole day is skipped
    "Africa/Cairo": ["2023-04-27", "2023-10-26"],
}


def shown(moment: int, every: Every, zone: str) -> str:
    """The partition's value of a log of that moment."""
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime(_FORMATS[every])


@pytest.mark.parametrize(("zone", "day"), [(zone, day) for zone, days in CLOCKS.items() for day in days])
@pytest.mark.parametrize("every", ["hour", "day"])
def test_a_period_is_from_the_first_to_the_last_moment_that_has_its_value(zone: str, day: str, every: Every) -> None:
    periods = Periods(every, zone)
    first = int((datetime.fromisoformat(day) - timedelta(days=2)).replace(tzinfo=timezone.utc).timestamp())
    moments: dict[str, list[int]] = {}
    for moment in range(first, first + 6 * 86_400, STEP):
        moments.setdefault(shown(moment, every, zone), []).append(moment)
    inner = list(moments)[1:-1]
    for value in inner:
        period = periods.of(value)
        assert period is not None
        assert (moments[value][0], moments[value][-1] + STEP) == pytest.approx((period.begin, period.end), abs=STEP - 1)
        assert shown(period.begin, every, zone) == shown(period.end - 1, every, zone) == value
        assert periods.at(moments[value][-1]) == period
    ends = sorted((period.end, period.value) for period in map(periods.of, inner) if period is not None)
    walked = [period.value for period in periods.ended(periods.at(moments[inner[0]][0]).begin, ends[-1][0])]
    assert walked == [value for _, value in ends]


def test_an_hour_that_comes_twice_is_two_hours_and_one_that_is_skipped_is_none() -> None:
    periods = Periods("hour", "America/New_York")
    assert [_seconds(periods, f"2024-11-03-0{hour}") for hour in range(4)] == [3_600, 7_200, 3_600, 3_600]
    assert [_seconds(periods, f"2024-03-10-0{hour}") for hour in range(4)] == [3_600, 3_600, None, 3_600]
    assert _seconds(Periods("hour", "Australia/Lord_Howe"), "2024-04-07-01") == 5_400
    troll = [_seconds(Periods("hour", "Antarctica/Troll"), f"2024-10-27-0{hour}") for hour in range(4)]
    assert troll == [3_600, 10_800, 10_800, 3_600]
    assert _seconds(Periods("day", "Pacific/Apia"), "2011-12-30") is None


def test_months() -> None:
    periods = Periods("month", "Europe/Berlin")
    spans = [periods.of(f"2024-{month:02}") for month in range(1, 13)]
    assert all(one is not None and next_ is not None and one.end == next_.begin for one, next_ in pairwise(spans))
    assert _seconds(periods, "2024-02") == 29 * 86_400
    assert _seconds(periods, "2024-03") == 31 * 86_400 - 3_600
    assert periods.at(1_704_063_599).value == "2023-12"
    assert periods.at(1_704_063_600) == Period("2024-01", 1_704_063_600, 1_706_742_000)


@pytest.mark.parametrize(
    "value", ["", "__HIVE_DEFAULT_PARTITION__", "2024", "2024-13-01", "+12024-01-01", "2024-01-01-00"]
)
def test_a_value_that_names_no_day_has_no_period(value: str) -> None:
    assert Periods("day").of(value) is None


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York", "UTC"])
@pytest.mark.parametrize(
    ("every", "values"),
    [
        ("hour", ["0001-01-01-00", "9999-12-31-23"]),
        ("day", ["0001-01-01", "9999-12-31"]),
        ("month", ["0001-01", "9999-12"]),
    ],
)
def test_logs_of_wrong_clocks_do_not_stop_it(zone: str, every: Every, values: list[str]) -> None:
    first, last = (Periods(every, zone).of(value) for value in values)
    assert first is None or first.end < 0
    assert last is None


def test_periods_that_ended_go_from_the_one_of_a_moment_to_another() -> None:
    periods = Periods("hour")
    nine = 1_700_038_800
    assert nine % 3_600 == 0
    assert list(periods.ended(nine + 1, nine + 3_599)) == []
    assert [period.begin for period in periods.ended(nine + 1, nine + 3_600)] == [nine]
    assert [period.begin for period in periods.ended(nine + 3_600, nine + 3 * 3_600)] == [nine + 3_600, nine + 7_200]


def _seconds(periods: Periods, value: str) -> int | None:
    period = periods.of(value)
    return None if period is None else period.end - period.begin
