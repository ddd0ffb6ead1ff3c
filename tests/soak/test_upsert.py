"""A short soak of upserts; `make soak-upsert` is the long one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exact.outcome import Outcome
from tests.soak import splits
from tests.soak.upsert import soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("type_", "batches"), [("merge_on_read", 7), ("copy_on_write", 3)])
def test_upserts_are_as_the_model_says_whoever_is_killed(
    spark: SparkSession, tmp_path: Path, type_: str, batches: int
) -> None:
    outcome, seed = Outcome(), random.randrange(1 << 32)
    soak(tmp_path, spark, type_, batches, seed, outcome)
    print(seed, outcome)
    assert outcome.ok, str(outcome)
    assert outcome.figures["batches"] == batches and outcome.logs > batches


def test_each_key_holds_its_last_put_whatever_becomes_of_its_shards(spark: SparkSession, tmp_path: Path) -> None:
    outcome, seed = Outcome(), random.randrange(1 << 32)
    splits.soak(tmp_path, spark, "copy_on_write", 10, seed, outcome, rounds=5)
    print(seed, outcome)
    assert outcome.ok, str(outcome)
    assert outcome.logs > 10 and outcome.figures["shards"] > 10


def test_a_plan_in_which_no_shard_waits_is_found(spark: SparkSession, tmp_path: Path) -> None:
    outcome = Outcome()
    with splits.unordered():
        splits.soak(tmp_path, spark, "copy_on_write", 30, 5, outcome, rounds=8)
    assert outcome.differences, str(outcome)
