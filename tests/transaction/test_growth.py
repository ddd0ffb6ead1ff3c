"""What a plan asks and a commit carries over thousands of shards, more than the local server has.

The logstore is a table of cursors here that counts what it is asked.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine, event

from airflow_provider_slshudi.exceptions import DataExpired, ManifestError, PipelineConflict
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.messages import Job, encode
from airflow_provider_slshudi.hudi.instant_metadata import PIPELINE_KEY, RANGES_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import RangeTotals, Transaction
from airflow_provider_slshudi.planning.windows import MOST_RANGES
from airflow_provider_slshudi.sls.service import LogService, Shard
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.resolve import _commit_order
from tests.model.table import ModelTable
from tests.pipelines import ad_events

BASE = 1_447_299_607_892_300_000
Commit = Callable[[Work, Transaction | None], None]


class Logstore:
    """Shards with their oldest and next cursors."""

    def __init__(self, shards: int) -> None:
        self.kept = dict.fromkeys(range(shards), (BASE, BASE + 10))
        self.asked: Counter[str] = Counter()
        self.listed: int | None = None

    @property
    def requests(self) -> int:
        return self.asked.total()

    def of_shard(self, shard: int) -> Logstore:
        return self

    def shards(self) -> list[Shard]:
        self.asked["shards"] += 1
        self.listed = int(time.time())
        return [Shard(shard, "readwrite", "0", "1", int(time.time())) for shard in self.kept]

    def begin(self, shard: int) -> int:
        self.asked["begin"] += 1
        return self.kept[shard][0]

    def end(self, shard: int) -> int:
        self.asked["end"] += 1
        return self.kept[shard][1]

    def end_if_there(self, shard: int) -> int | None:
        return self.end(shard) if shard in self.kept else None

    def received(self, shard: int, cursor: int) -> int:
        self.asked["received"] += 1
        return int(time.time())

    def retention(self) -> tuple[int, int]:
        self.asked["retention"] += 1
        return 7 * 86_400, 0

    def grow(self, shard: int, begin: int = BASE) -> None:
        self.kept[shard] = begin, self.kept[shard][1] + 10


@pytest.fixture
def table(tmp_path: Path) -> ModelTable:
    table = ModelTable(tmp_path / "table", lambda _: None)
    table.create_table()
    return table


@pytest.fixture
def work_on(engine: Engine, table: ModelTable, tmp_path: Path) -> Callable[[Logstore], Work]:
    def make(logstore: Logstore) -> Work:
        pipeline = ad_events(
            tmp_path / "table",
            source={"project": "ads", "logstore": "events", "start": "begin"},
            batch={"max_bytes": "100TiB"},
        )
        none = cast(Launcher, None)  # nothing here starts a job
        return Work(pipeline, Ledger(engine), none, lambda: cast(LogService, logstore), Run("tail", "run"))

    return make


def prepare(work: Work, planned: Transaction | None, instant: str = "20260101000000000") -> Transaction:
    assert planned is not None
    ledger = work.ledger
    ledger.opened(planned.id, 1, instant)
    totals = [RangeTotals(item, 123_456, 123_456_789, 1, 2) for item in ledger.ranges(planned.id)]
    return ledger.prepared(planned.id, 1, {"token": 1, "digest": "0"}, totals)


@pytest.fixture
def commit(table: ModelTable) -> Commit:
    def commit(work: Work, planned: Transaction | None) -> None:
        instant = table.new_instant_time()
        found = prepare(work, planned, instant)
        table.request(None, "", instant)
        table.to_inflight(None, "", instant)
        extra = {PIPELINE_KEY: work.pipeline.name, TRANSACTION_KEY: found.id}
        table.commit(None, None, instant, [], extra, lambda: None)
        work.ledger.committed(found.id, 1, instant)

    return commit


def test_a_shard_costs_one_question_and_one_with_news_two(work_on: Callable[[Logstore], Work], commit: Commit) -> None:
    logstore = Logstore(300)
    work = work_on(logstore)
    commit(work, plan.tail(work))

    logstore.asked.clear()
    assert plan.tail(work) is None
    assert logstore.asked == {"shards": 1, "end": 300}

    logstore.grow(7)
    logstore.asked.clear()
    planned = plan.tail(work)
    assert planned is not None
    assert [(item.shard, item.begin) for item in work.ledger.ranges(planned.id)] == [(7, BASE + 10)]
    assert logstore.asked == {"shards": 1, "end": 300, "begin": 1}


def test_a_backfill_asks_where_each_shard_ends_and_what_is_left_of_those_that_it_names(
    work_on: Callable[[Logstore], Work],
    commit: Commit,
) -> None:
    logstore = Logstore(300)
    work = work_on(logstore)
    commit(work, plan.backfill(work, plan.BackfillRequest(cursors={7: (BASE, BASE + 5)})))
    logstore.asked.clear()
    left = plan.preview_backfill(work, plan.BackfillRequest(cursors={7: (BASE, BASE + 5), 8: (BASE, BASE + 5)}))
    assert [item.shard for item in left] == [8]
    assert logstore.asked == {"shards": 1, "end": 300, "begin": 1}


def test_what_expired_is_noticed_and_so_is_another_logstore(
    work_on: Callable[[Logstore], Work], commit: Commit
) -> None:
    logstore = Logstore(50)
    work = work_on(logstore)
    commit(work, plan.tail(work))
    logstore.grow(7, begin=BASE + 13)
    with pytest.raises(DataExpired) as caught:
        plan.tail(work)
    assert (caught.value.shard, caught.value.begin, caught.value.end) == (7, BASE + 10, BASE + 13)
    logstore.kept[8] = 0, 3
    with pytest.raises(PipelineConflict, match="shard 8 ends at cursor 3"):
        plan.tail(work)


def test_a_plan_sends_as_many_statements_for_many_shards_as_for_few(
    engine: Engine, work_on: Callable[[Logstore], Work], commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow plan renews its lease.
    monkeypatch.setattr("airflow_provider_slshudi.transaction.context.PULSE_SECONDS", 3_600)
    counts = []
    logstore = Logstore(3)
    for shards in (3, 3, 1_000, 1_000):
        for shard in range(shards):
            logstore.kept.setdefault(shard, (BASE, BASE))
            logstore.grow(shard)
        work = work_on(logstore)
        statements: list[str] = []

        def listen(_connection: Any, _cursor: Any, statement: str, *_: Any, seen: list[str] = statements) -> None:
            seen.append(statement)

        event.listen(engine, "before_cursor_execute", listen)
        planned = plan.tail(work)
        event.remove(engine, "before_cursor_execute", listen)
        counts.append(len(statements))
        commit(work, planned)
    # New shards, or none: one statement. The seconds since when logs are unread may have changed, or not: one for all.
    assert abs(counts[1] - counts[3]) <= 1
    assert max(counts[2:]) <= counts[1] + 2


def test_more_shards_than_a_batch_takes_are_read_in_turn(work_on: Callable[[Logstore], Work], commit: Commit) -> None:
    shards = MOST_RANGES + 500
    logstore = Logstore(shards)
    work = work_on(logstore)
    commit(work, plan.tail(work))
    for shard in range(shards):
        logstore.grow(shard)
    planned = plan.tail(work)
    assert planned is not None
    found = [(item.shard, item.begin) for item in work.ledger.ranges(planned.id)]
    assert len(found) == MOST_RANGES
    assert found[-500:] == [(shard, BASE) for shard in range(MOST_RANGES, shards)]


def test_the_commit_of_the_largest_batch_is_a_few_kilobytes(work_on: Callable[[Logstore], Work]) -> None:
    work = work_on(Logstore(MOST_RANGES))
    prepared = prepare(work, plan.tail(work))
    instant = str(prepared.instant)
    digest = batch_files.write_order(
        work.storage, BatchOrder(prepared.id, 1, instant, work.pipeline.model_dump(mode="json"), [], {})
    )
    order = _commit_order(work, replace(prepared, order_digest=digest))
    attempt = Attempt(work.storage, prepared.id, instant, 1)
    assert len(encode(Job(Verb.COMMIT, order))) < 4_096
    extra: Mapping[str, str] = attempt.read_extra(order.extra)
    assert extra[TRANSACTION_KEY] == prepared.id
    assert len(json.loads(extra[RANGES_KEY])) == MOST_RANGES
    assert sum(map(len, extra.values())) < 512 * 1024

    attempt.leave_extra({**extra, PIPELINE_KEY: "another"})
    with pytest.raises(ManifestError, match="SHA-256 differs"):
        attempt.read_extra(order.extra)
