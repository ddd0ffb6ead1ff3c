"""A shard of which nobody knows the hash keys any more waits for no open shard, which would be for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, UNKNOWN, RangeTotals, StartPositions, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Work
from tests.scenarios import PROJECT, Scenario
from tests.transaction.test_vanished_shards import NAME, Unlisted, known, vanish, with_source

Make = Callable[..., Scenario]
SPLIT_AT = "c" + "0" * 31
_INSTANTS = iter(range(1, 1_000))


@pytest.fixture
def half_split(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Shard 0 takes logs for ever; shard 1 was closed with unread logs and made 2 and 3.

    There is no table: what the steps after a plan tell the ledger is told here.
    """
    monkeypatch.setattr(Ledger, "has_written", lambda ledger, name: False)
    monkeypatch.setattr(plan, "require_agreement", lambda work: None)
    pipeline = with_source(scenario(shards=2), order="by_key", on_expired="skip")
    pipeline.put(100)
    pipeline.client.split_shard(PROJECT, pipeline.work.pipeline.source.logstore, 1, SPLIT_AT)
    pipeline.put(200, first=100)
    return pipeline


def forgotten(pipeline: Scenario, another_ledger: Ledger, gone: bool) -> Scenario:
    """By a ledger that was made anew of what the table kept."""
    service = pipeline.work.connect()
    first, end = {shard: service.begin(shard) for shard in range(4)}, service.end(1)
    source, table = pipeline.work.pipeline.source.identity, pipeline.work.pipeline.table.path
    another_ledger.register(NAME, source, table)
    another_ledger.rebuild(NAME, [], StartPositions(first, {1: end} if gone else {}))
    after = replace(pipeline, work=replace(pipeline.work, ledger=another_ledger))
    assert (known(after)[1].status, known(after)[1].hash_begin) == (GONE if gone else UNKNOWN, "")
    return after


def commit(work: Work, planned: Transaction) -> list[Range]:
    """What the steps after the plan tell the ledger."""
    ledger, ranges = work.ledger, work.ledger.ranges(planned.id)
    number = next(_INSTANTS)
    ledger.opened(planned.id, planned.token, f"{number:017d}")
    totals = [RangeTotals(item, 1, 1, None, None) for item in ranges if not item.gap]
    ledger.prepared(planned.id, planned.token, {}, totals)
    ledger.committed(planned.id, planned.token, f"{number:017d}")
    return ranges


def shards_of_batches(pipeline: Scenario, count: int, **changes: Any) -> list[set[int]]:
    found = []
    for number in range(count):
        pipeline.put(40, first=1_000 + 40 * number)  # the open shard always has something
        work = pipeline.by(f"run-{number}", **changes)
        assert plan.has_news(work)
        planned = plan.tail(work)
        assert planned is not None
        found.append({item.shard for item in commit(work, planned)})
    return found


def test_a_gap_of_a_deleted_shard_waits_for_no_open_one(half_split: Scenario, another_ledger: Ledger) -> None:
    after = forgotten(half_split, another_ledger, gone=True)
    vanish(after, 1)
    assert shards_of_batches(after, 2) == [{0, 1}, {0, 2, 3}]


def test_a_shard_that_a_listing_leaves_out_waits_for_no_open_one(half_split: Scenario, another_ledger: Ledger) -> None:
    after = forgotten(half_split, another_ledger, gone=False)
    service = cast(Any, Unlisted(after.work.connect(), {1}))
    assert shards_of_batches(after, 2, connect=lambda: service) == [{0, 1}, {0, 2, 3}]
