"""A transaction beside what a run saw of the table's timeline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import RangeTotals, SeenInstant, SeenTimeline, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views import history
from airflow_provider_slshudi.views.sides import ABSENT, ARCHIVED, LEFT_OUT, Sides, Verdict
from tests.seen import committed, planned, registered

LATER = "29991231235959999"


def saw(
    ledger: Ledger, instants: Mapping[str, SeenInstant], *, first: str = "", oldest: str = "", late: int = 0
) -> None:
    """What a run saw, some seconds after now."""
    ledger.save_timeline(
        "clicks", SeenTimeline(ledger.now() + timedelta(seconds=late), "clicks_tail/run-9", oldest, first, instants)
    )


def shown(ledger: Ledger, found: Transaction) -> Sides:
    return history.transaction(ledger, found.id).sides


@pytest.fixture
def done(ledger: Ledger) -> Transaction:
    registered(ledger, "clicks")
    return committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")


def test_nobody_looked_and_so_nothing_is_known(ledger: Ledger, done: Transaction) -> None:
    found = shown(ledger, done)
    assert (found.seen, found.state, found.verdict) == (None, None, Verdict.UNKNOWN)
    assert (found.same_transaction, found.same_ranges) == (None, None)


def test_a_commit_that_is_there_agrees(ledger: Ledger, done: Transaction) -> None:
    saw(ledger, {str(done.instant): SeenInstant("COMPLETED", done.completed)})
    found = shown(ledger, done)
    assert (found.state, found.instant, found.completion) == ("COMPLETED", done.instant, done.completed)
    assert found.verdict is Verdict.AGREE
    assert found.seen is not None and found.seen.run == "clicks_tail/run-9"


@pytest.mark.parametrize(
    ("oldest", "first", "state", "verdict"),
    [
        (LATER, LATER, ARCHIVED, Verdict.AGREE),
        ("0", LATER, LEFT_OUT, Verdict.UNKNOWN),
        ("0", "0", ABSENT, Verdict.DIFFER),
        ("", "", ABSENT, Verdict.DIFFER),
    ],
)
def test_a_commit_that_is_not_there(
    ledger: Ledger, done: Transaction, oldest: str, first: str, state: str, verdict: Verdict
) -> None:
    saw(ledger, {}, oldest=oldest, first=first, late=1)
    found = shown(ledger, done)
    assert (found.state, found.instant, found.verdict) == (state, None, verdict)


def test_another_completion_time_is_another_commit(ledger: Ledger, done: Transaction) -> None:
    saw(ledger, {str(done.instant): SeenInstant("COMPLETED", LATER)}, late=1)
    assert shown(ledger, done).verdict is Verdict.DIFFER


def test_what_was_seen_before_the_ledger_changed_accuses_nobody(ledger: Ledger, done: Transaction) -> None:
    saw(ledger, {str(done.instant): SeenInstant("INFLIGHT", None)}, late=-60)
    found = shown(ledger, done)
    assert (found.state, found.verdict) == ("INFLIGHT", Verdict.NEWER)


def test_a_driver_that_died_before_it_told_the_ledger_is_settles_affair(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    live = planned(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    saw(ledger, {"20260131080000000": SeenInstant("REQUESTED", None)}, oldest="2026", late=1)
    assert shown(ledger, live).verdict is Verdict.AGREE, "nobody knows yet that the instant is its own"
    ledger.opened(live.id, 1, "20260131080000000")
    saw(ledger, {"20260131080000000": SeenInstant("REQUESTED", None)}, oldest="2026", late=1)
    assert shown(ledger, live).verdict is Verdict.AGREE
    saw(ledger, {"20260131080000000": SeenInstant("COMPLETED", "20260131080000005")}, oldest="2026", late=1)
    assert shown(ledger, live).verdict is Verdict.DECIDES


@pytest.mark.parametrize("name", ["same_transaction", "same_ranges"])
def test_a_commit_that_says_something_else_differs_whatever_the_timeline_shows(ledger: Ledger, name: str) -> None:
    registered(ledger, "clicks")
    found = planned(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    instant, completed = "20260131080000000", "20260131080000005"
    ledger.opened(found.id, 1, instant)
    ledger.prepared(found.id, 1, {}, [RangeTotals(Range(0, 0, 30), 300, 3_000, 1, 2)])
    told = {"same_transaction": True, "same_ranges": True, name: False}
    done = ledger.committed(found.id, 1, completed, told)
    saw(ledger, {instant: SeenInstant("COMPLETED", completed)}, late=1)
    sides = shown(ledger, done)
    assert (sides.same_transaction, sides.same_ranges) == (told["same_transaction"], told["same_ranges"])
    assert sides.verdict is Verdict.DIFFER
