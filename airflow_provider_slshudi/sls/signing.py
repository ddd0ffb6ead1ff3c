"""Request signatures v1 and v4.

https://www.alibabacloud.com/help/en/sls/developer-reference/request-signatures
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from urllib.parse import quote

from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.credentials import Credentials

_EMPTY_BODY = hashlib.sha256(b"").hexdigest()


def sign(
    connection: SlsConnection,
    credentials: Credentials,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    now: float,
) -> dict[str, str]:
    """The `headers` of a GET without a body, with those of its signature added; `now` is in unix seconds.

    Args:
        connection: names signature and region.
        credentials: of now.
        path: of the request, without host and query.
        query: its parameters.
        headers: those without a signature.
        now: see above.
    """
    signed = dict(headers)
    if credentials.security_token:
        signed["x-acs-security-token"] = credentials.security_token.reveal()
    if connection.auth_version == "v4":
        _v4(connection.region, credentials, path, query, signed, now)
    else:
        _v1(credentials, path, query, signed, now)
    return signed


def _v1(credentials: Credentials, path: str, query: Mapping[str, str], headers: dict[str, str], now: float) -> None:
    date = formatdate(now, usegmt=True)
    headers["x-log-signaturemethod"] = "hmac-sha1"
    covered = [f"{name}:{value}" for name, value in sorted(_own(headers).items())]
    parameters = "&".join(f"{name}={value}" for name, value in sorted(query.items()))
    resource = f"{path}?{parameters}" if parameters else path
    text = "\n".join(["GET", "", "", date, *covered, resource])
    digest = hmac.new(credentials.access_key_secret.reveal().encode(), text.encode(), hashlib.sha1).digest()
    headers["Authorization"] = f"LOG {credentials.access_key_id}:{base64.b64encode(digest).decode('ascii')}"
    headers["Date"] = headers["x-log-date"] = date  # twice: some proxies drop the first; only the first is signed


def _v4(
    region: str, credentials: Credentials, path: str, query: Mapping[str, str], headers: dict[str, str], now: float
) -> None:
    time = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers["x-log-date"], headers["x-log-content-sha256"] = time, _EMPTY_BODY
    covered = sorted((_own(headers) | {"host": headers["Host"]}).items())
    parameters = (f"{name}={quote(value, safe='~')}" if value else name for name, value in sorted(query.items()))
    names = ";".join(name for name, _ in covered)
    lines = ["GET", path, "&".join(parameters), *(f"{name}:{value}" for name, value in covered), "", names, _EMPTY_BODY]
    request = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    scope = f"{time[:8]}/{region}/sls/aliyun_v4_request"
    key = f"aliyun_v4{credentials.access_key_secret.reveal()}".encode()
    for part in (*scope.split("/"), f"SLS4-HMAC-SHA256\n{time}\n{scope}\n{request}"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SLS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope},Signature={key.hex()}"


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith(("x-log-", "x-acs-"))}
