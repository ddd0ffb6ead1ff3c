"""Shards: how far each is read, and what it was split or merged from."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LedgerShard, Standing
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views.shards import parents, shards
from tests.seen import GROUP, LAST, committed, planned, registered, saw


def standing(ledger: Ledger) -> Standing:
    (found,) = ledger.standings(1, ledger.now() - timedelta(hours=1))
    return found


def test_a_shard_is_covered_running_and_missing(ledger: Ledger) -> None:
    registered(ledger, "clicks")
    committed(ledger, "clicks", [Range(0, 0, 30)], "run-1")
    planned(ledger, "clicks", [Range(0, 30, 50)], "run-2")
    saw(ledger, "clicks", unread=70, since=120)
    (view,) = shards(standing(ledger))
    assert (view.covered, view.running, view.missing) == ([Range(0, 0, 30)], [Range(0, 30, 50)], [Range(0, 50, 100)])
    assert (view.covered_to, view.unread, view.unread_bytes) == (30, 70, 70 * GROUP)
    assert view.seconds is not None and 119 < view.seconds < 140


def test_a_shard_whose_end_nobody_asked_has_nothing_to_compare_with(ledger: Ledger) -> None:
    ledger.register("clicks", "sls://ads/clicks", "file:///lake/clicks")
    ledger.save_shards("clicks", [LedgerShard(0, "unknown", "", "", 7)])
    (view,) = shards(standing(ledger))
    assert (view.unread, view.covered_to, view.seconds, view.missing, view.parents) == (0, None, None, [], [])


def test_parents_are_told_by_key_ranges() -> None:
    half, quarter = "8" + "0" * 31, "4" + "0" * 31
    whole = LedgerShard(0, "gone", "0" * 32, LAST, 0)
    left, right = LedgerShard(1, "readonly", "0" * 32, half, 0), LedgerShard(2, "readonly", half, LAST, 0)
    first, second = LedgerShard(3, "readonly", "0" * 32, quarter, 0), LedgerShard(4, "readonly", quarter, half, 0)
    merged = LedgerShard(5, "readwrite", quarter, LAST, 0)
    found = [whole, left, right, first, second, merged]
    assert {shard.id: parents(shard, found) for shard in found} == {0: [], 1: [0], 2: [0], 3: [1], 4: [1], 5: [2, 4]}


def test_shards_of_different_logstores_are_no_relatives() -> None:
    closed = LedgerShard(0, "readonly", "0" * 32, LAST, 0)
    found = [
        closed,
        LedgerShard(1_000_000, "readonly", "0" * 32, LAST, 0),
        LedgerShard(1_000_001, "readwrite", "0" * 32, LAST, 0),
    ]
    assert {shard.id: parents(shard, found) for shard in found} == {0: [], 1_000_000: [], 1_000_001: [1_000_000]}
