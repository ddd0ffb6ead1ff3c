"""Every scenario runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.models import metadata
from tests.services import postgres

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


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a migrated, empty ledger."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        engine = open_engine(f"sqlite:///{path}")
        yield engine
        engine.dispose()
    else:
        engine = request.getfixturevalue("postgres_engine")
        with engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)}"))
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
