"""What a watch tells of a pipeline, and what it keeps to itself."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.findings import Limits, findings
from airflow_provider_slshudi.views.standing import WINDOW
from tests.seen import committed, planned, registered, saw

DAY = 86_400
QUARTER = Limits(timedelta(minutes=15), timedelta(minutes=15), timedelta(hours=6))


def test_of_a_pipeline_that_is_well_nothing_is_told(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    committed(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    saw(ledger, "clicks", unread=60, since=600, kept=DAY)
    planned(ledger, "clicks", [Range(0, 40, 100)], "run-2")
    assert findings(ledger, "clicks", QUARTER) == []


def test_a_lag_is_told_above_its_limit(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100, since=1_200, kept=DAY)
    (told,) = findings(ledger, "clicks", QUARTER)
    assert told.startswith("clicks: up to 20 min") and told.endswith(" behind, more than 15 min")
    assert findings(ledger, "clicks", Limits()) == [], "nobody gave a limit"


def test_a_pipeline_that_nobody_runs_falls_behind_although_all_was_read(ledger: Ledger) -> None:
    registered(ledger, "clicks", end=40)
    saw(ledger, "clicks", unread=0, seconds_ago=1_800)
    committed(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    (told,) = findings(ledger, "clicks", Limits(behind=timedelta(minutes=15)))
    assert told.startswith("clicks: up to 30 min")


def test_a_batch_that_nobody_works_on_is_told_by_its_name(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100)
    batch = planned(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    assert findings(ledger, "clicks", Limits(dangling=timedelta(hours=1))) == []
    (told,) = findings(ledger, "clicks", Limits(dangling=timedelta()))
    assert told.startswith(f"clicks: no run has worked on batch {batch.id}, which is PLANNED, for ")


def test_logs_that_expire_are_told_by_a_limit_and_by_the_pages_own(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    saw(ledger, "clicks", unread=100, since=DAY - 8 * 3_600 + 30, kept=DAY)
    assert findings(ledger, "clicks", Limits(expires=timedelta(hours=6))) == []
    (told,) = findings(ledger, "clicks", Limits(expires=timedelta(hours=9)))
    assert told.startswith("clicks: the service drops unread logs in 7 h 59 min")
    saw(ledger, "clicks", unread=100, since=DAY - 3_600, kept=DAY)
    assert findings(ledger, "clicks", Limits()) == ["clicks: the service drops unread logs soon"]


def test_what_the_page_asks_of_a_person_is_told_without_a_limit(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    ledger.note_trouble("clicks", "clicks_tail", "run-1", "plan", "LeaseHeld", "somebody decides", waits=True)
    assert findings(ledger, "clicks", Limits()) == [], "it passes by itself"
    ledger.note_trouble("clicks", "clicks_tail", "run-2", "plan", "DataExpired", "gone", waits=False)
    assert findings(ledger, "clicks", Limits()) == ["clicks: clicks_tail failed at plan: DataExpired"]


def test_a_gap_is_told_once_it_is_committed_and_for_an_hour(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    waiting = planned(ledger, "clicks", [Range(0, 1_600, 1_700, gap=True)], "run-2")
    batch = committed(ledger, "clicks", [Range(0, 0, 1_500, gap=True), Range(0, 1_500, 1_510)], "run-1")
    for number in range(3):
        committed(ledger, "clicks", [Range(1, number, number + 1)], f"later-{number}")
    assert findings(ledger, "clicks", Limits()) == [f"clicks: batch {batch.id} records 1,500 log groups as lost"]
    assert ledger.gaps("clicks", ledger.now()) == []
    assert waiting.id not in dict(ledger.gaps("clicks", ledger.now() - WINDOW))


def test_a_gap_counts_from_its_commit_however_long_ago_it_was_planned(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch = planned(ledger, "clicks", [Range(0, 0, 5, gap=True)], "run-1")
    ledger.opened(batch.id, 1, "20260101000000000")
    since = ledger.now()
    ledger.prepared(batch.id, 1, {}, [])
    ledger.committed(batch.id, 1, "20260101000000009")
    assert ledger.gaps("clicks", since) == [(batch.id, Range(0, 0, 5, gap=True))]
    assert ledger.gaps("views", since) == []


def test_a_consumer_is_told_of_before_cleaning_and_archival_stop_to_wait_for_it(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    ledger.subscribe("clicks", "hourly", Feed.COMMITS, 0, DAY)
    committed(ledger, "clicks", [Range(0, 0, 40)], "run-1")
    assert findings(ledger, "clicks", Limits()) == []
    ledger.subscribe("clicks", "hourly", Feed.COMMITS, 0, 0)
    (told,) = findings(ledger, "clicks", Limits())
    assert told.startswith("clicks: consumer hourly has not confirmed the commit of place 1, of ")
    ledger.move("clicks", "hourly", None)
    assert findings(ledger, "clicks", Limits()) == []


def test_a_new_key_is_told_for_an_hour(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    batch = planned(ledger, "clicks", [Range(0, 0, 10)], "run-1")
    ledger.save_new_keys("clicks", batch.id, 512, {"zip": 500}, {"zip": ["89073"]}, set())
    ledger.save_new_keys("clicks", batch.id, 512, {"zip": 500}, {}, set())
    said = "'zip' in 1,000 of 1,024 logs looked at"
    told = findings(ledger, "clicks", Limits())
    assert told == [f"clicks: a new key that no column names, so it is dropped: {said}"]
    (key,) = ledger.unnamed_keys(["clicks"])
    assert ledger.unnamed_keys(["clicks"], key.first + WINDOW) == []


def test_what_is_not_known_is_told(ledger: Ledger) -> None:
    assert findings(ledger, "clicks", QUARTER) == ["clicks: the ledger does not know it: no run of it has begun"]
    registered(ledger, "clicks")
    unknown = [
        "clicks: how far it is behind is not known: no run has looked at the service, or the service did not tell",
        "clicks: when the service drops unread logs is not known: no run has looked at the service, or the service did "
        "not tell",
    ]
    assert findings(ledger, "clicks", QUARTER) == unknown
    saw(ledger, "clicks", unread=100)
    assert findings(ledger, "clicks", QUARTER) == unknown
