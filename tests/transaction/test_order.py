"""Logs of a key are committed in the order in which they were put, also where their shard is split in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.exceptions import BatchUnderWay
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import plan, steps
from tests.scenarios import PROJECT, Scenario
from tests.transaction.test_vanished_shards import split, with_source
from tests.upserts import Change, Model, put, rows_by_rust, rows_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOW, HALF = "0" * 32, "8" + "0" * 31
GROUP = 5


def changes(number: int, count: int = 40) -> list[Change]:
    """Changes of as many keys, each with its number in `number` and in a column that orders nothing."""
    return [Change(f"c{key}", 0, "ab"[key % 2], number) for key in range(count)]


def put_by_key(pipeline: Scenario, made: list[Change]) -> None:
    """Puts little log groups; all of a key have one hash key."""
    for hash_key, odd in ((LOW, 0), (HALF, 1)):
        mine = [change for change in made if int(change.id[1:]) // 2 % 2 == odd]
        for first in range(0, len(mine), GROUP):
            put(pipeline.client, pipeline.work.pipeline, mine[first : first + GROUP], hash_key=hash_key)


def batches(pipeline: Scenario) -> Iterator[set[int]]:
    """Batches until nothing is unread; the shards of each."""
    for number in range(100):
        run = f"run-{number}"
        if not plan.preview(pipeline.work):
            return
        done = pipeline.batch(run)
        yield {item.shard for item in pipeline.work.ledger.ranges(done.id)}
    raise AssertionError("there is always something unread")


@pytest.mark.parametrize("merged", [False, True], ids=["split", "split, then merged"])
def test_the_last_value_of_each_key_is_the_one_that_was_put_last(
    spark: SparkSession, upserts: Make, merged: bool
) -> None:
    pipeline = upserts("copy_on_write", ordering_field=None)
    logstore, made = pipeline.work.pipeline.source.logstore, changes(0)
    put_by_key(pipeline, made)
    pipeline.batch("run-first")  # of which the size of log groups is learnt
    pipeline = replace(
        pipeline,
        work=replace(
            pipeline.work, pipeline=pipeline.work.pipeline.model_copy(update={"batch": Batch(max_bytes=1_500)})
        ),
    )
    for number in range(1, 4):
        # What comes last of a closed shard changes the rows that come first of its children.
        some = changes(number)[:: -1 if number == 1 else 1]
        made += some
        put_by_key(pipeline, some)
        if number == 1:
            pipeline.client.split_shard(PROJECT, logstore, 0, HALF)
        elif number == 2 and merged:
            pipeline.client.merge_shard(PROJECT, logstore, 1)
    shards = list(batches(pipeline))
    assert len(shards) > 3, "the backlog takes several batches"
    model = Model(pipeline.work.pipeline.table.upsert)  # type: ignore[arg-type]
    model.batch(made)
    assert rows_by_spark(spark, pipeline.work.storage.full("")) == model.table()
    assert rows_by_rust(pipeline.work.storage.uri) == model.table()


def test_appends_keep_an_order_where_it_is_asked_for(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    split(pipeline)
    pipeline.put(30, first=20)
    assert {item.shard for item in plan.preview(pipeline.work)} == {0, 1, 2}
    ordered = with_source(pipeline, order="by_key")
    assert {item.shard for item in plan.preview(ordered.work)} == {0}
    planned = plan.tail(ordered.by("run-1"))
    assert planned is not None
    # What is planned may be given up, so its shard's children wait, and so does the next batch.
    assert not plan.has_news(ordered.by("look"))
    with pytest.raises(BatchUnderWay, match="go one after the other"):
        plan.tail(ordered.by("run-2"))
    for step in (steps.open_instant, steps.append, steps.record, steps.commit):
        step(ordered.by("run-1"), planned.id, planned.token)
    assert {item.shard for item in plan.preview(ordered.work)} == {1, 2}
    assert plan.has_news(ordered.by("look"))


def test_a_backfill_reads_a_shard_before_its_children(scenario: Make) -> None:
    pipeline = with_source(scenario(shards=1), order="by_key")
    pipeline.put(20)
    split(pipeline)
    pipeline.put(30, first=20)
    everything = plan.BackfillRequest(everything=True)
    assert {item.shard for item in plan.left_of(pipeline.work, everything)} == {0, 1, 2}
    assert {item.shard for item in plan.preview_backfill(pipeline.work, everything)} == {0}
    begin = pipeline.work.connect().begin(1)
    named = plan.BackfillRequest(cursors={1: (begin, begin + 1)})
    assert {item.shard for item in plan.preview_backfill(pipeline.work, named)} == {1}, "nothing of 0 was asked for"


class Busy:
    """The pipeline's service, to whose shards a log group comes between any two questions about an end."""

    def __init__(self, service: LogService, asks: str) -> None:
        self._service, self._asks, self._came = service, asks, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def end(self, shard: int) -> int:
        self._came += 1
        return self._service.end(shard) + self._came

    def at(self, shard: int, unix_seconds: int) -> int:
        return self.end(shard) if unix_seconds > 2_000_000_000 else self._service.at(shard, unix_seconds)

    def begin(self, shard: int) -> int:
        return self.end(shard) if self._asks == "begin" else self._service.begin(shard)


@pytest.mark.parametrize("start", ["end", 4_000_000_000, "begin"])
def test_logs_that_come_while_a_first_plan_asks_are_read_by_the_next(scenario: Make, start: Any) -> None:
    """At `begin` all logs expire meanwhile."""
    pipeline = with_source(scenario(shards=4), start=start)
    busy = cast(LogService, Busy(pipeline.work.connect(), str(start)))
    assert plan.tail(pipeline.by("run-1", connect=lambda: busy)) is None
    assert [shard.first for shard in pipeline.work.ledger.shards("ad_events")] == [
        shard.end for shard in pipeline.work.ledger.shards("ad_events")
    ]


def test_a_backfill_by_time_ends_where_its_plan_saw_the_shards_end(scenario: Make) -> None:
    pipeline = scenario(shards=2)
    pipeline.put(20)
    busy = cast(LogService, Busy(pipeline.work.connect(), "end"))
    work = pipeline.by("look", connect=lambda: busy)
    found = plan.preview_backfill(work, plan.BackfillRequest(span=(1, 4_000_000_000)))
    assert {item.shard for item in found} == {0, 1}
