"""Roles: what STS is asked, how that is signed, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import (
    ENDPOINT_VARIABLE,
    AssumedRole,
    Credentials,
    Fixed,
    PodRole,
    provider_of,
    signature,
)
from airflow_provider_slshudi.system.secrets import Secret

ROLE = "acs:ram::123456789012:role/reader"
SAID = (
    "Specified signature is not matched with our calculation. server string to sign is:POST&%2F&Action%3DAssumeRole"
    "%26SecurityToken%3D"
)
KEYS = {"AccessKeyId": "STS.a", "AccessKeySecret": "b", "SecurityToken": "c", "Expiration": "2026-01-31T12:00:00Z"}


class Sts(ThreadingHTTPServer):
    """Answers as STS does, to a right signature of the secret `opensesame` and to the OIDC token `fresh`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, str]] = []
        self.answer: tuple[int, dict[str, object]] = (200, {"RequestId": "1", "Credentials": KEYS})


class _Handler(BaseHTTPRequestHandler):
    server: Sts

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        asked = dict(parse_qsl(body, keep_blank_values=True, strict_parsing=True))
        self.server.asked.append(asked)
        status, answer = self.server.answer
        if status == 200 and asked.get("OIDCToken") == "stale":
            status, answer = 400, {"Code": "AuthenticationFail.OIDCToken.Expired", "Message": "expired"}
        elif status == 200 and not self.is_right(dict(asked)):
            status, answer = 400, {"Code": "SignatureDoesNotMatch", "Message": SAID + asked.get("SecurityToken", "")}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def is_right(self, asked: dict[str, str]) -> bool:
        if asked["Action"] == "AssumeRoleWithOIDC":
            return "Signature" not in asked and asked["OIDCToken"] == "fresh"
        given = asked.pop("Signature")
        pairs = "&".join(f"{quote(name, safe='~')}={quote(asked[name], safe='~')}" for name in sorted(asked))
        text = "POST&%2F&" + quote(pairs, safe="~")
        return given == base64.b64encode(hmac.digest(b"opensesame&", text.encode(), hashlib.sha1)).decode()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    with Sts() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


def test_a_signature_is_of_the_parameters_by_name_quoted_twice() -> None:
    asked = {"Timestamp": "2016-02-23T12:46:24Z", "Action": "AssumeRole"}
    text = b"POST&%2F&Action%3DAssumeRole%26Timestamp%3D2016-02-23T12%253A46%253A24Z"
    wanted = base64.b64encode(hmac.digest(b"testsecret&", text, hashlib.sha1)).decode()
    assert signature(asked, "testsecret") == wanted


@pytest.mark.parametrize("token", ["", "base-token/+="])
def test_a_role_is_assumed_with_other_credentials(sts: Sts, token: str) -> None:
    found = AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"), Secret(token))), ROLE)()
    assert (found.access_key_id, found.access_key_secret.reveal(), found.security_token.reveal()) == ("STS.a", "b", "c")
    assert found.expires is not None
    (asked,) = sts.asked
    assert asked["RoleArn"] == ROLE and asked["RoleSessionName"] == "slshudi"
    assert asked.get("SecurityToken", "") == token


def test_two_requests_differ_so_that_none_is_taken_for_a_replay(sts: Sts) -> None:
    provider = AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)
    provider(), provider()
    assert len({asked["SignatureNonce"] for asked in sts.asked}) == 2


def test_a_wrong_secret_is_told_without_being_shown(sts: Sts) -> None:
    """STS tells what it would have signed, with the token that came with the key."""
    with pytest.raises(ConfigError, match=r"SignatureDoesNotMatch Specified signature.*\. Correct the key") as error:
        AssumedRole(Fixed(Credentials("LTAI", Secret("closesesame"), Secret("basetoken"))), ROLE)()
    assert "closesesame" not in str(error.value) and "basetoken" not in str(error.value)


@pytest.mark.parametrize("code", ["InvalidTimeStamp.Expired", "InvalidSecurityToken.Expired", "Throttling"])
def test_clocks_and_tokens_that_are_renewed_pass(sts: Sts, code: str) -> None:
    sts.answer = 400, {"Code": code, "Message": "later"}
    with pytest.raises(OSError, match=f"{code} later"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


@pytest.mark.parametrize("answer", [[], None, 7])
def test_an_answer_that_is_no_object_is_none(sts: Sts, answer: object) -> None:
    sts.answer = 200, answer  # type: ignore[assignment]
    with pytest.raises(OSError, match="no JSON object"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


def test_sts_is_reached_through_the_environment_s_proxy(sts: Sts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{sts.server_port}")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://sts.invalid")
    assert AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)().access_key_id == "STS.a"


@pytest.mark.parametrize("code", ["NoPermission", "EntityNotExist.Role", "AuthenticationFail.OIDCToken.Invalid"])
def test_what_a_person_has_to_mend_is_terminal(sts: Sts, code: str) -> None:
    sts.answer = 403, {"Code": code, "Message": "no"}
    with pytest.raises(ConfigError, match=f"{code} no. See whether the role is there"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_may_pass_is_not(sts: Sts, status: int) -> None:
    sts.answer = status, {"Code": "Throttling", "Message": "later"}
    with pytest.raises(OSError, match="Throttling later"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


def test_an_answer_without_credentials_is_none(sts: Sts) -> None:
    sts.answer = 200, {"RequestId": "1"}
    with pytest.raises(ConfigError, match="holds no credentials"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


def test_nobody_at_the_address_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1 did not answer"):
        AssumedRole(Fixed(Credentials("LTAI", Secret("opensesame"))), ROLE)()


def test_a_pod_s_role_is_taken_with_the_token_that_its_file_has_by_then(
    sts: Sts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, provider = tmp_path / "token", provider_of("rrsa")
    with pytest.raises(ConfigError, match="ALIBABA_CLOUD_OIDC_TOKEN_FILE is not set here"):
        provider()
    monkeypatch.setenv("ALIBABA_CLOUD_ROLE_ARN", ROLE)
    monkeypatch.setenv("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::123456789012:oidc-provider/ack")
    monkeypatch.setenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE", str(file))
    with pytest.raises(OSError, match="token"):
        provider()
    file.write_text("stale")
    with pytest.raises(OSError, match=r"AuthenticationFail\.OIDCToken\.Expired") as error:
        provider()
    assert "stale" not in str(error.value)
    file.write_text("fresh\n")
    assert isinstance(provider, PodRole) and provider().access_key_id == "STS.a"
    assert not {"AccessKeyId", "Signature"} & set(sts.asked[-1])


@pytest.mark.parametrize("keys", [("LTAI", "opensesame"), ("", "")])
def test_a_connection_names_a_role_beside_keys_or_a_source_of_them(keys: tuple[str, str], tmp_path: Path) -> None:
    source = "" if keys[0] else f"file:{tmp_path}/keys.json"
    connection = SlsConnection("host", keys[0], Secret(keys[1]), credentials=source, assume_role=ROLE)
    assert isinstance(connection.provider(), AssumedRole)
    assert SlsConnection.from_env(connection.to_env()) == connection


@pytest.mark.parametrize("arn", ["reader", "acs:ram::x:role/a", "acs:ram::1:user/a"])
def test_a_role_that_is_no_arn_is_refused(arn: str) -> None:
    with pytest.raises(ConfigError, match="expected a role's ARN"):
        SlsConnection("host", "a", Secret("b"), assume_role=arn)
