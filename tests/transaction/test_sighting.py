"""What a plan keeps of its look at the service, and how far a pipeline is behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import SourceRefused, SourceUnavailable
from airflow_provider_slshudi.ledger.records import BacklogSample, RangeTotals, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.windows import DEFAULT_BYTES_PER_GROUP
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.backlog import behind
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.ledgers import ledger_in
from tests.local.sdk import by_ip
from tests.pipelines import ad_events
from tests.scenarios import PROJECT, Scenario

NAME = "ad_events"
Make = Callable[..., Scenario]


class NoJobs:
    """Nothing here starts a driver."""

    def run(self, *_: object) -> None:
        raise AssertionError("a driver was asked for")


@pytest.fixture
def pipeline(server: LocalSls, tmp_path: Path) -> Iterator[Scenario]:
    """A logstore of one shard, and a ledger; no Spark."""
    logstore, client = tmp_path.name.replace("_", "-")[:50], by_ip(server.connection())
    client.create_logstore(PROJECT, logstore, ttl=7, shard_count=1)
    described = ad_events(tmp_path / "lake" / "ad_events", source={"project": PROJECT, "logstore": logstore})

    def connect() -> LogService:
        return LogService(server.connection(), PROJECT, logstore, patience=Patience(5))

    with ledger_in(tmp_path / "ledger.db") as ledger:
        yield Scenario(Work(described, ledger, NoJobs(), connect, Run("tail", "run-0")), client)


def read(pipeline: Scenario, run: str) -> Transaction:
    """A batch whose ranges the ledger takes for committed; nothing is written."""
    planned, ledger = plan.tail(pipeline.by(run)), pipeline.work.ledger
    assert planned is not None
    instant = planned.id.replace("T", "")[:17]
    ledger.opened(planned.id, 1, instant)
    totals = [RangeTotals(item, len(item) * 10, len(item) * 500, 1, 2) for item in ledger.ranges(planned.id)]
    ledger.prepared(planned.id, 1, {}, totals)
    return ledger.committed(planned.id, 1, instant)


def last(pipeline: Scenario) -> BacklogSample:
    return pipeline.work.ledger.backlog_samples(NAME, 1)[0]


def test_a_first_plan_asks_when_unread_logs_were_received_and_how_long_they_are_kept(pipeline: Scenario) -> None:
    before = int(time.time())
    pipeline.put(100)
    plan.tail(pipeline.by("run-1"))
    seen = last(pipeline)
    assert (seen.came, seen.unread, seen.unread_bytes, seen.kept) == (None, 10, None, 7 * 86_400)
    assert seen.unread_since is not None and before <= seen.unread_since <= time.time()
    assert pipeline.work.ledger.unread_since(NAME) == {0: seen.unread_since}


def test_what_came_after_the_last_look_is_no_older_than_that_look_and_costs_no_request(
    scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(100)
    pipeline.batch("run-1")
    looked = last(pipeline).at

    def asked(*_: object) -> int:
        raise AssertionError("the service was asked for a time")

    monkeypatch.setattr(LogService, "received", asked)
    pipeline.put(50, first=100)
    pipeline.batch("run-2")
    seen = last(pipeline)
    assert (seen.came, seen.unread) == (5, 5)
    assert seen.came_bytes == seen.unread_bytes and seen.came_bytes
    assert seen.unread_since == int(looked.timestamp())
    assert seen.kept is None, "asked once an hour"


def test_what_a_batch_left_is_as_old_as_the_service_says(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = scenario(shards=1, batch={"max_bytes": 4 * DEFAULT_BYTES_PER_GROUP})
    pipeline.put(100)
    first = pipeline.batch("run-1")
    assert pipeline.work.ledger.ranges(first.id)[0].end < (pipeline.work.ledger.shards(NAME)[0].end or 0)
    monkeypatch.setattr(LogService, "received", lambda self, shard, cursor: 1_600_000_000)
    pipeline.batch("run-2")
    assert last(pipeline).unread_since == 1_600_000_000, "older than the last look: only the service knows"


@pytest.mark.parametrize("error", [SourceUnavailable, SourceRefused])
def test_a_service_that_does_not_tell_ages_holds_nothing_up(
    pipeline: Scenario, monkeypatch: pytest.MonkeyPatch, error: type[SourceUnavailable]
) -> None:
    def refuse(*_: object) -> int:
        raise error("no times today", project=PROJECT, logstore="x")

    monkeypatch.setattr(LogService, "received", refuse)
    monkeypatch.setattr(LogService, "retention", refuse)
    pipeline.put(100)
    assert plan.tail(pipeline.by("run-1")) is not None
    seen = last(pipeline)
    assert (seen.unread, seen.unread_since, seen.kept) == (10, None, None)


def test_how_far_a_shard_is_behind_is_asked_anew_and_kept_nowhere(pipeline: Scenario) -> None:
    pipeline.put(100)
    read(pipeline, "run-1")
    (caught_up,) = behind(pipeline.by("person"))
    assert (caught_up.unread, caught_up.unread_bytes, caught_up.seconds) == (0, 0, 0.0)
    before, looks = time.time(), len(pipeline.work.ledger.backlog_samples(NAME, 10))
    pipeline.put(30, first=100)
    (found,) = behind(pipeline.by("person"))
    assert (found.covered_to, found.end, found.unread, found.unread_bytes) == (
        caught_up.end,
        caught_up.end + 3,
        3,
        1_500,
    )
    assert found.seconds is not None and found.seconds <= time.time() - before + 1
    assert len(pipeline.work.ledger.backlog_samples(NAME, 10)) == looks
