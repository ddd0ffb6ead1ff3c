"""The pipeline's file changes while batches are under way: what is refused, by which step, and what goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch, ManifestError
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi import evolution
from airflow_provider_slshudi.hudi.schema import type_of_avro
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def changed(pipeline: Pipeline, **types: str) -> Pipeline:
    """The pipeline with columns of these types, made anew or in the place of those of the same name."""
    described = pipeline.model_dump(mode="json")
    kept = [column for column in described["columns"] if column["name"] not in types]
    new: list[dict[str, Any]] = [{"name": name, "type": type_} for name, type_ in types.items()]
    return Pipeline.model_validate({**described, "columns": [*kept, *new]})


def columns_of(scenario: Scenario) -> dict[str, str]:
    now = evolution.schema_of_now(scenario.work.storage, Timeline.load(scenario.work.storage))
    assert now is not None
    return {field["name"]: str(type_of_avro(field["type"])) for field in now.record["fields"]}


def opened(work: Work) -> Transaction:
    planned = plan.tail(work)
    assert planned is not None
    steps.open_instant(work, planned.id, planned.token)
    return work.ledger.get(planned.id)


def test_what_the_table_cannot_become_is_refused_by_plan_and_by_open(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    pipeline.put(20, first=20)
    wrong = pipeline.by("run-2", pipeline=changed(pipeline.work.pipeline, clicks="boolean", price="float"))
    said = r"clicks: bigint there, boolean in the file \(it may become nothing else.*; price: double there, float in"
    for refused in (
        plan.tail,
        plan.preview,
        lambda work: plan.backfill(work, plan.BackfillRequest(cursors={0: (0, 9)})),
    ):
        with pytest.raises(ColumnMismatch, match=said) as error:
            refused(wrong)
        assert error.value.columns == (("clicks", "bigint", "boolean"), ("price", "double", "float"))
    assert pipeline.work.ledger.live("ad_events") == []

    # The file changed after plan had looked at it.
    planned = plan.tail(pipeline.by("run-3"))
    assert planned is not None
    with pytest.raises(ColumnMismatch, match="clicks: bigint there"):
        steps.open_instant(pipeline.by("run-3", pipeline=wrong.pipeline), planned.id, planned.token)
    assert Timeline.load(pipeline.work.storage).pending() == []


def test_batches_that_make_one_column_two_things_are_not_both_recorded(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    pipeline.put(20, first=20)
    one = pipeline.by("run-2", pipeline=changed(pipeline.work.pipeline, city="string"))
    other = pipeline.by("run-3", pipeline=changed(pipeline.work.pipeline, city="boolean"))
    first = opened(one)
    pipeline.put(20, first=40)
    second = opened(other)
    for work, batch in ((one, first), (other, second)):
        steps.append(work, batch.id, batch.token)
    steps.record(one, first.id, first.token)
    with pytest.raises(ManifestError, match=r"another batch changed the same columns.*city: string there, boolean"):
        steps.record(other, second.id, second.token)

    # Whoever recovers them has a file of its own, which does not matter to what is recorded.
    again = pipeline.by("run-4", pipeline=changed(pipeline.work.pipeline, price="double"))
    settle(again, lambda run: True)
    assert [again.ledger.get(batch.id).state for batch in (first, second)] == [State.COMMITTED, State.ABORTED]
    assert columns_of(pipeline)["city"] == "string"
    assert pipeline.batch("run-5").rows == 20
    found = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    assert found.count() == found.select("event_id").distinct().count() == 60
    assert found.where("city = 'Ulm'").count() == 20


def test_a_batch_that_one_of_an_older_file_overtook_is_read_again(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    pipeline.put(20, first=20)
    wide = pipeline.by("run-2", pipeline=changed(pipeline.work.pipeline, city="string"))
    slow = opened(wide)
    pipeline.put(20, first=40)
    quick = pipeline.by("run-3")
    prepared = pipeline.prepare(quick)
    steps.commit(quick, prepared.id, prepared.token)
    steps.append(wide, slow.id, slow.token)
    with pytest.raises(ManifestError, match=f"commit {prepared.instant} began later .* lacks columns of this batch"):
        steps.record(wide, slow.id, slow.token)

    settle(wide, lambda run: True)
    planned = pipeline.prepare(pipeline.by("run-4", pipeline=wide.pipeline))
    # Once it is recorded, a batch of the older file that completes first carries its columns along.
    pipeline.put(20, first=60)
    last = pipeline.by("run-5")
    overtaking = pipeline.prepare(last)
    steps.commit(last, overtaking.id, overtaking.token)
    assert columns_of(pipeline)["city"] == "string"
    committing = pipeline.by("run-6", pipeline=wide.pipeline)
    steps.commit(committing, planned.id, planned.token)
    found = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    assert found.count() == found.select("event_id").distinct().count() == 80
    assert found.where("city = 'Ulm'").count() == 20


def test_services_go_by_the_tables_columns_not_by_the_files(scenario: Callable[..., Scenario]) -> None:
    """Rolling back and cleaning are possible while the file asks for what plan refuses."""
    pipeline = scenario(shards=1)
    pipeline.put(20)
    pipeline.batch("run-1")
    before = columns_of(pipeline)
    pipeline.put(20, first=20)
    dangling = opened(pipeline.by("run-2"))
    wrong = pipeline.by("run-3", pipeline=changed(pipeline.work.pipeline, clicks="boolean", new="date"))
    settle(wrong, lambda run: True)
    assert wrong.ledger.get(dangling.id).state is State.ABORTED
    wrong.launcher.run(Verb.PLAN_CLEAN, wrong.order(), {})
    assert columns_of(pipeline) == before


def test_columns_become_wider_in_partitions_that_have_files_of_both_types(
    spark: SparkSession, scenario: Callable[..., Scenario]
) -> None:
    """Hudi keeps statistics of each partition, and makes one type of what its files have."""
    chains = {
        "a": ("clicks", ["int", "bigint"]),
        "b": ("clicks", ["int", "double"]),
        "c": ("price", ["float", "double"]),
        "d": ("price", ["decimal(7,2)", "decimal(9,2)", "decimal(13,3)"]),
    }
    pipeline = scenario(shards=1)
    for number in range(3):
        described = pipeline.work.pipeline.model_dump(mode="json")
        described["columns"] = described["columns"][:2] + [
            {"name": name, "type": types[min(number, len(types) - 1)], "key": key}
            for name, (key, types) in chains.items()
        ]
        pipeline.put(20, first=20 * number)
        work = pipeline.by(f"run-{number}", pipeline=Pipeline.model_validate(described))
        prepared = pipeline.prepare(work)
        steps.commit(work, prepared.id, prepared.token)
    found = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    assert {name: type_ for name, type_ in found.dtypes if name in chains} == {
        name: types[-1] for name, (_, types) in chains.items()
    }
    rows = found.where("a = 58 and b = 58 and c = 14.5 and d = 14.5").select("event_id").collect()
    assert [row[0] for row in rows] == ["event-58"] and found.count() == 60
