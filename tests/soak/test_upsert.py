"""A short soak of upserts; `make soak-upsert` is the long one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
