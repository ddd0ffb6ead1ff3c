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


@pytest.mark.parametrize(
    ("lie", "first"),
    # Few drawn tables have what the last one needs: the search begins with one that has.
    [("a file twice", 100), ("another value", 100), ("statistics of floating numbers", 114)],
)
def test_a_planted_lie_is_found(spark: SparkSession, tmp_path: Path, lie: str, first: int) -> None:
    tables = (one(spark, tmp_path, seed, lie) for seed in range(first, first + 30))
    assert any(found.wrong for found in tables)
