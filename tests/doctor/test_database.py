"""The checks of a ledger's database, on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url, text

from airflow_provider_slshudi.doctor import database
from airflow_provider_slshudi.doctor.database import Database
from airflow_provider_slshudi.doctor.finding import Verdict, run
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.ledger.registration import versions
from tests.databases import mariadb_server
from tests.doctor.conftest import Looked
from tests.users import NOBODY, open_folder, run_as

OK, WARNING, WRONG, UNKNOWN = Verdict


def test_a_ledger_in_use_is_well(engine: Engine, url: str, looked: Looked) -> None:
    looks = Database(lambda: url)
    found = looked(looks.checks())
    assert {item.verdict for item in found.values()} == {OK}
    assert found["tables"].seen.startswith(f"{engine.dialect.name} ") and "this package's own" in found["tables"].seen
    assert looks.is_sqlite == (engine.dialect.name == "sqlite")
    assert not looks.has_written("clicks", "sls://shop/clicks", "file:///lake/clicks")


def test_a_file_that_is_not_there_yet_is_tried_beside_it_and_not_made(tmp_path: Path, looked: Looked) -> None:
    looks = Database(lambda: f"sqlite:///{tmp_path}/ledger.db")
    found = looked(looks.checks())
    assert {item.verdict for item in found.values()} == {OK}
    assert "not there" not in found["lease"].seen and "beside it" in found["lease"].seen
    assert list(tmp_path.iterdir()) == []
    assert not looks.has_written("clicks", "sls://shop/clicks", "file:///lake/clicks")


@pytest.mark.parametrize(("place", "told"), [("", "is a folder"), ("none/ledger.db", "mkdir -p")])
def test_a_path_that_holds_no_file_is_wrong(tmp_path: Path, place: str, told: str, looked: Looked) -> None:
    (tmp_path / "lake").mkdir()
    found = looked(Database(lambda: f"sqlite:///{tmp_path}/lake/{place}").checks())
    assert found["connection"].verdict is WRONG
    assert told in f"{found['connection'].seen} {found['connection'].mend}"
    assert found["lease"].verdict is UNKNOWN


def test_another_user_s_file_is_told_with_its_owner(sqlite_template: Path) -> None:
    code = (
        "import sys; from airflow_provider_slshudi.doctor.database import Database; "
        "from airflow_provider_slshudi.doctor.finding import run; "
        "print(*[f'{item.verdict.value}: {item.seen}' for item in run('it', Database(lambda: sys.argv[1]).checks())])"
    )
    with open_folder() as folder:
        file = folder / "ledger.db"
        file.write_bytes(sqlite_template.read_bytes())
        file.chmod(0o444)
        folder.chmod(0o555)
        told = run_as(NOBODY, code, f"sqlite:///{file}")
        folder.chmod(0o777)
    assert "wrong: ledger sqlite:///" in told and "belongs to" in told and "nobody" in told


def test_airflow_s_own_database_is_no_place_for_a_ledger(tmp_path: Path, looked: Looked) -> None:
    with sqlite3.connect(tmp_path / "airflow.db") as made:
        made.execute("CREATE TABLE dag_run (id INTEGER)")
    found = looked(Database(lambda: f"sqlite:///{tmp_path}/airflow.db").checks())
    assert found["tables"].verdict is WRONG and "Airflow's own" in found["tables"].seen
    assert found["lease"].verdict is UNKNOWN


def test_tables_of_a_newer_version_are_left_as_they_are(engine: Engine, url: str, looked: Looked) -> None:
    def change(to: str) -> str:
        with engine.begin() as connection:
            was = connection.execute(text("SELECT version_num FROM slshudi_alembic_version")).scalar_one()
            connection.execute(text("UPDATE slshudi_alembic_version SET version_num = :to"), {"to": to})
            return str(was)

    kept = change("9999")
    try:
        found = looked(Database(lambda: url).checks())
    finally:
        left = change(kept)
    assert left == "9999"
    assert found["tables"].verdict is WRONG and "9999" in found["tables"].seen
    assert found["lease"].verdict is UNKNOWN


def test_tables_of_an_older_version_are_brought_up_by_the_next_use(
    url: str, looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "versions", lambda engine: replace(versions(engine), newest="0002"))
    found = looked(Database(lambda: url).checks())
    assert found["tables"].verdict is WARNING and "the next use brings them to 0002" in found["tables"].seen
    assert found["lease"].verdict is UNKNOWN


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [(timedelta(0), OK), (timedelta(minutes=5), WARNING), (timedelta(hours=3), WRONG), (timedelta(hours=-3), WARNING)],
)
def test_a_clock_beside_the_database_s(
    postgres_url: str,
    postgres_engine: Engine,
    ahead: timedelta,
    verdict: Verdict,
    looked: Looked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(timezone.utc) + ahead

    monkeypatch.setattr(database, "datetime", Clock)
    found = looked(Database(lambda: postgres_url).checks())
    assert found["database's clock"].verdict is verdict


def test_a_database_that_does_not_answer_is_wrong_and_its_password_is_not_told(looked: Looked) -> None:
    looks = Database(lambda: "postgresql://me:opensesame@127.0.0.1:9/ledger")
    found = looked(looks.checks())
    assert found["tables"].verdict is WRONG and "did not answer" in found["tables"].seen
    assert found["lease"].verdict is found["database's clock"].verdict is UNKNOWN
    assert "opensesame" not in str(found)
    with pytest.raises(LookupError):
        looks.has_written("clicks", "sls://shop/clicks", "file:///lake/clicks")


def test_a_connection_that_airflow_does_not_have_leaves_all_unknown(looked: Looked) -> None:
    def url_of() -> str:
        raise ConfigError("no connection", source="slshudi_ledger")

    looks = Database(url_of)
    found = looked(looks.checks())
    assert found.pop("connection").verdict is WRONG
    assert {item.verdict for item in found.values()} == {UNKNOWN}
    with pytest.raises(LookupError):
        looks.has_written("clicks", "sls://shop/clicks", "file:///lake/clicks")


def test_a_connection_in_clear_to_another_machine_is_a_warning(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, looked: Looked
) -> None:
    monkeypatch.setattr(database, "_HERE", ())
    found = looked(Database(lambda: postgres_url).checks())["TLS"]
    assert found.verdict is WARNING and "can be read" in found.seen and "sslmode: verify-full" in found.mend


def test_a_connection_by_tls_is_told() -> None:
    with mariadb_server() as server:
        server.speak_tls()
        # As a ledger whose connection has the extra `ssl_ca`.
        url = make_url(server.url).update_query_dict({"ssl_ca": str(server.authority)})
        looks = Database(lambda: url)
        found = {item.check: item for item in run("it", looks.checks())}
        looks.close()
    assert found["TLS"].verdict is OK and found["TLS"].seen == "the connection is by TLS"
