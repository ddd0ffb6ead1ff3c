"""What a backfill would read, before anything starts."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.views.progress import estimate_backfill
from airflow_provider_slshudi.views.words import backfill
from tests.scenarios import Scenario

Make = Callable[..., Scenario]
EVERYTHING = plan.BackfillRequest(everything=True)


def test_everything_that_nobody_has_read_is_counted_also_before_the_duty(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(100)
    pipeline.work.ledger.register(
        pipeline.work.pipeline.name, pipeline.work.pipeline.source.identity, pipeline.work.pipeline.table.path
    )
    unknown = estimate_backfill(pipeline.by("person"), EVERYTHING)
    assert (unknown.groups, unknown.bytes, unknown.rows, unknown.batches, unknown.seconds) == (
        10,
        None,
        None,
        None,
        None,
    )
    done = pipeline.batch("run-1")
    assert estimate_backfill(pipeline.by("person"), EVERYTHING).groups == 0
    pipeline.put(50, first=100)
    found = estimate_backfill(pipeline.by("person"), EVERYTHING)
    assert (found.groups, found.rows, found.batches) == (5, 50, 1)
    assert found.bytes is not None and abs(found.bytes - done.bytes / 2) < 0.05 * done.bytes
    assert found.seconds is not None and found.seconds > 0
    assert backfill(found).startswith("5 log groups in 1 ranges of 1 shards; by recent batches about ")
    live = pipeline.work.ledger.live(pipeline.work.pipeline.name)
    assert live == [], "nothing was started"


def test_everything_is_read_in_one_go_and_ends_with_what_the_service_holds_now(scenario: Make) -> None:
    pipeline = scenario()
    pipeline.put(100)
    pinned = plan.pinned(pipeline.by("backfill"), EVERYTHING)
    assert pinned.cursors is not None and set(pinned.cursors) == {0, 1}
    pipeline.put(50, first=100)
    planned = plan.backfill(pipeline.by("backfill"), pinned)
    assert planned is not None
    assert sum(map(len, pipeline.work.ledger.ranges(planned.id))) == 10, "what came since is the tail's"


def test_a_span_without_logs_is_nothing(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    now = int(time.time())
    assert estimate_backfill(pipeline.by("person"), plan.BackfillRequest(span=(now - 600, now - 300))).groups == 0
