"""A ledger that is rebuilt still knows which partitions each commit wrote to, archived commits too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from tests.scenarios import Scenario
from tests.transaction.quarantined import of_version
from tests.transaction.served import served


@pytest.mark.long
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_rebuilt_ledger_has_the_partitions_of_every_commit(
    scenario: Callable[..., Scenario], another_ledger: Ledger, version: int
) -> None:
    pipeline = of_version(served(scenario), version)
    for number in range(0, 600, 100):
        pipeline.put(100, first=number)
        pipeline.batch(f"run-{number}")
    assert maintenance.archive(pipeline.by("archive")).instants > 0
    before = pipeline.work.ledger.commits("ad_events", 0, 6)
    assert {len(item.partitions or {}) for item in before} == {1, 2}

    rebuild(replace(pipeline.work, ledger=another_ledger))
    after = another_ledger.commits("ad_events", 0, 6)
    assert [(item.place, item.instant, item.partitions) for item in after] == [
        (item.place, item.instant, item.partitions) for item in before
    ]
