"""A migrated ledger in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger


@contextmanager
def engine_in(file: Path) -> Iterator[Engine]:
    """The engine of the ledger in an SQLite file, which is made if it is not there."""
    engine = open_engine(f"sqlite:///{file}")
    migrate(engine)
    yield engine
    engine.dispose()


@contextmanager
def ledger_in(file: Path) -> Iterator[Ledger]:
    """That ledger."""
    with engine_in(file) as engine:
        yield Ledger(engine)
