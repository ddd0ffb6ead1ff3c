"""Checks who asks, by the service's request signatures v1 and v4.

https://www.alibabacloud.com/help/en/sls/developer-reference/request-signatures
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from airflow_provider_slshudi.local.service_errors import ServiceFault

LARGEST_SKEW = 15 * 60
"""Seconds that a request's time may differ from the server's."""

_V1 = re.compile(r"LOG ([^:\s]+):(\S+)")
_V4 = re.compile(
    r"SLS4-HMAC-SHA256 Credential=([^/\s]+)/(\d{8})/([^/]*)/sls/aliyun_v4_request,\s*Signature=([0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Account:
    """An access key's secret, and the token that must come with it if the key is a temporary one."""

    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Signed:
    """The parts of a request that a signature covers; names of `headers` are in lower case, `query` is decoded."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


def verify(request: Signed, accounts: Mapping[str, Account]) -> None:
    """Raise the service's fault unless `request` is signed by one of `accounts`, now, with its own body."""
    authorization = request.headers.get("authorization", "")
    if match := _V1.fullmatch(authorization):
        key, signature = match.groups()
        account = _account(accounts, key, request)
        _check_time(request.headers.get("date") or request.headers.get("x-log-date", ""), parsedate_to_datetime)
        expected = _v1(request, account.secret)
    elif match := _V4.fullmatch(authorization):
        key, date, region, signature = match.groups()
        account = _account(accounts, key, request)
        _check_time(request.headers.get("x-log-date", ""), _parse_compact)
        expected = _v4(request, account.secret, date, region)
    else:
        raise ServiceFault(401, "Unauthorized", "The Authorization header follows neither signature v1 nor v4.")
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise _mismatch(signature)


def _account(accounts: Mapping[str, Account], key: str, request: Signed) -> Account:
    account = accounts.get(key)
    if account is None:
        raise ServiceFault(401, "Unauthorized", f"AccessKeyId not found: {key}")
    token = request.headers.get("x-acs-security-token", "")
    if not hmac.compare_digest(token.encode(), account.token.encode()):
        raise ServiceFault(401, "Unauthorized", "The security token you provided is invalid.")
    return account


def _check_time(text: str, parse: Callable[[str], datetime]) -> None:
    try:
        sent = parse(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ServiceFault(400, "InvalidRequestTime", f"Request time {text} not follow RFC822 spec.") from None
    now = time.time()
    if abs(now - sent) > LARGEST_SKEW:
        message = f"Request time {text} has been expired while server time is {int(now)}."
        raise ServiceFault(400, "RequestTimeExpired", message)


def _parse_compact(text: str) -> datetime:
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)


def _signed_headers(request: Signed, *also: str) -> list[tuple[str, str]]:
    def covered(name: str) -> bool:
        ours = name.startswith(("x-log-", "x-acs-")) and not name.startswith("x-log-meta-")
        return ours or name in also

    return sorted((name, value) for name, value in request.headers.items() if covered(name))


def _v1(request: Signed, secret: str) -> str:
    md5 = request.headers.get("content-md5", "")
    if md5 and md5.upper() != hashlib.md5(request.body, usedforsecurity=False).hexdigest().upper():
        raise _mismatch(md5)
    # x-log-date repeats Date for proxies that drop it; clients add it after signing.
    headers = [(name, value) for name, value in _signed_headers(request) if name != "x-log-date"]
    query = "&".join(f"{name}={value}" for name, value in sorted(request.query.items()))
    lines = [
        request.method,
        md5,
        request.headers.get("content-type", ""),
        request.headers.get("date") or request.headers.get("x-log-date", ""),
        *(f"{name}:{value}" for name, value in headers),
        request.path + (f"?{query}" if query else ""),
    ]
    digest = hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def _v4(request: Signed, secret: str, date: str, region: str) -> str:
    body_hash = request.headers.get("x-log-content-sha256", "")
    if body_hash != hashlib.sha256(request.body).hexdigest():
        raise _mismatch(body_hash)
    query = "&".join(
        f"{name}={quote(value, safe='~')}" if value else name for name, value in sorted(request.query.items())
    )
    headers = _signed_headers(request, "content-type", "host")
    canonical = "\n".join(
        [
            request.method,
            request.path,
            query,
            *(f"{name}:{value.strip()}" for name, value in headers),
            "",
            ";".join(name for name, _ in headers),
            body_hash,
        ]
    )
    scope = f"{date}/{region}/sls/aliyun_v4_request"
    canonical_hash = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["SLS4-HMAC-SHA256", request.headers["x-log-date"], scope, canonical_hash])
    key = f"aliyun_v4{secret}".encode()
    for part in (date, region, "sls", "aliyun_v4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def _mismatch(signature: str) -> ServiceFault:
    return ServiceFault(401, "SignatureNotMatch", f"Signature {signature} not matched.")
