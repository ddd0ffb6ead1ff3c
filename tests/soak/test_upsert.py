"""A short soak of upserts; `make soak-upsert` is the long one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.soak.splits import histories, unordered
from tests.soak.upsert import soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("type_", "batches"), [("merge_on_read", 7), ("copy_on_write", 3)])
def test_upserts_are_as_the_model_says_whoever_is_killed(
    spark: SparkSession, tmp_path: Path, type_: str, batches: int
) -> None:
    outcome = soak(tmp_path, spark, type_, batches, seed=random.randrange(1 << 32))
    print(outcome)
    assert outcome.ok, "; ".join([str(outcome), *outcome.faults])
    assert outcome.batches == batches and outcome.changes > batches


def test_each_key_holds_its_last_put_whatever_becomes_of_its_shards(spark: SparkSession, tmp_path: Path) -> None:
    outcome, shards = histories(tmp_path, spark, "copy_on_write", 10, random.randrange(1 << 32), rounds=5)
    print(outcome)
    assert outcome.ok, "; ".join([str(outcome), *outcome.faults])
    assert outcome.changes > 10 and shards > 10


def test_a_plan_in_which_no_shard_waits_is_found(spark: SparkSession, tmp_path: Path) -> None:
    with unordered():
        outcome, _ = histories(tmp_path, spark, "copy_on_write", 30, seed=5, rounds=8)
    assert any("the model has" in fault for fault in outcome.faults), str(outcome)
