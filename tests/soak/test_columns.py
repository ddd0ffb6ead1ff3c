"""A short soak of changing columns; `make soak-tables` has the long one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.system.points import Point
from tests.exact.outcome import Outcome
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
    seed, outcome = random.SystemRandom().randrange(1 << 32), Outcome()
    soak = Soak(scenario(), spark, seed, outcome)
    soak.batch()
    soak.batch(None, "add")
    soak.batch("PREPARED", "widen")
    soak.batch("OPEN", "rename")
    soak.batch(Point.COMMIT_STARTED, "drop")
    soak.batch(None, "return")
    soak.finish()
    print(seed, outcome)
    assert outcome.ok, str(outcome)
    assert outcome.logs == 7 * 20 and soak.file.done.keys() >= {"add", "widen", "rename", "drop", "return"}
