"""Connections of type `slshudi_iceberg` as pyiceberg's properties of a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hooks.iceberg import IcebergHook
from tests.machine import connection

REST = {"type": "rest", "warehouse": "lake"}


def set_up(monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], **fields: Any) -> IcebergHook:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection("slshudi_iceberg", **fields, extra=extra))
    return IcebergHook("lake")


@pytest.mark.parametrize(
    ("fields", "extra", "expected"),
    [
        (
            {"host": "https://catalog:8181", "login": "id", "password": "key"},
            REST,
            {"uri": "https://catalog:8181", "credential": "id:key", **REST},
        ),
        (
            {"host": "https://catalog:8181", "password": "key"},
            REST,
            {"uri": "https://catalog:8181", "token": "key", **REST},
        ),
        (
            {"host": "postgresql://server/lake", "login": "me", "password": "k@y"},
            {"type": "sql", "name": "other"},
            {"uri": "postgresql://me:k%40y@server/lake", "type": "sql", "name": "other"},
        ),
        ({"host": "thrift://metastore:9083"}, {"type": "hive"}, {"uri": "thrift://metastore:9083", "type": "hive"}),
        ({}, {"type": "glue", "glue.region": "x"}, {"type": "glue", "glue.region": "x"}),
    ],
)
def test_the_catalog_gets_its_address_and_credentials(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], extra: dict[str, str], expected: dict[str, str]
) -> None:
    assert set_up(monkeypatch, extra, **fields).properties() == {"name": "lake", **expected}


@pytest.mark.parametrize(
    ("fields", "extra", "match"),
    [
        ({"host": "https://catalog"}, {}, "extra `type` is one of sql, rest, hive, glue"),
        ({}, {"type": "rest"}, "a rest catalog needs its address in `host`"),
        ({"host": "postgresql://me:secret@server/lake"}, {"type": "sql"}, "put it into `password`"),
        ({"host": "server/secret"}, {"type": "sql"}, "SQLAlchemy's URL"),
    ],
)
def test_a_connection_that_cannot_work_says_why_and_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], extra: dict[str, str], match: str
) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        set_up(monkeypatch, extra, **fields).properties()
    assert "secret" not in str(refused.value) and refused.value.__cause__ is None


def test_the_test_button_asks_the_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook = set_up(monkeypatch, {"type": "sql"}, host=f"sqlite:///{tmp_path / 'catalog.db'}")
    assert hook.test_connection() == (True, "the catalog answers; it has 0 namespaces")
    works, why = set_up(monkeypatch, {"type": "sql"}, host="sqlite:////nowhere/at/all.db").test_connection()
    assert not works and "unable to open database file" in why
