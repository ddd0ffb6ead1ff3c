"""A ledger in MariaDB, which stands for MySQL: batches, a recovery, a proof, and the ledger made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.databases import mariadb_server
from tests.scenarios import Scenario


@pytest.fixture
def url() -> Iterator[str]:
    with mariadb_server() as server:
        yield server.url


def test_batches_a_recovery_a_proof_and_a_rebuilt_ledger(scenario: Callable[..., Scenario], url: str) -> None:
    made = scenario(ledger_url=url)
    made.put(100)
    assert made.batch("run-1").state is State.COMMITTED
    made.put(50, first=100)
    made.prepare(made.by("run-2"))
    assert [item.decision for item in settle(made.by("run-3"), lambda run: True)] == [Decision.RECOMMIT]
    made.put(50, first=150)
    opened = made.open(made.by("run-4"))
    assert [item.decision for item in settle(made.by("run-5"), lambda run: True)] == [Decision.ROLL_BACK_AND_ABORT]
    assert made.work.ledger.get(opened.id).state is State.ABORTED
    assert made.batch("run-6").rows == 50
    before = made.work.ledger.coverage(made.work.pipeline.name)
    assert verify(made.work, source=True).rows == 200
    rebuild(made.work)
    assert made.work.ledger.coverage(made.work.pipeline.name) == before
    assert verify(made.work).ok
