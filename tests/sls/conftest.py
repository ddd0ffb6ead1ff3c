"""A real server, and a way to it that a scenario can disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from aliyun.log import LogClient

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.local.pytest_plugin import local_sls
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from tests.local.sdk import PROJECT, by_ip, make_logstore
from tests.sls.disturbance import Disturbed

__all__ = ["local_sls"]


@pytest.fixture
def client(local_sls: LocalSls) -> LogClient:
    return by_ip(local_sls.connection())


@pytest.fixture
def logstore(client: LogClient) -> str:
    return make_logstore(client, f"logs-{uuid4().hex[:12]}")


@pytest.fixture
def service(local_sls: LocalSls, logstore: str) -> LogService:
    return LogService(local_sls.connection(), PROJECT, logstore)


@pytest.fixture
def way(local_sls: LocalSls) -> Iterator[Disturbed]:
    with Disturbed(local_sls.endpoint) as way:
        yield way


@pytest.fixture
def disturbed(way: Disturbed, service: LogService) -> Callable[[float], LogService]:
    """The same logstore over the disturbed way, with a budget in seconds."""

    def connect(budget: float) -> LogService:
        there = service.connection
        connection = SlsConnection(way.endpoint, there.access_key_id, there.access_key_secret)
        return LogService(connection, service.project, service.logstore, patience=Patience(budget))

    return connect
