"""A ledger in SQLite, and pipelines in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.ledger.ledger import Ledger
from tests.ledgers import ledger_in


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger_in(tmp_path / "ledger.db") as made:
        yield made
