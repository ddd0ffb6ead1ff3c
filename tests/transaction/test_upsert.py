"""Logs upsert rows: batch by batch the table holds what plain Python says, by Spark and by hudi-rs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import (
    BatchUnderWay,
    ConfigError,
    ForeignWrite,
    IllegalTransition,
    TooManyMisfits,
)
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario
from tests.upserts import (
    Change,
    Model,
    file_groups_of,
    put,
    rows_by_rust,
    rows_by_spark,
    write_by_data_source,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MODES: dict[str, dict[str, Any]] = {
    "event time": {},
    "commit time": {"ordering_field": None},
    "partial, event time": {"partial_update": True, "delete_marker": None},
    "partial, commit time": {"partial_update": True, "delete_marker": None, "ordering_field": None},
}


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("mode", MODES)
def test_inserts_updates_and_deletes_end_as_the_mode_says(
    spark: SparkSession, upserts: Callable[..., Scenario], type_: str, mode: str
) -> None:
    pipeline = upserts(type_, **MODES[mode])
    work, rng = pipeline.work, random.Random(7)
    assert work.pipeline.table.upsert is not None
    model = Model(work.pipeline.table.upsert, type_ == "merge_on_read")
    deletes = work.pipeline.table.upsert.delete_marker is not None
    for number in range(2):
        changes = [
            Change(
                f"c{rng.randrange(60)}",
                number * 100 + rng.randrange(150),
                rng.choice("ab"),
                rng.choice([None, 1, 2]),
                rng.choice([None, "x", "ü"]),
                rng.choice([None, 0.5]),
                number > 0 and deletes and rng.random() < 0.2,
            )
            for _ in range(80)
        ]
        put(pipeline.client, work.pipeline, changes)
        done = pipeline.batch(f"run-{number}")
        assert (done.state, done.rows) == (State.COMMITTED, 80)
        model.batch(changes)
        assert rows_by_spark(spark, work.storage.full("")) == model.table()
    assert rows_by_rust(work.storage.uri) == model.table()


@pytest.mark.parametrize("cut", [[60], [1, 20, 39], [10] * 6], ids=["one", "three", "six"])
@pytest.mark.parametrize("ordering", ["updated_at", None])
def test_partial_updates_do_not_depend_on_how_batches_are_cut(
    spark: SparkSession, upserts: Callable[..., Scenario], ordering: str | None, cut: list[int]
) -> None:
    rng = random.Random(11)
    changes = [
        Change(
            f"c{rng.randrange(6)}",
            rng.randrange(20),
            "a",
            rng.choice([None, number]),
            rng.choice([None, "x"]),
            rng.choice([None, 0.5]),
        )
        for number in range(60)
    ]
    pipeline = upserts("copy_on_write", partial_update=True, delete_marker=None, ordering_field=ordering)
    assert pipeline.work.pipeline.table.upsert is not None
    model, begin = Model(pipeline.work.pipeline.table.upsert), 0
    for count in cut:
        put(pipeline.client, pipeline.work.pipeline, changes[begin : begin + count])
        begin += count
        assert pipeline.batch(f"run-{begin}").rows == count
    model.batch(changes)
    assert rows_by_spark(spark, pipeline.work.storage.full("")) == model.table()


def some(count: int, first: int = 0, at: int = 1, **values: Any) -> list[Change]:
    """Changes of as many keys, in two partitions."""
    return [Change(f"c{number}", at, "ab"[number % 2], number, **values) for number in range(first, first + count)]


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
def test_hudis_own_writer_continues_our_table_and_we_continue_its(
    spark: SparkSession, upserts: Callable[..., Scenario], type_: str
) -> None:
    pipeline = upserts(type_)
    work = pipeline.work
    assert work.pipeline.table.upsert is not None
    model, path = Model(work.pipeline.table.upsert), Path(work.storage.full(""))
    batches = [some(60), some(30, at=2), some(80, first=20, at=3), [*some(9, at=4, is_deleted=True), *some(4, 90)]]
    for number, changes in enumerate(batches):
        if number % 2:
            write_by_data_source(spark, work.pipeline, changes)
            rebuild(pipeline.by("rebuild"))
        else:
            put(pipeline.client, work.pipeline, changes)
            assert pipeline.batch(f"run-{number}").state is State.COMMITTED
        model.batch(changes)
        assert rows_by_spark(spark, str(path)) == rows_by_rust(work.storage.uri) == model.table()
        groups = file_groups_of(path)
        assert {name: len(ids) for name, ids in groups.items()} == {"region=a": 4, "region=b": 4}
        if number == 0:
            first = groups
        assert groups == first


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
def test_rows_come_back_after_all_of_them_were_deleted(
    spark: SparkSession, upserts: Callable[..., Scenario], type_: str
) -> None:
    pipeline = upserts(type_)
    work = pipeline.work
    assert work.pipeline.table.upsert is not None
    model, path = Model(work.pipeline.table.upsert), work.storage.full("")
    gone = some(20, at=2, is_deleted=True)
    for number, changes in enumerate([some(20), gone, some(5, at=3), [*gone[:9], *some(3, 70, at=4)]]):
        put(pipeline.client, work.pipeline, changes)
        assert pipeline.batch(f"run-{number}").state is State.COMMITTED
        model.batch(changes)
        assert rows_by_spark(spark, path) == rows_by_rust(work.storage.uri) == model.table(), number
    assert all(len(ids) == 4 for ids in file_groups_of(Path(path)).values())


def test_a_write_of_another_client_meanwhile_has_the_batch_done_again(
    spark: SparkSession, upserts: Callable[..., Scenario]
) -> None:
    pipeline = upserts("copy_on_write")
    work = pipeline.work
    put(pipeline.client, work.pipeline, some(20))
    pipeline.batch("run-1")
    put(pipeline.client, work.pipeline, some(20, at=3))
    prepared = pipeline.prepare(pipeline.by("run-2"))
    write_by_data_source(spark, work.pipeline, some(30, at=2))
    with pytest.raises(IllegalTransition, match=r"ABORTED .* out of date: instant \d+ was completed since"):
        steps.commit(pipeline.by("run-2"), prepared.id, prepared.token)
    with pytest.raises(ForeignWrite):
        settle(pipeline.by("run-3"), lambda run: True)
    rebuild(pipeline.by("rebuild"))
    pipeline.batch("run-3")
    found = {row[1]: row[2] for row in rows_by_spark(spark, work.storage.full(""))}
    assert found == {f"c{number}": 3 if number < 20 else 2 for number in range(30)}


@pytest.mark.capability("upsert")
def test_batches_that_upsert_go_one_after_the_other(upserts: Callable[..., Scenario]) -> None:
    pipeline = upserts()
    put(pipeline.client, pipeline.work.pipeline, some(10))
    planned = plan.tail(pipeline.by("run-1"))
    assert planned is not None
    put(pipeline.client, pipeline.work.pipeline, some(10))
    with pytest.raises(BatchUnderWay, match="go one after the other") as refused:
        plan.tail(pipeline.by("run-2"))
    assert refused.value.transaction == planned.id
    with pytest.raises(BatchUnderWay):
        plan.backfill(pipeline.by("run-3"), plan.BackfillRequest(cursors={0: (0, 1)}))
    assert settle(pipeline.by("run-4"), lambda run: True) and plan.tail(pipeline.by("run-4"))


def test_a_log_without_a_key_is_named(upserts: Callable[..., Scenario]) -> None:
    pipeline = upserts()
    put(pipeline.client, pipeline.work.pipeline, [*some(3), Change("", 1, "a")])
    with pytest.raises(Exception, match=r"KeyMissing: column id: log 0-\d+-3 has no value for it"):
        pipeline.batch("run-1")


def test_logs_without_a_key_are_dropped_and_counted_where_the_file_says_so(
    spark: SparkSession, upserts: Callable[..., Scenario]
) -> None:
    refusing = upserts()
    whole = {"id": "c1", "updated_at": 1, "region": "a", "number": 7}
    no_order = {name: value for name, value in whole.items() if name != "updated_at"}
    # The third has two columns that do not fit, and counts once; of a log group the places stay those of the service.
    raw(
        refusing, {**whole, "id": ""}, no_order, {**whole, "id": "", "updated_at": "soon"}, {**whole, "id": "c2"}, whole
    )
    with pytest.raises(Exception, match="missing_key: drop"):
        refusing.batch("run-1")

    table = refusing.work.pipeline.model_dump(mode="json")["table"]
    dropping = {**table, "upsert": {**table["upsert"], "missing_key": "drop"}}
    with pytest.raises(TooManyMisfits, match="3 of 5 logs"):
        with_fields(refusing, table=dropping, max_misfits=0.5).batch("run-2")
    pipeline = with_fields(refusing, table=dropping)
    recorded = pipeline.batch("run-3").manifest or {}
    assert (recorded["dropped"], recorded["unfit"]) == (3, 3)
    assert recorded["misfits"] == {"id": 2, "updated_at": 2}
    assert [example.partition(" of log")[0] for example in recorded["examples"]] == [
        "column updated_at",
        *["column id"] * 2,
    ]
    assert {row[1] for row in rows_by_spark(spark, pipeline.work.storage.full(""))} == {"c1", "c2"}
    raw(refusing, {**whole, "updated_at": 2, "number": 8})
    assert pipeline.batch("run-4").rows == 1


def test_rows_without_a_partition_value_have_one_of_their_own(
    spark: SparkSession, upserts: Callable[..., Scenario]
) -> None:
    pipeline = upserts()
    work = pipeline.work
    for at in (1, 2):
        log = LogItem(1_700_000_000, contents=[("id", "c"), ("updated_at", str(at))])
        source = work.pipeline.source
        pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "t", "s", [log]))
        pipeline.batch(f"run-{at}")
    assert [row[:3] for row in rows_by_spark(spark, work.storage.full(""))] == [(None, "c", 2)]


def test_rows_that_were_merged_prove_nothing(upserts: Callable[..., Scenario]) -> None:
    with pytest.raises(ConfigError, match="pipeline customers upserts: rows have keys of their own"):
        verify(upserts().work)


def test_a_table_that_hudi_bulk_inserted_is_continued(spark: SparkSession, upserts: Callable[..., Scenario]) -> None:
    pipeline = upserts()
    work = pipeline.work
    assert work.pipeline.table.upsert is not None
    model, path = Model(work.pipeline.table.upsert), Path(work.storage.full(""))
    options = {"hoodie.datasource.write.operation": "bulk_insert", "hoodie.compact.inline": "false"}
    write_by_data_source(spark, work.pipeline, some(60), **options)
    model.batch(some(60))
    rebuild(pipeline.by("rebuild"))
    before = file_groups_of(path)
    changes = [*some(30, at=2), *some(5, 40, at=2, is_deleted=True)]
    put(pipeline.client, work.pipeline, changes)
    pipeline.batch("run-1")
    model.batch(changes)
    assert rows_by_spark(spark, str(path)) == rows_by_rust(work.storage.uri) == model.table()
    assert file_groups_of(path) == before


def raw(pipeline: Scenario, *logs: dict[str, Any]) -> None:
    """Puts logs as they are."""
    source = pipeline.work.pipeline.source
    items = [LogItem(int(time.time()), contents=[(key, str(value)) for key, value in log.items()]) for log in logs]
    pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "", "10.0.0.1", items))


def with_fields(pipeline: Scenario, **fields: Any) -> Scenario:
    described = Pipeline.model_validate({**pipeline.work.pipeline.model_dump(mode="json"), **fields})
    return replace(pipeline, work=pipeline.by("run-0", pipeline=described))


def test_the_share_of_misfits_is_bounded_as_that_of_an_append(upserts: Callable[..., Scenario]) -> None:
    pipeline = with_fields(upserts(), max_misfits=0.4)
    fits = {"id": "c1", "updated_at": 1, "region": "a", "number": 7}
    raw(pipeline, fits, {**fits, "number": "many"})
    with pytest.raises(TooManyMisfits, match=r"1 of 2 logs .*number: 1.*max_misfits"):
        pipeline.batch("run-1")
    raw(pipeline, fits)
    assert pipeline.batch("run-2").rows == 3


def test_event_times_are_late_or_from_the_future_by_when_the_batch_was_planned(
    upserts: Callable[..., Scenario],
) -> None:
    plain = upserts()
    described = plain.work.pipeline.model_dump(mode="json")
    bounds = {"late": "1d", "future": "1d", "rule": "fail"}
    partition = {"by": "event_time", "column": "seen", "every": "month", "bounds": bounds}
    columns = [*described["columns"], {"name": "seen", "type": "timestamp", "format": "seconds"}]
    pipeline = with_fields(plain, columns=columns, table={**described["table"], "partition": partition})
    raw(pipeline, {"id": "c1", "updated_at": 1, "seen": int(time.time())})
    assert pipeline.batch("run-1").rows == 1
