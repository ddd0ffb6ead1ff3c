"""The checks of a logstore against a real server, with each fault that a new connection can have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.doctor.source import Logstore
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from airflow_provider_slshudi.sls.faults import PERSON
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.secrets import Secret
from tests.doctor.conftest import Looked
from tests.local.sdk import PROJECT
from tests.services import closed_port
from tests.sls import disturbance
from tests.sls.disturbance import Disturbed

OK, WARNING, WRONG, UNKNOWN = Verdict


@pytest.fixture(autouse=True)
def _without_faults(local_sls: LocalSls) -> Iterator[None]:
    yield
    local_sls.faults = None


def checks_of(connection: SlsConnection, logstore: str, project: str = PROJECT) -> Logstore:
    return Logstore(partial(LogService, connection, project, logstore, patience=PERSON))


def denied(operation: str) -> object:
    return {"rules": [{"operations": operation, "do": "error", "status": 401, "code": "Unauthorized"}]}


def test_all_that_a_pipeline_asks_is_asked_once(local_sls: LocalSls, logstore: str, looked: Looked) -> None:
    found = looked(checks_of(local_sls.connection(), logstore).checks())
    plain = found.pop("connection")
    assert plain.verdict is WARNING and "plain HTTP" in plain.seen and "https://" in plain.mend
    assert {item.verdict for item in found.values()} == {OK}
    assert "2 shards" in found["shards"].seen
    assert "log:GetCursorOrData" in found["cursors"].seen
    assert "7 days" in found["retention"].seen
    assert "agree" in found["service's clock"].seen


def test_a_key_without_a_permission_is_told_which(local_sls: LocalSls, logstore: str, looked: Looked) -> None:
    checks = partial(checks_of, local_sls.connection(), logstore)
    local_sls.faults = denied("list_shards")
    found = looked(checks().checks())
    assert found["shards"].verdict is WRONG and "log:ListShards" in found["shards"].mend
    assert found["cursors"].verdict is found["retention"].verdict is UNKNOWN
    assert found["service's clock"].verdict is OK
    local_sls.faults = denied("get_cursor")
    found = looked(checks().checks())
    assert found["cursors"].verdict is WRONG
    assert f"log:GetCursorOrData on acs:log:*:*:project/{PROJECT}/logstore/{logstore}" in found["cursors"].mend
    local_sls.faults = denied("get_logstore")
    found = looked(checks().checks())
    assert found["retention"].verdict is WARNING and "log:GetLogStore" in found["retention"].mend
    assert found["cursors"].verdict is OK


@pytest.mark.parametrize(
    ("changed", "project", "name", "told"),
    [
        ({"access_key_id": "nobody"}, PROJECT, "", "AccessKeyId not found: nobody"),
        ({"access_key_secret": Secret("opensesame")}, PROJECT, "", "check the access key secret"),
        ({"security_token": Secret("old")}, PROJECT, "", "token"),
        ({}, "no-project", "", "check the project's name"),
        ({}, PROJECT, "no-logstore", "check the logstore's name"),
    ],
)
def test_what_is_wrong_with_a_connection_is_told(
    local_sls: LocalSls, logstore: str, looked: Looked, changed: dict[str, Any], project: str, name: str, told: str
) -> None:
    connection = replace(local_sls.connection(), **changed)
    found = looked(checks_of(connection, name or logstore, project).checks())
    assert found["shards"].verdict is WRONG
    assert told in f"{found['shards'].seen} {found['shards'].mend}"
    assert found["cursors"].verdict is UNKNOWN
    assert "opensesame" not in str(found)


def test_an_endpoint_where_nobody_is_costs_no_retries(looked: Looked) -> None:
    with closed_port() as port:
        started = time.monotonic()
        found = looked(checks_of(SlsConnection(f"127.0.0.1:{port}", "id", Secret("key")), "logs").checks())
        assert time.monotonic() - started < 3
        assert found["shards"].verdict is WRONG and "check the endpoint" in found["shards"].seen
        assert found["service's clock"].verdict is UNKNOWN


def test_an_endpoint_that_is_somebody_else_s_or_nobody_s_is_wrong(
    local_sls: LocalSls, logstore: str, looked: Looked
) -> None:
    given = local_sls.connection()
    with Disturbed(local_sls.endpoint) as way:
        way.at, way.changes = "/shards", [disturbance.page(404)]
        found = looked(checks_of(replace(given, endpoint=way.endpoint), logstore).checks())
        assert found["shards"].verdict is WRONG and "endpoint is one of the log service" in found["shards"].seen
        way.changes = [disturbance.page(200)] * 50
        found = looked(checks_of(replace(given, endpoint=way.endpoint), logstore).checks())
        assert found["shards"].verdict is WRONG and "not believed" not in found["shards"].seen
    found = looked(checks_of(replace(given, endpoint="sls.invalid"), logstore).checks())
    assert found["shards"].verdict is WRONG and "check the endpoint" in found["shards"].seen


def test_a_clock_that_is_off_is_told_by_how_much(
    local_sls: LocalSls, logstore: str, looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    found = looked(checks_of(local_sls.connection(), logstore).checks())
    assert "set this machine's clock" in found["shards"].seen
    assert found["service's clock"].verdict is WRONG and "ahead of the log service's" in found["service's clock"].seen
    monkeypatch.setattr(time, "time", lambda: right() - 60)
    found = looked(checks_of(local_sls.connection(), logstore).checks())
    assert found["service's clock"].verdict is WARNING and "behind the log service's" in found["service's clock"].seen


def test_a_busy_service_is_not_known_to_refuse(local_sls: LocalSls, logstore: str, looked: Looked) -> None:
    local_sls.faults = {"rules": [{"operations": "list_shards", "do": "quota"}]}
    found = looked(checks_of(local_sls.connection(), logstore).checks())
    assert found["shards"].verdict is UNKNOWN


def test_without_a_logstore_endpoint_and_key_are_tested(local_sls: LocalSls, looked: Looked) -> None:
    given = local_sls.connection()
    found = looked(checks_of(given, "none", "no-such-project").checks_of_none())
    assert found["endpoint and key"].verdict is OK and "Name a project and a logstore" in found["endpoint and key"].seen
    wrong = replace(given, access_key_secret=Secret("opensesame"))
    found = looked(checks_of(wrong, "none", "no-such-project").checks_of_none())
    assert found["endpoint and key"].verdict is WRONG


def test_a_connection_that_cannot_be_used_leaves_the_rest_unknown(looked: Looked) -> None:
    def connect() -> LogService:
        raise ConfigError("no such connection", source="sls_default")

    found = looked(Logstore(connect).checks())
    assert found.pop("connection").verdict is WRONG
    assert {item.verdict for item in found.values()} == {UNKNOWN}


@pytest.mark.parametrize(
    ("endpoint", "version", "verdict"),
    [
        ("https://cn-x.log.aliyuncs.com", "v4", OK),
        ("https://cn-x.log.aliyuncs.com", "v1", WARNING),
        ("http://cn-x.log.aliyuncs.com", "v4", WARNING),
        ("cn-x.log.aliyuncs.com", "v4", WARNING),
    ],
)
def test_plain_http_and_the_older_signature_are_warned_of(
    endpoint: str, version: AuthVersion, verdict: Verdict
) -> None:
    given = SlsConnection(endpoint, "id", Secret("key"), region="cn-x", auth_version=version)
    seen = checks_of(given, "logs").connection()
    assert seen.verdict is verdict and ("by TLS" in seen.what) == (verdict is OK)
