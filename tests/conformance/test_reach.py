"""Who may ask, and by what address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from aliyun.log import LogClient, LogException, auth

from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from airflow_provider_slshudi.system.secrets import Secret
from tests.conformance.conftest import ENDPOINT, Refusal
from tests.local.sdk import by_ip, by_name, log_group

PROJECT = "reached-project"


def test_wrong_keys_and_tokens_get_the_services_errors(connection: SlsConnection, refused: Refusal, way: str) -> None:
    def answer(**changes: Any) -> tuple[int, str]:
        return refused(by_name(ENDPOINT, replace(connection, **changes)).list_project)

    assert answer(access_key_secret=Secret("wrong")) == (401, "SignatureNotMatch")
    assert answer(access_key_id="unknown") == (401, "Unauthorized")
    assert answer(security_token=Secret("old-token")) == (401, "Unauthorized")
    if "STS" in way:
        assert answer(security_token=Secret("")) == (401, "Unauthorized")


def test_a_token_that_expires_is_told_and_a_new_one_goes_on(
    server: LocalSls, client: LogClient, refused: Refusal
) -> None:
    server.faults = {"rules": [{"operations": "list_project", "do": "expired_token", "count": 1}]}
    assert refused(client.list_project) == (401, "Unauthorized")
    client.list_project()


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_clock_16_minutes_off_is_told(
    client: LogClient, refused: Refusal, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    class Skewed(datetime):
        @classmethod
        def utcnow(cls) -> Skewed:
            return super().utcnow() + timedelta(minutes=minutes)

    monkeypatch.setattr(auth, "datetime", Skewed)
    assert refused(client.list_project) == (400, "RequestTimeExpired")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    with LocalSls(tmp_path_factory.mktemp("secure"), tls=True) as server:
        yield server


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that knows every name under `sls.local`, as this machine's address."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".sls.local") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def goes_there_and_back(client: LogClient) -> None:
    client.create_project(PROJECT, "")
    client.create_logstore(PROJECT, "access", shard_count=1)
    client.put_log_raw(PROJECT, "access", log_group(b"there"))
    (answer,) = client.pull_log(PROJECT, "access", 0, "begin", "end")
    assert [log["value"] for log in answer.get_flatten_logs_json()] == ["there"]
    client.delete_project(PROJECT)


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("address", ["ip-and-port", "host-name"])
@pytest.mark.usefixtures("resolver")
def test_it_is_reached_by_address_and_by_name(
    servers: dict[bool, LocalSls],
    secure: LocalSls,
    monkeypatch: pytest.MonkeyPatch,
    auth_version: AuthVersion,
    tls: bool,
    address: str,
) -> None:
    server = secure if tls else servers[False]
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secure.authority))
    connection = server.connection(auth_version)
    if address == "ip-and-port":
        goes_there_and_back(by_ip(connection))
    else:
        goes_there_and_back(by_name(server.endpoint.replace("127.0.0.1", "sls.local"), connection))


def test_a_client_that_does_not_trust_the_authority_is_safe(secure: LocalSls) -> None:
    with pytest.raises(LogException, match="CERTIFICATE_VERIFY_FAILED"):
        by_ip(secure.connection()).list_project()
