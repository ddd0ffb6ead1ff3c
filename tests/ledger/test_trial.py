"""A look at a ledger's database leaves nothing there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, make_url, select, text

from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.models import metadata
from airflow_provider_slshudi.ledger.registration import trial, versions


def rows(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {name: len(connection.execute(select(table)).all()) for name, table in metadata.tables.items()}


def test_a_trial_takes_a_lease_and_leaves_no_row(ledger: Ledger, engine: Engine) -> None:
    before = rows(engine)
    with ledger.lease("clicks", "somebody"):
        trial(engine)
    assert rows(engine) == before
    assert ledger.holdings("clicks") == []


def test_trials_at_the_same_time_do_not_disturb_one_another(ledger: Ledger, engine: Engine) -> None:
    before = rows(engine)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: trial(engine), range(8)))
    assert rows(engine) == before


def test_a_trial_needs_the_right_to_write(postgres_url: str, postgres_engine: Engine) -> None:
    with postgres_engine.begin() as connection:
        connection.execute(text("CREATE ROLE reader LOGIN"))
        for name in metadata.tables:
            connection.execute(text(f"GRANT SELECT ON {name} TO reader"))
        connection.execute(text("GRANT SELECT ON slshudi_alembic_version TO reader"))
    reader = open_engine(make_url(postgres_url).set(username="reader").render_as_string())
    try:
        with pytest.raises(LedgerError, match="permission denied"):
            trial(reader)
    finally:
        reader.dispose()
        with postgres_engine.begin() as connection:
            connection.execute(text("DROP OWNED BY reader"))
            connection.execute(text("DROP ROLE reader"))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_without_tables_a_trial_makes_them_and_leaves_none(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        engine = open_engine(f"sqlite:///{tmp_path}/new.db")
    else:
        there: str = request.getfixturevalue("postgres_url")
        root = open_engine(there)
        with root.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("DROP DATABASE IF EXISTS fresh"))
            connection.execute(text("CREATE DATABASE fresh"))
        root.dispose()
        engine = open_engine(make_url(there).set(database="fresh").render_as_string())
    assert versions(engine).tables is None
    trial(engine)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_versions_tell_database_and_tables_apart(engine: Engine) -> None:
    found = versions(engine)
    assert found.database.startswith(f"{engine.dialect.name} ") and any(map(str.isdigit, found.database))
    assert found.tables == found.newest and found.known and not found.airflows


def test_tables_of_a_later_version_are_not_known(engine: Engine) -> None:
    with engine.begin() as connection:
        kept = connection.execute(text("SELECT version_num FROM slshudi_alembic_version")).scalar_one()
        connection.execute(text("UPDATE slshudi_alembic_version SET version_num = '9999'"))
    try:
        found = versions(engine)
    finally:
        with engine.begin() as connection:
            connection.execute(text("UPDATE slshudi_alembic_version SET version_num = :kept"), {"kept": kept})
    assert (found.tables, found.known) == ("9999", False)
