"""Consumers behind a few real batches, without Airflow; `make handoff` is the long run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_slshudi.services import maintenance
from tests.chaos.downstream import Consumers
from tests.exact.counts import rows_of
from tests.pipelines import served_often
from tests.scenarios import Scenario

COMMITS = 8


@pytest.mark.timeout(600)
def test_three_consumers_get_each_log_once_while_one_dies(
    scenario: Callable[..., Scenario],
    tmp_path: Path,
) -> None:
    pipeline = scenario(shards=1, described=served_often)
    work, committed = pipeline.work, 0
    table, url = work.pipeline.table.path, f"{work.ledger._engine.url}"
    with Consumers(
        tmp_path / "consumers", work.ledger, url, work.pipeline.name, table, lambda: committed, COMMITS // 2, "7"
    ) as consumers:
        for number in range(COMMITS):
            pipeline.put(20, first=20 * number)
            pipeline.batch(f"run-{number}")
            committed += 1
        maintenance.clean(work)
        maintenance.archive(work)
        outcome = consumers.count({key for (key,) in rows_of(work.storage, "_hoodie_record_key")})
    assert outcome.ok, outcome
    assert outcome.logs == 3 * 20 * COMMITS
    assert outcome.figures["behind archival"] == 1
