"""Patterns of times: which are taken, and what they say; that they are read as Spark reads them is seen with Spark."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.config.timepattern import parse_pattern


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("yyyy-MM-dd", ("year", "month", "day")),
        ("dd/MMM/yyyy:HH:mm:ss Z", ("day", "month_name", "year", "hour", "minute", "second", "zone")),
        ("EEE, dd MMM yyyy HH:mm z", ("weekday", "day", "month_name", "year", "hour", "minute", "zone_name")),
        ("yyyyMMdd'T'hhmm a", ("year", "month", "day", "half_hour", "minute", "half")),
        ("d.M.yyyy H:mm:ss.SSSSSSSSSXXX", ("day", "month", "year", "hour", "minute", "second", "fraction", "zone")),
    ],
)
def test_a_pattern_says_which_parts_a_text_names(text: str, parts: tuple[str, ...]) -> None:
    found = parse_pattern(text)
    assert found.parts == parts
    assert found.has_zone == ("zone" in parts)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("yyyy-MM-dd EE", "EE is no part of a pattern"),
        ("yy-MM-dd", "yy is no part"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSS", "SSSSSSSSSS is no part"),
        ("yyyy-MM-ddTHH", "T is no part of a pattern; .*'quotes'"),
        ("yyyy-MM-dd[ HH]", r"\[ has a meaning"),
        ("yyyy-MM-dd 'at", "' has a meaning"),
        ("HH:mm:ss", "no whole date"),
        ("yyyy-MM", "no whole date"),
        ("yyyy-MM-dd MM", "the month twice"),
        ("yyyy-MM-dd MMM", "the month twice"),
        ("yyyy-MM-dd hh:mm", "hh goes with a"),
        ("yyyy-MM-dd HH:mm a", "hh goes with a"),
        ("yyyy-MM-dd mm", "the minute and not the hour"),
        ("yyyy-MM-dd HH Z z", "the zone twice"),
        ("yyyy-MM-dd z", "the zone_name and not the hour"),
        ("yyyy-MM-dd Z", "the zone and not the hour"),
        ("yyyyMd", "the number before d ends is not clear"),
        ("yyyy-MM-dd s.SSSmm HH", "the number before mm ends"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_pattern(text)
