"""A short soak of changing columns; `python -m tests.soak.columns` is the long one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.system.points import Point
from tests.scenarios import Scenario
from tests.soak.columns import Soak
from tests.transaction.conftest import scenario, server  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_columns_change_while_runs_die_and_readers_show_the_model(
    spark: SparkSession,
    scenario: Callable[..., Scenario],  # noqa: F811
) -> None:
    soak = Soak(scenario(), spark, seed=random.SystemRandom().randrange(1 << 32))
    soak.batch()
    soak.batch(None, "add")
    soak.batch("PREPARED", "widen")
    soak.batch("OPEN", "rename")
    soak.batch(Point.COMMIT_STARTED, "drop")
    soak.batch(None, "return")
    outcome = soak.finish()
    print(outcome)
    assert outcome.ok, str(outcome)
    assert outcome.logs == 7 * 20 and outcome.changes.keys() >= {"add", "widen", "rename", "drop", "return"}
