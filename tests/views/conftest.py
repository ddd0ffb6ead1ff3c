"""A ledger in SQLite, and pipelines in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    engine = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    migrate(engine)
    yield Ledger(engine)
    engine.dispose()
