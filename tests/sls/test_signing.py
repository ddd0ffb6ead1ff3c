"""A request's signature is, to the letter, the one that the official SDK makes."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from aliyun.log.auth import AuthV1, AuthV4
from aliyun.log.credentials import StaticCredentialsProvider
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.sls.connection import AuthVersion, SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials
from airflow_provider_slshudi.sls.signing import sign
from airflow_provider_slshudi.system.secrets import Secret

CREDENTIALS = st.builds(
    Credentials,
    st.text("aB3", min_size=1),
    st.text("xY/+", min_size=1).map(Secret),
    st.sampled_from(["", "t"]).map(Secret),
)
QUERY = st.dictionaries(st.sampled_from(["type", "from", "cursor", "end_cursor"]), st.text("aZ09=/+ ü~", max_size=8))
TIMES = st.integers(0, 2**31)
PATH = "/logstores/my-logs/shards/3"
HEADERS = {"Host": "project.cn-x.example.com", "x-log-apiversion": "0.6.0", "x-log-bodyrawsize": "0", "Accept": "x/y"}


def provider(credentials: Credentials) -> StaticCredentialsProvider:
    return StaticCredentialsProvider(
        credentials.access_key_id, credentials.access_key_secret.reveal(), credentials.security_token.reveal()
    )


@given(credentials=CREDENTIALS, query=QUERY, now=TIMES)
def test_v1(credentials: Credentials, query: dict[str, str], now: int) -> None:
    connection = SlsConnection("cn-x.example.com", "id", Secret("key"))
    ours = sign(connection, credentials, PATH, query, HEADERS, now)
    theirs, sdk = dict(HEADERS), AuthV1(provider(credentials))
    sdk._getGMT = lambda: ours["Date"]
    sdk.sign_request("GET", PATH, query, theirs, None)
    assert ours == theirs
    assert datetime.strptime(ours["Date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc).timestamp() == now


@given(credentials=CREDENTIALS, query=QUERY, now=TIMES)
def test_v4(credentials: Credentials, query: dict[str, str], now: int) -> None:
    connection = SlsConnection("cn-x.example.com", "id", Secret("key"), region="cn-x", auth_version="v4")
    ours = sign(connection, credentials, PATH, query, HEADERS, now)
    theirs = dict(HEADERS)
    time = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    theirs["Authorization"] = AuthV4(provider(credentials), "cn-x")._do_sign_request(
        "GET", PATH, query, theirs, None, time
    )
    assert ours == theirs


@pytest.mark.parametrize("auth_version", ["v1", "v4"])
def test_the_secret_is_in_no_header(auth_version: AuthVersion) -> None:
    connection = SlsConnection("cn-x.example.com", "id", Secret("key"), region="cn-x", auth_version=auth_version)
    assert "opensesame" not in str(sign(connection, Credentials("id", Secret("opensesame")), PATH, {}, HEADERS, 0))
