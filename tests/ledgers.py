"""A migrated ledger in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger


@contextmanager
def ledger_in(file: Path) -> Iterator[Ledger]:
    """The ledger in an SQLite file, which is made if it is not there."""
    engine = open_engine(f"sqlite:///{file}")
    migrate(engine)
    yield Ledger(engine)
    engine.dispose()
