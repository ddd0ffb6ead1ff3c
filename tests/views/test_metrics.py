"""A pipeline's figures for monitoring."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.metrics import MEANING, Metric, exposition, metrics
from tests.seen import GROUP, committed, looked, planned, registered, saw

DAY = 86_400


def values(ledger: Ledger) -> dict[str, float]:
    return {item.name: item.value for item in metrics(ledger)}


def test_every_figure_is_told_and_described(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=10, came=0, seconds_ago=60)
    committed(ledger, "clicks", [Range(0, 0, 30), Range(0, 30, 40, gap=True)], "run-1", last_time=1_700_000_000)
    saw(ledger, "clicks", unread=60, came=60, since=500, kept=DAY)
    planned(ledger, "clicks", [Range(0, 40, 50)], "run-2")
    ledger.note_trouble("clicks", "clicks_tail", "run-2", "append", "JobFailed", "killed", waits=False)
    ledger.save_new_keys("clicks", ledger.live("clicks")[0].id, 9, {"city": 1, "zip": 2}, {}, set())
    ledger.subscribe("clicks", "hourly", Feed.COMMITS, 0, DAY)
    looked(ledger, "clicks", 1_700_000_000, {0: 40})
    found, now = values(ledger), ledger.now().timestamp()
    assert set(found) == set(MEANING)
    assert (found["watermark_timestamp_seconds"], found["consumer_behind"]) == (1_700_000_000, 1)
    assert now - found["consumer_behind_since_timestamp_seconds"] == pytest.approx(0, abs=5)
    assert found["consumer_hold_seconds"] == DAY
    assert (found["needs_person"], found["unread_log_groups"], found["unread_bytes"]) == (1, 60, 60 * GROUP)
    assert now - found["unread_since_timestamp_seconds"] == pytest.approx(500, abs=5)
    assert found["expires_timestamp_seconds"] - now == pytest.approx(DAY - 500, abs=5)
    assert (found["last_batch_rows"], found["last_batch_gap_log_groups"], found["live_transactions"]) == (300, 10, 1)
    assert found["newest_row_timestamp_seconds"] == 1_700_000_000
    assert found["last_batch_freshness_seconds"] == pytest.approx(60, abs=5)
    assert found["freshness_promised_seconds"] == 300
    cpu = {item.labels["of"]: item.value for item in metrics(ledger) if item.name == "last_batch_cpu_seconds"}
    assert cpu == {"open": 0.5, "append": 2.0, "append's tasks": 1.25, "commit": 0.25}
    asked = {item.labels["of"]: item.value for item in metrics(ledger) if item.name == "last_batch_requests"}
    assert (asked, found["last_batch_stored_bytes"]) == ({"plan": 4, "append": 6}, 5_000)
    assert found["unnamed_keys"] == 2
    assert now - found["new_key_timestamp_seconds"] == pytest.approx(0, abs=5)


def test_what_is_not_known_is_left_out_and_never_zero(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    assert set(values(ledger)) == {"needs_person", "live_transactions"}
    saw(ledger, "clicks", unread=100)
    assert "unread_bytes" not in values(ledger) and "expires_timestamp_seconds" not in values(ledger)


def test_a_consumer_that_has_confirmed_all_is_not_behind_since_any_time(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    ledger.subscribe("clicks", "hourly", Feed.COMMITS, None, DAY)
    found = {item.name: item for item in metrics(ledger)}
    assert "consumer_behind_since_timestamp_seconds" not in found
    labels = {"pipeline": "clicks", "consumer": "hourly", "of": "commits"}
    assert found["consumer_behind"] == Metric("consumer_behind", labels, 0)


def test_the_text_is_prometheus_own(ledger: Ledger) -> None:
    text = exposition([Metric("trouble", {"pipeline": 'a"b\\c\nd', "step": "plan"}, 2.0)])
    assert text.splitlines() == [
        f"# HELP slshudi_trouble {MEANING['trouble']}",
        "# TYPE slshudi_trouble gauge",
        'slshudi_trouble{pipeline="a\\"b\\\\c\\nd",step="plan"} 2',
    ]
    assert exposition([]) == ""
