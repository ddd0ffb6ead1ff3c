"""The short form of `make differential`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.run import Outcome, one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_random_tables_are_what_a_model_says_to_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    seed, outcome = random.randrange(1 << 32), Outcome()
    print(f"seed {seed}")
    for number in range(3):
        outcome.join(one(spark, tmp_path, seed + number))
    assert outcome.wrong == []
    assert outcome.tables == 3 and outcome.queries > 150


@pytest.mark.parametrize("lie", ["a file twice", "another value", "statistics of floating numbers"])
def test_a_planted_lie_is_found(spark: SparkSession, tmp_path: Path, lie: str) -> None:
    tables = (one(spark, tmp_path, seed, lie) for seed in range(100, 130))
    assert any(found.wrong for found in tables)
