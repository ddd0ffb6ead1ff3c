"""Charts: axes with units, values under the pointer, failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from airflow_provider_slshudi.plugins.charts import Series, chart
from airflow_provider_slshudi.plugins.language import CHINESE, READER, Reader
from airflow_provider_slshudi.plugins.render import environment
from airflow_provider_slshudi.views.words import size, span

BEGIN = datetime(2026, 1, 31, 8, 0, tzinfo=timezone.utc)
END = BEGIN + timedelta(hours=1)


@pytest.fixture
def in_shanghai() -> Iterator[None]:
    token = READER.set(Reader(CHINESE, "Asia/Shanghai", timezone(timedelta(hours=8))))
    yield
    READER.reset(token)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def test_the_axes_have_units_and_times() -> None:
    drawn = chart("Lag", BEGIN, END, [Series("Lag", "lag", [(at(5), 200.0), (at(50), 100.0)])], span)
    assert re.findall(r"<span>([^<]+)</span>", drawn)[:3] == ["5\u00a0min", "2\u00a0min\u00a030\u00a0s", "0.0\u00a0s"]
    assert [f"<span>{time}</span>" in drawn for time in ("08:00", "08:30", "09:00")] == [True] * 3


def test_a_pointer_shows_the_time_and_the_values_of_all_series() -> None:
    bars = Series("Egress", "egress", [(at(5.1), 400_000.0), (at(5.2), 100_000.0)], "bar")
    marks = Series("Failed", "failed", [(at(5.5), 1.0)], "mark")
    drawn = chart("Bytes", BEGIN, END, [bars, marks], size)
    assert "<title>2026-01-31 08:05\nEgress: 500\u00a0kB\nFailed: 1</title>" in drawn, "bars add up"
    assert 'class="failed"' in drawn


def test_a_chart_without_values_says_so() -> None:
    failed = Series("Failed", "failed", [(at(5), 1.0)], "mark")
    for series in ([], [Series("Lag", "lag", []), failed], [Series("Lag", "lag", [(at(-5), 3.0)])]):
        drawn = chart("Lag", BEGIN, END, series, span)
        assert "No values in this time." in drawn and "<svg" not in drawn


def test_a_chart_of_nothing_but_zeros_has_an_axis() -> None:
    assert "1\u00a0B" in chart("Bytes", BEGIN, END, [Series("Egress", "egress", [(at(1), 0.0)])], size)


@pytest.mark.usefixtures("in_shanghai")
def test_a_chart_speaks_the_readers_language_and_has_the_readers_times() -> None:
    drawn = chart("延迟", BEGIN, END, [Series("延迟", "lag", [(at(30), 90.0)])], span)
    assert "<span>16:30</span>" in drawn and "2026-01-31 16:30" in drawn
    assert "2\u00a0分\u2060钟" in drawn


def test_hostile_labels_are_text() -> None:
    drawn = chart("<script>", BEGIN, END, [Series("<b>'\"", "lag", [(at(1), 1.0)])], size)
    assert "<script>" not in drawn and "<b>" not in drawn


def test_a_shard_names_its_logstore_where_there_are_several() -> None:
    several = "sls://ads/events sls://ads-<eu>/events"
    filled = environment.from_string("{{ 1000003|shard(source) }} {{ 3|shard('sls://ads/events') }}")
    assert filled.render(source=several) == "1000003<small>ads-&lt;eu&gt;/events 3</small> 3"
