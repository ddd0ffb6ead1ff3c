"""A pipeline over time: lag, bytes in and out, rows, failures."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.history import batches
from airflow_provider_slshudi.views.trend import WINDOWS, freshness_trend, trend
from tests.seen import GROUP, committed, planned, registered, saw


def test_a_trend_shows_what_came_what_was_committed_and_what_failed_within_its_window(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=90, came=90, since=7_300, seconds_ago=7_200)
    saw(ledger, "clicks", unread=100, came=10, since=600, seconds_ago=60)
    committed(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    failed = planned(ledger, "clicks", [Range(0, 40, 50)], "run-2")
    ledger.aborted(failed.id, 1, "the driver died")
    hour, day = trend(ledger, "clicks", WINDOWS["1h"]), trend(ledger, "clicks", WINDOWS["24h"])
    assert [value for _, value in hour.came] == [10 * GROUP]
    assert sorted(value for _, value in day.came) == [10 * GROUP, 90 * GROUP]
    ((_, lag),) = hour.lag
    assert 538 <= lag <= 542, "600 s now, and 60 s less at that look"
    assert ([value for _, value in hour.read], [value for _, value in hour.rows]) == ([40 * GROUP], [400])
    assert len(hour.failed) == 1
    assert hour.end - hour.begin == timedelta(hours=1)


def test_a_look_that_does_not_tell_the_age_of_unread_logs_is_no_point(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100)
    assert trend(ledger, "clicks", WINDOWS["1h"]).lag == []
    saw(ledger, "clicks", unread=0)
    assert [value for _, value in trend(ledger, "clicks", WINDOWS["1h"]).lag] == [0.0]


def test_freshness_stands_beside_its_promise(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    committed(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    planned(ledger, "clicks", [Range(0, 40, 50)], "run-2")
    shown = freshness_trend(batches(ledger.history("clicks", 10)))
    ((_, seconds),), ((_, promised),) = shown.fresh, shown.promised
    assert 60 <= seconds < 65 and promised == 300
