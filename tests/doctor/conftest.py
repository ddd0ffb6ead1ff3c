"""A log service, a logstore in it, and the ways to a ledger."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from airflow_provider_slshudi.doctor.finding import Check, Finding, run
from airflow_provider_slshudi.local import LocalSls
from tests.ledger.conftest import engine, mariadb, mariadb_engine, postgres_engine, postgres_url, sqlite_template, url
from tests.local.sdk import by_ip, make_logstore
from tests.sls.conftest import local_sls

__all__ = [
    "engine",
    "local_sls",
    "mariadb",
    "mariadb_engine",
    "postgres_engine",
    "postgres_url",
    "sqlite_template",
    "url",
]

Looked = Callable[[list[Check]], dict[str, Finding]]


@pytest.fixture
def looked() -> Looked:
    """Runs checks; gives their findings by name."""
    return lambda checks: {found.check: found for found in run("it", checks)}


@pytest.fixture
def logstore(local_sls: LocalSls) -> str:
    return make_logstore(by_ip(local_sls.connection()), f"looked-at-{uuid4().hex[:12]}", shards=2)
