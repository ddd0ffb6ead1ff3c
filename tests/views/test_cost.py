"""What batches cost, as far as it was kept."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views import history
from airflow_provider_slshudi.views.cost import costs
from tests.seen import GROUP, committed, planned, registered


def of_an_older_version(ledger: Ledger, ranges: list[Range]) -> None:
    """A batch whose manifest and events tell nothing of its cost."""
    found = ledger.begin("clicks", Kind.TAIL, ranges, "clicks_tail", "old")
    ledger.opened(found.id, 1, "20200101000000000")
    totals = [RangeTotals(item, 10, len(item) * GROUP, 1, 2) for item in ranges]
    ledger.prepared(found.id, 1, {"files": 1, "stored": 1_000}, totals)
    ledger.committed(found.id, 1, "20200101000000005")


def test_a_batch_costs_what_its_drivers_tasks_and_plan_told(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    (batch,) = history.batches(ledger.history("clicks", 1))
    assert (batch.cost.requests, batch.cost.seconds) == (10, 4.0)
    found = costs([batch])
    assert (found.batches, found.known) == (1, 1)
    gb = 30 * GROUP / 1e9
    assert found.cpu == pytest.approx(4.0 / gb) and found.requests == pytest.approx(10 / gb)
    assert found.files == pytest.approx(2 / gb) and found.stored == pytest.approx(5_000 / (30 * GROUP))


def test_what_an_older_version_did_not_keep_is_unknown_and_counts_for_nothing(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    of_an_older_version(ledger, [Range(0, 30, 60)])
    (old,) = history.batches(ledger.history("clicks", 1))
    assert (old.cost.requests, old.cost.seconds) == (None, None)
    alone = costs([old])
    assert (alone.batches, alone.known, alone.cpu, alone.requests) == (1, 0, None, None)
    assert alone.stored == pytest.approx(1_000 / (30 * GROUP))

    committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    both = costs(history.batches(ledger.history("clicks", 2)))
    assert (both.batches, both.known) == (2, 1)
    assert both.cpu == pytest.approx(4.0 / (30 * GROUP / 1e9)), "the older batch's bytes do not make it cheaper"


def test_a_batch_under_way_costs_what_nobody_knows_yet(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    planned(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    (batch,) = history.batches(ledger.history("clicks", 1))
    assert (batch.cost.asked, batch.cost.requests, batch.cost.seconds) == ({"plan": 4, "append": None}, None, None)
    assert costs([batch]).batches == 0
