"""What steps see of a table's timeline stays in the ledger, and is never worth a failure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import LedgerUnavailable
from airflow_provider_slshudi.hudi.instant_metadata import extra_of, ranges_text
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, SeenInstant, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction import timeline_view
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.evidence import require_agreement
from tests.model.table import ModelTable

NAME = "ad_events"
RANGES = [Range(0, 0, 10), Range(0, 10, 15, gap=True), Range(1, 5, 7)]


@pytest.fixture
def table(tmp_path: Path) -> ModelTable:
    table = ModelTable(tmp_path / "table", lambda _: None)
    table.create_table()
    return table


def prepared(work: Work, instant: str) -> Transaction:
    found = work.ledger.begin(NAME, Kind.TAIL, RANGES, "tail", "run-1")
    work.ledger.opened(found.id, 1, instant)
    totals = [RangeTotals(item, 100, 1_000, 1, 2) for item in RANGES if not item.gap]
    return work.ledger.prepared(found.id, 1, {"token": 1, "digest": "0"}, totals)


def commit(table: ModelTable, instant: str, extra: Mapping[str, str]) -> None:
    table.request(None, "", instant)
    table.to_inflight(None, "", instant)
    table.commit(None, None, instant, [], extra, lambda: None)


def its_own(work: Work, found: Transaction) -> dict[str, str]:
    """The extra metadata of the transaction's commit."""
    totals = {item.range: item for item in work.ledger.totals(found.id)}
    said = ((item, of.rows, of.bytes) if (of := totals.get(item)) else (item, None, None) for item in RANGES)
    return extra_of(found.id, NAME, "tail", ("tail", "run-1"), ranges_text((*item, 0) for item in said))


def test_what_settle_and_plan_look_at_is_kept(work: Work, table: ModelTable) -> None:
    done, waiting = table.new_instant_time(), table.new_instant_time()
    found = prepared(work, done)
    commit(table, done, its_own(work, found))
    table.request(None, "", waiting)
    require_agreement(work)
    seen = work.ledger.last_timeline(NAME)
    assert seen is not None and (seen.run, seen.oldest, seen.first) == ("tail/run-1", done, done)
    assert set(seen.instants) == {done, waiting}
    assert seen.instants[done].state == "COMPLETED" and str(seen.instants[done].completion) > done
    assert seen.instants[waiting] == SeenInstant("REQUESTED", None)


def test_a_rollback_that_is_under_way_shows(work: Work, table: ModelTable) -> None:
    instant = table.new_instant_time()
    table.request(None, "", instant)
    next(steps := table.rolling_back(instant))
    next(steps)
    timeline_view.timeline(work)
    seen = work.ledger.last_timeline(NAME)
    assert seen is not None and seen.instants[instant].state == "ROLLING_BACK"


def test_of_a_long_timeline_the_newest_and_all_that_is_pending_are_kept(work: Work, table: ModelTable) -> None:
    pending = table.new_instant_time()
    table.request(None, "", pending)
    instants = [table.new_instant_time() for _ in range(timeline_view.MOST + 20)]
    for instant in instants:
        commit(table, instant, {})
    timeline_view.timeline(work)
    seen = work.ledger.last_timeline(NAME)
    assert seen is not None and set(seen.instants) == {pending, *instants[20:]}
    assert (seen.oldest, seen.first) == (pending, instants[20])


def test_a_commit_is_compared_with_the_ledger(work: Work, table: ModelTable) -> None:
    instant = table.new_instant_time()
    found = prepared(work, instant)
    commit(table, instant, its_own(work, found))
    assert timeline_view.compared(work, found, work.timeline(), instant) == {
        "same_transaction": True,
        "same_ranges": True,
    }


def test_a_commit_of_other_ranges_or_of_another_transaction_differs(work: Work, table: ModelTable) -> None:
    instant = table.new_instant_time()
    found = prepared(work, instant)
    short = extra_of("another", NAME, "tail", ("tail", "run-1"), ranges_text([(RANGES[0], 99, 1_000, 0)]))
    commit(table, instant, short)
    assert timeline_view.compared(work, found, work.timeline(), instant) == {
        "same_transaction": False,
        "same_ranges": False,
    }


def test_a_commit_that_cannot_be_compared_is_not_judged(work: Work, table: ModelTable) -> None:
    instant = table.new_instant_time()
    found = prepared(work, instant)
    commit(table, instant, {"slshudi.ranges": "{"})
    assert timeline_view.compared(work, found, work.timeline(), instant) == {}
    assert timeline_view.compared(work, found, work.timeline(), None) == {}


@pytest.mark.parametrize("method", ["now", "save_timeline"])
def test_a_ledger_that_does_not_take_it_fails_nothing(
    work: Work, table: ModelTable, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def away(*_: object) -> None:
        raise LedgerUnavailable("the database does not answer")

    instant = table.new_instant_time()
    table.request(None, "", instant)
    monkeypatch.setattr(Ledger, method, away)
    assert [found.time for found in timeline_view.timeline(work)] == [instant]
