"""One server for the room's scenarios, and one of a test's own where it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.pytest_plugin import local_sls
from tests.local.sdk import by_ip, make_logstore

__all__ = ["local_sls"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalSls]:
    with LocalSls(tmp_path / "sls") as server:
        yield server


@pytest.fixture
def client(local_sls: LocalSls) -> LogClient:
    return by_ip(local_sls.connection())


@pytest.fixture
def logstore(client: LogClient) -> str:
    return make_logstore(client, f"logs-{uuid4().hex[:12]}")
