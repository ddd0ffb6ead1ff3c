"""A migrated ledger in a file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

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


@contextmanager
def quick_engine(folder: Path) -> Iterator[Engine]:
    """The engine of a new ledger in a folder, for thousands of ledgers: no migration, and no wait for the disk."""
    shutil.copy(_template(), folder / "ledger.db")
    engine = open_engine(f"sqlite:///{folder / 'ledger.db'}")

    def do_not_wait(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    event.listen(engine, "connect", do_not_wait)
    yield engine
    engine.dispose()


def in_memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def _template() -> Path:
    """A migrated, empty ledger."""
    path = Path(tempfile.mkdtemp(prefix="slshudi-ledger-")) / "ledger.db"
    with engine_in(path):
        return path
