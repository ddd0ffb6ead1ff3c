"""Servers with a lasting and with a temporary key, and the official SDK as it is, led to them by `http_proxy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from aliyun.log import LogClient, LogException

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from tests.local.sdk import by_name

ENDPOINT = "cn-local.log.aliyuncs.com"
WAYS = ("v1", "v4", "v1+STS", "v4+STS")
Refusal = Callable[[Callable[[], object]], tuple[int, str]]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, LocalSls]]:
    """By whether the key is a temporary one."""
    lasting = LocalSls(tmp_path_factory.mktemp("lasting"))
    temporary = LocalSls(tmp_path_factory.mktemp("temporary"), security_token="sts-token")
    with lasting, temporary:
        yield {False: lasting, True: temporary}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(servers: dict[bool, LocalSls], way: str, monkeypatch: pytest.MonkeyPatch) -> LocalSls:
    server = servers["STS" in way]
    monkeypatch.setenv("http_proxy", f"http://{server.endpoint}")
    monkeypatch.setenv("no_proxy", "")
    return server


@pytest.fixture
def connection(server: LocalSls, way: str) -> SlsConnection:
    version: AuthVersion = "v4" if "v4" in way else "v1"
    return server.connection(version)


@pytest.fixture
def client(connection: SlsConnection) -> LogClient:
    return by_name(ENDPOINT, connection)


@pytest.fixture(params=["lz4", "zstd", None], ids=["lz4", "zstd", "plain"])
def compression(request: pytest.FixtureRequest) -> str | None:
    kind: str | None = request.param
    return kind


@pytest.fixture
def project(client: LogClient) -> Iterator[str]:
    name = f"project-{uuid4().hex[:12]}"
    client.create_project(name, "to be tried")
    yield name
    client.delete_project(name)


@pytest.fixture
def logstore(client: LogClient, project: str) -> str:
    client.create_logstore(project, "access", ttl=7, shard_count=1)
    return "access"


@pytest.fixture
def refused() -> Refusal:
    """Status and code of the error that a call gets."""

    def status_and_code(call: Callable[[], object]) -> tuple[int, str]:
        with pytest.raises(LogException) as error:
            call()
        assert error.value.get_request_id()
        return error.value.get_resp_status(), error.value.get_error_code()

    return status_and_code
