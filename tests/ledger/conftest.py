"""Every scenario runs on SQLite, on a real PostgreSQL, and on a real MariaDB, which stands for MySQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.models import metadata
from tests.databases import MariadbServer, mariadb_server, postgres

PIPELINE = "clicks"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgres_engine(postgres_url: str) -> Iterator[Engine]:
    engine = open_engine(postgres_url)
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    with mariadb_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_engine(mariadb: MariadbServer) -> Iterator[Engine]:
    engine = open_engine(mariadb.url)
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a migrated, empty ledger."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        engine = open_engine(f"sqlite:///{path}")
        yield engine
        engine.dispose()
    elif request.param == "postgresql":
        engine = request.getfixturevalue("postgres_engine")
        with engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)}"))
        yield engine
    else:
        engine = request.getfixturevalue("mariadb_engine")
        with engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
        yield engine


@pytest.fixture
def url(engine: Engine) -> str:
    """How another process reaches the same ledger."""
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    """A ledger that knows one pipeline."""
    ledger = Ledger(engine)
    ledger.register(PIPELINE, "sls://shop/clicks", "file:///lake/clicks")
    return ledger
