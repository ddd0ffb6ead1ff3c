"""A table of 900 columns: its pipeline is longer than what Linux takes as one argument of a command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.spark import resident
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from tests.pipelines import wide
from tests.scenarios import Scenario


def test_a_batch_of_900_columns(scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resident.IDLE, "20")
    told: list[str] = []
    pipeline = scenario(shards=1, described=wide, launcher=SubprocessLauncher(say=told.append, resident=True))
    pipeline.put(10)
    committed = pipeline.batch("run-1")
    assert committed.state is State.COMMITTED and committed.rows == 10
    assert len([line for line in told if "by resident process" in line]) == 3, "open, append and commit"
