"""Logs upsert rows: batch by batch the table holds what plain Python says, by Spark and by hudi-rs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.ledger.states import State
from tests.scenarios import Scenario
from tests.upserts import Change, Model, put, rows_by_rust, rows_by_spark

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
    model, deletes = Model(work.pipeline.table.upsert), work.pipeline.table.upsert.delete_marker is not None
    for number in range(3):
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
