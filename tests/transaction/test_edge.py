"""At the edge of retention logs expire between the plan that pins them and the append that reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from py4j.protocol import Py4JError

from airflow_provider_slshudi.exceptions import ConfigError, DataExpired, LedgerError
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, State, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.local.store import FOREVER
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.local.sdk import by_ip
from tests.scenarios import PROJECT, Scenario
from tests.transaction.test_vanished_shards import with_source

DAY_SECONDS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    """One whose days last seconds."""
    with LocalSls(tmp_path_factory.mktemp("edge"), day=DAY_SECONDS) as running:
        by_ip(running.connection()).create_project(PROJECT, "tests")
        yield running


@pytest.fixture
def pipeline(scenario: Callable[..., Scenario]) -> Scenario:
    """One shard with two old log groups and three new ones."""
    made = scenario(shards=1)
    keep(made, FOREVER)
    made.put(20)
    time.sleep(DAY_SECONDS + 1)
    made.put(30, first=20)
    return made


def keep(pipeline: Scenario, days: int) -> None:
    pipeline.client.update_logstore(PROJECT, pipeline.work.pipeline.source.logstore, ttl=days)


def expire(pipeline: Scenario) -> int:
    """Drops what is a day old: as a rule the two old groups, on a busy machine more. Gives the oldest cursor left."""
    keep(pipeline, 1)
    oldest = pipeline.work.connect().begin(0)
    keep(pipeline, FOREVER)
    return oldest


def finish(work: Work, planned: Transaction) -> Transaction:
    for step in (steps.append, steps.record, steps.commit):
        step(work, planned.id, planned.token)
    return work.ledger.get(planned.id)


@pytest.mark.parametrize("opened_before", [True, False], ids=["after open", "after plan"])
def test_what_expired_since_the_plan_becomes_a_gap_where_the_pipeline_allows_it(
    pipeline: Scenario, opened_before: bool
) -> None:
    work = with_source(pipeline, on_expired="skip").by("run-1")
    planned = plan.tail(work)
    assert planned is not None
    (whole,) = work.ledger.ranges(planned.id)
    if opened_before:
        steps.open_instant(work, planned.id, planned.token)
    oldest = expire(pipeline)
    assert whole.begin < oldest
    if not opened_before:
        steps.open_instant(work, planned.id, planned.token)
    done = finish(work, planned)
    gap = Range(0, whole.begin, min(oldest, whole.end), gap=True)
    read = [Range(0, oldest, whole.end)] if oldest < whole.end else []
    assert work.ledger.ranges(done.id) == [gap, *read]
    assert (done.state, done.rows) == (State.COMMITTED, 10 * sum(map(len, read)))
    assert verify(work).ok
    assert plan.tail(replace(work, run=replace(work.run, run_id="run-2"))) is None
    rebuild(work)
    assert work.ledger.ranges(done.id) == [gap, *read], "the commit tells of the gap, too"


def test_where_it_does_not_the_error_says_what_helps_and_nothing_is_lost(pipeline: Scenario) -> None:
    work = pipeline.by("run-1")
    planned = plan.tail(work)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    expire(pipeline)
    with pytest.raises((Py4JError, DataExpired), match=r"no longer holds the log groups.*on_expired: skip"):
        steps.append(work, planned.id, planned.token)
    settle(pipeline.by("run-2"), lambda run: True)
    assert work.ledger.get(planned.id).state is State.ABORTED
    with pytest.raises(DataExpired):
        plan.tail(pipeline.by("run-2"))


def test_a_backfill_of_everything_reads_what_is_there_and_hides_no_loss_from_the_tail(pipeline: Scenario) -> None:
    work, request = pipeline.by("backfill"), plan.BackfillRequest(everything=True)
    pinned = plan.pinned(work, request)
    assert pinned.cursors is not None and not pinned.is_named
    ((begin, end),) = pinned.cursors.values()
    planned = plan.backfill(work, pinned)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    oldest = expire(pipeline)
    done = finish(work, planned)
    assert work.ledger.ranges(done.id) == ([Range(0, oldest, end)] if oldest < end else [])
    assert verify(work).ok
    assert plan.preview_backfill(work, pinned) == []
    with pytest.raises(DataExpired) as lost:
        plan.tail(pipeline.by("run-1"))
    assert (lost.value.begin, lost.value.end) == (begin, min(oldest, end))


def test_a_begin_that_was_named_is_refused_and_one_that_was_not_is_moved(pipeline: Scenario) -> None:
    pinned = plan.pinned(pipeline.work, plan.BackfillRequest(everything=True))
    oldest = expire(pipeline)
    pipeline.put(10, first=50)
    with pytest.raises(ConfigError, match="the service holds only"):
        plan.preview_backfill(pipeline.work, replace(pinned, everything=False))
    assert all(item.begin >= oldest for item in plan.preview_backfill(pipeline.work, pinned))


def test_the_ledger_refuses_a_loss_that_was_not_planned(work: Work) -> None:
    ledger, name = work.ledger, work.pipeline.name
    ledger.register(name, work.pipeline.source.identity, work.pipeline.table.path)
    begun = ledger.begin(name, Kind.TAIL, [Range(0, 10, 20)], "tail", "run-1")
    ledger.opened(begun.id, begun.token, "20260101000000000")
    totals = [RangeTotals(Range(0, 12, 20), 8, 80, None, None)]
    with pytest.raises(LedgerError, match=r"0:\[5, 10\) is said to be lost, and was not planned"):
        ledger.prepared(begun.id, begun.token, {}, totals, [Range(0, 5, 12, gap=True)])
    with pytest.raises(LedgerError, match="do not match"):
        ledger.prepared(begun.id, begun.token, {}, totals)
    ledger.prepared(begun.id, begun.token, {}, totals, [Range(0, 10, 12, gap=True)])
    assert ledger.ranges(begun.id) == [Range(0, 10, 12, gap=True), Range(0, 12, 20)]
