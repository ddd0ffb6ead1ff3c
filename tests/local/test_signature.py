"""Signatures made by the SDK's signer are believed; the same requests, changed in any way, are not."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from aliyun.log.auth import AuthBase, make_auth
from aliyun.log.credentials import StaticCredentialsProvider

from airflow_provider_slshudi.local.service_errors import ServiceFault
from airflow_provider_slshudi.local.signature import Account, Signed, verify

ACCOUNTS = {"key": Account("secret"), "temporary": Account("secret", "token")}


def signer(auth_version: str, key: str = "key") -> AuthBase:
    return make_auth(StaticCredentialsProvider(key, "secret", ACCOUNTS[key].token or None), auth_version, "cn-local")


def signed(auth_version: str, query: dict[str, str], body: bytes, key: str = "key") -> Signed:
    headers = {"Host": "project.host", "x-log-apiversion": "0.6.0", "x-log-bodyrawsize": str(len(body))}
    if body:
        headers["Content-Type"] = "application/x-protobuf"
    path = "/logstores/logs/shards/0"
    signer(auth_version, key).sign_request("POST", path, dict(query), headers, body)
    return Signed("POST", path, query, {name.lower(): value for name, value in headers.items()}, body)


def code_of(request: Signed) -> str:
    with pytest.raises(ServiceFault) as fault:
        verify(request, ACCOUNTS)
    return fault.value.code


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
def test_any_query_and_body_that_the_sdk_signs_is_believed(auth_version: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        letters = "ab=&+ /~%ü?*'\"\n"
        query = {f"k{place}": "".join(rng.choices(letters, k=rng.randrange(6))) for place in range(rng.randrange(5))}
        verify(signed(auth_version, query, rng.randbytes(rng.randrange(3))), ACCOUNTS)
    verify(signed(auth_version, {}, b"", "temporary"), ACCOUNTS)


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
def test_a_change_to_anything_that_is_signed_is_noticed(auth_version: str) -> None:
    request = signed(auth_version, {"cursor": "a"}, b"body")
    verify(request, ACCOUNTS)
    header = {**request.headers, "x-log-bodyrawsize": "9"}
    for changed in (
        replace(request, method="PUT"),
        replace(request, path="/logstores/logs/shards/1"),
        replace(request, query={"cursor": "b"}),
        replace(request, query={}),
        replace(request, body=b"bodY"),
        replace(request, headers=header),
        replace(request, headers={**request.headers, "x-acs-new": ""}),
        replace(request, headers={**request.headers, "content-type": "text/plain"}),
    ):
        assert code_of(changed) == "SignatureNotMatch"
    without = {name: value for name, value in request.headers.items() if name != "authorization"}
    assert code_of(replace(request, headers=without)) == "Unauthorized"


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
@pytest.mark.parametrize("skew", [-901, 901])
def test_a_clock_more_than_15_minutes_off_is_refused(
    monkeypatch: pytest.MonkeyPatch, auth_version: str, skew: int
) -> None:
    request = signed(auth_version, {}, b"")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + skew * 0.99)
    verify(request, ACCOUNTS)
    monkeypatch.setattr(time, "time", lambda: now + skew + (2 if skew > 0 else -2))
    assert code_of(request) == "RequestTimeExpired"


def test_a_time_that_is_none_is_refused() -> None:
    request = signed("v1", {}, b"")
    assert code_of(replace(request, headers={**request.headers, "date": "yesterday"})) == "InvalidRequestTime"
