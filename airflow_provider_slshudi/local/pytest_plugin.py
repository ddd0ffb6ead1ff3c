"""A pytest fixture: `pytest_plugins = ["airflow_provider_slshudi.local.pytest_plugin"]` in a conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_slshudi.local.process import LocalSls


@pytest.fixture(scope="session")
def local_sls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    """One server for the whole session; each test should make its own project or logstore."""
    with LocalSls(tmp_path_factory.mktemp("sls")) as server:
        yield server
