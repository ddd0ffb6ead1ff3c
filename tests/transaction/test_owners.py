"""A table of one user, and a command that another one gives: root, as a rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TableDenied
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Scenario
from tests.users import NOBODY


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_root_writes_nothing_to_the_table_of_another_user(scenario: Callable[..., Scenario], umask: None) -> None:
    made = scenario(shards=1)
    made.put(10)
    made.batch("run-1")
    table = Path(made.work.storage.full(""))
    if os.geteuid() != 0:
        metadata.check_metadata(made.work)  # one's own table is no trouble
        return
    everything = [table, *table.rglob("*")]
    for path in everything:
        os.chown(path, NOBODY, NOBODY)
    later = made.by("run-2")
    transactions = len(made.work.ledger.last("ad_events", 10))
    acts: list[Callable[[], object]] = [
        lambda: metadata.rebuild_metadata(later),
        lambda: settle(later, lambda run: True),
        lambda: plan.tail(later),
        lambda: verify(later),
    ]
    for act in acts:
        with pytest.raises(TableDenied) as denied:
            act()
        assert (denied.value.owner, denied.value.user) == ("nobody", "root")
        assert str(table) in str(denied.value) and "Run it as nobody" in str(denied.value)
    assert sorted(table.rglob("*")) == sorted(everything[1:])
    assert len(made.work.ledger.last("ad_events", 10)) == transactions
    return None
