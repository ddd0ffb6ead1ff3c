"""Access keys: fixed ones, those of machines' roles and identity tokens, and of roles that they assume (STS)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlencode
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.system.secrets import NONE, Secret, hidden_in


def pool(scheme: str, host: str, connections: int) -> urllib3.PoolManager:
    """Connections through the environment's proxy, if any; trusts the certificates that the environment names."""
    proxy = None if proxy_bypass(host) else getproxies().get(scheme)
    context = _trust() if "https" in (scheme, proxy and urllib3.util.parse_url(proxy).scheme) else None
    if proxy:
        login = urllib3.util.parse_url(proxy).auth
        headers = urllib3.util.make_headers(proxy_basic_auth=unquote(login)) if login else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=context, maxsize=connections)
    return urllib3.PoolManager(ssl_context=context, maxsize=connections)


def _trust() -> ssl.SSLContext:
    """The certificates that the environment names, else certifi's; 140 of them take 20 ms to read."""
    return ssl.create_default_context(
        cafile=os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or certifi.where()
    )


_log = logging.getLogger(__name__)
METADATA = "http://100.100.100.200"
"""Where an ECS instance asks about itself: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata"""
EARLY = 300.0
"""How many seconds before their end temporary credentials are asked for again."""
_RETRY_SECONDS = 10.0
_METADATA_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key; a temporary (STS) one has a token, and `expires` in unix seconds (None: never)."""

    access_key_id: str
    access_key_secret: Secret
    security_token: Secret = NONE
    expires: float | None = None

    def __post_init__(self) -> None:
        """Refuses what no header carries: a client's own error would quote it, a token in clear.

        Raises:
            ConfigError: a field has a space, a line break, or a character beyond ASCII; its value is not told.
        """
        for name in ("access_key_id", "access_key_secret", "security_token"):
            require_visible(name, getattr(self, name))


def require_visible(name: str, value: str | Secret) -> None:
    """Refuses a field of an SLS connection that a header cannot carry.

    Raises:
        ConfigError: it has a space, a line break, or a character beyond ASCII; the value is not told.
    """
    text = value.reveal() if isinstance(value, Secret) else value
    if hidden := hidden_in(text, only_ascii=True):
        message = f"{name} of the SLS connection cannot be sent: {hidden}. Its value is not shown; type it once more"
        raise ConfigError(message, source="SLS connection", field=name)


Provider = Callable[[], Credentials]
"""Returns the present credentials. Raises OSError where a later call may succeed, else ConfigError."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same credentials whenever asked."""

    credentials: Credentials

    def __call__(self) -> Credentials:
        """The credentials."""
        return self.credentials


@dataclass(frozen=True, slots=True)
class FromFile:
    """A JSON file that a program keeps fresh: AccessKeyId, AccessKeySecret, SecurityToken, Expiration (ISO 8601)."""

    path: str

    def __call__(self) -> Credentials:
        """What the file says now. Raises OSError and ConfigError."""
        return parse(Path(self.path).read_bytes(), self.path)


@dataclass(frozen=True, slots=True)
class FromRole:
    """The RAM role of the ECS instance that this runs on.

    https://www.alibabacloud.com/help/en/ecs/user-guide/attach-an-instance-ram-role-to-an-ecs-instance
    """

    role: str
    metadata: str = METADATA

    def __call__(self) -> Credentials:
        """The role's present credentials. Raises OSError and ConfigError."""
        lifetime = {"X-aliyun-ecs-metadata-token-ttl-seconds": "60"}
        token = _ask("PUT", f"{self.metadata}/latest/api/token", lifetime).decode("ascii", "replace").strip()
        where = f"{self.metadata}/latest/meta-data/ram/security-credentials/{quote(self.role, safe='')}"
        return parse(_ask("GET", where, {"X-aliyun-ecs-metadata-token": token}), where)


def provider_of(text: str) -> Provider:
    """The provider that `file:/path/of/keys.json`, `ecs:role-name` or `rrsa` names. Raises ConfigError."""
    kind, _, name = text.partition(":")
    if kind == "file" and Path(name).is_absolute():
        return FromFile(name)
    if kind == "ecs" and name:
        return FromRole(name)
    if text == "rrsa":
        return PodRole()
    message = "credentials of the SLS connection: expected file:/path/of/keys.json, ecs:name-of-a-RAM-role or rrsa"
    raise ConfigError(message, source="SLS connection", field="credentials")


class Keeper:
    """Keeps a provider's present credentials; asks again `EARLY` before they expire. For several threads."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._present: Credentials | None = None
        self._ask_again = 0.0
        self._lock = threading.Lock()

    def get(self) -> Credentials:
        """Credentials that are good for now. Raises OSError and ConfigError, as the provider."""
        with self._lock:
            now = time.time()
            if self._present is None or now >= self._ask_again:
                self._present = self._renewed(now)
            return self._present

    def refused(self, credentials: Credentials) -> bool:
        """Asks the provider again after the service refused `credentials`; returns whether there are others now."""
        with self._lock:
            if self._present is not None and self._present != credentials:
                return True
            self._present = self.provider()
            self._plan(self._present, time.time())
            return self._present != credentials

    def _renewed(self, now: float) -> Credentials:
        try:
            credentials = self.provider()
        except (OSError, ConfigError) as error:
            old = self._present
            if old is None or (old.expires is not None and now >= old.expires):
                raise
            _log.warning("credentials could not be renewed yet: %s", error)
            self._ask_again = now + _RETRY_SECONDS
            return old
        self._plan(credentials, now)
        return credentials

    def _plan(self, found: Credentials, now: float) -> None:
        if found.expires is None:
            self._ask_again = float("inf")
        else:
            # Credentials with less than `EARLY` left are asked for again after a pause, not at every request.
            self._ask_again = max(found.expires - EARLY, now + _RETRY_SECONDS)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    try:
        answer = urllib3.request(method, url, headers=headers, timeout=_METADATA_SECONDS, retries=False, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        raise OSError(f"{url} did not answer: {error}") from error
    if answer.status == 404:
        message = f"{url}: no such RAM role is attached to this instance"
        raise ConfigError(message, source="SLS connection", field="credentials")
    if answer.status != 200:
        raise OSError(f"{url} answered with status {answer.status}")
    return answer.data


def parse(text: bytes, source: str) -> Credentials:
    """Credentials out of Alibaba Cloud's JSON. Raises ConfigError, without quoting the text, which may hold keys."""
    try:
        document: Any = json.loads(text)
        keys = [document[name] for name in ("AccessKeyId", "AccessKeySecret")]
        token, end = document.get("SecurityToken") or "", document.get("Expiration")
        if not all(isinstance(item, str) for item in (*keys, token)) or not all(keys):
            raise ValueError
        expires = None if end is None else _unix(end)
    except (ValueError, LookupError, TypeError, AttributeError):  # dropped: they may quote the text, which holds keys
        message = (
            f"{source} holds no credentials: expected a JSON object with AccessKeyId, AccessKeySecret and, for "
            "temporary ones, SecurityToken and Expiration (like 2026-01-31T12:00:00Z)"
        )
        raise ConfigError(message, source=source, field="credentials") from None
    return Credentials(keys[0], Secret(keys[1]), Secret(token), expires)


def _unix(text: str) -> float:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


ENDPOINT = "https://sts.aliyuncs.com"
"""The service for all regions: https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint"""
ENDPOINT_VARIABLE = "ALIBABA_CLOUD_STS_ENDPOINT"
"""The variable with another address of the service, for example one within a VPC; Alibaba Cloud's own SDKs read it."""
SESSION = "slshudi"
"""The name under which ActionTrail shows what the role does."""
_SECONDS = 3600
_STS_SECONDS = 10.0
# What a person has to correct; everything else may pass, a clock or a token that is renewed at this moment too.
_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature")
_NAMES = ("NoPermission", "EntityNotExist", "InvalidParameter", "AuthenticationFail", "Forbidden")


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """A RAM role, of another account too, that the holder of other credentials may assume.

    https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerole
    """

    base: Provider
    role: str

    def __call__(self) -> Credentials:
        """The role's credentials for an hour. Raises OSError and ConfigError."""
        base = self.base()
        now = datetime.now(timezone.utc)
        parameters = {
            "Action": "AssumeRole",
            "RoleArn": self.role,
            "AccessKeyId": base.access_key_id,
            "SignatureMethod": "HMAC-SHA1",
            "SignatureVersion": "1.0",
            "SignatureNonce": secrets.token_hex(16),
            "Timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if base.security_token:
            parameters["SecurityToken"] = base.security_token.reveal()
        return _asked(parameters, self.role, base.access_key_secret)


@dataclass(frozen=True, slots=True)
class PodRole:
    """The RAM role of a Kubernetes service account (RRSA), as the variables of its pod name it.

    https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc
    """

    def __call__(self) -> Credentials:
        """The role's credentials for an hour. Raises OSError and ConfigError."""
        names = "ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_OIDC_TOKEN_FILE"
        role, provider, file = (os.environ.get(name, "") for name in names)
        if not (role and provider and file):
            lacking = ", ".join(name for name in names if not os.environ.get(name))
            raise ConfigError(
                f"credentials 'rrsa': {lacking} is not set here: give the pod a service account with a RAM role "
                "(RRSA), and the label that has ack-pod-identity-webhook set these variables",
                source="SLS connection",
                field="credentials",
                value="rrsa",
            )
        # Kubernetes writes a new token into the file before the old one expires.
        try:
            token = Path(file).read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            raise OSError(f"{file} holds no token") from None
        parameters = {
            "Action": "AssumeRoleWithOIDC",
            "RoleArn": role,
            "OIDCProviderArn": provider,
            "OIDCToken": token,
            "Timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return _asked(parameters, role)


def signature(asked: Mapping[str, str], secret: str) -> str:
    """The signature of a POST request with these parameters."""
    canonical = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(asked.items()))
    text = f"POST&{_quoted('/')}&{_quoted(canonical)}"
    return base64.b64encode(hmac.new(f"{secret}&".encode(), text.encode(), hashlib.sha1).digest()).decode()


def _quoted(text: str) -> str:
    return quote(text, safe="~")


def _asked(asked: dict[str, str], role: str, secret: Secret | None = None) -> Credentials:
    asked |= {"Format": "JSON", "Version": "2015-04-01", "RoleSessionName": SESSION, "DurationSeconds": str(_SECONDS)}
    if secret is not None:
        asked["Signature"] = signature(asked, secret.reveal())
    endpoint = os.environ.get(ENDPOINT_VARIABLE, "") or ENDPOINT
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    place = urllib3.util.parse_url(endpoint)
    try:
        answer = pool(str(place.scheme), str(place.host), 1).request(
            "POST",
            endpoint,
            body=urlencode(asked),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            timeout=_STS_SECONDS,
            retries=False,
            redirect=False,
        )
    except urllib3.exceptions.HTTPError as error:
        # Its text may quote parameters, a token among them.
        raise OSError(f"{endpoint} did not answer ({type(error).__name__})") from None
    try:
        document: Any = json.loads(answer.data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise OSError(f"{endpoint} answered with status {answer.status} and no JSON object")
    if answer.status != 200:
        _refuse(endpoint, role, answer.status, str(document.get("Code", "")), str(document.get("Message", "")))
    return parse(json.dumps(document.get("Credentials")).encode(), f"the answer of {endpoint}")


def _refuse(endpoint: str, role: str, status: int, code: str, message: str) -> NoReturn:
    # STS says what it would have signed, tokens included.
    said = re.split(r"(?i)[^.;]*string to sign|securitytoken=", message)[0].strip()
    text = f"{endpoint} does not give credentials of {role}: {code or f'status {status}'} {said}".strip()
    mend = None
    if code.startswith(_KEYS):
        mend = "Correct the key and its secret"
    elif code.startswith(_NAMES) and not code.endswith("Expired"):
        mend = "See whether the role is there, and whether its trust policy names who asks"
    if mend is None or not 400 <= status < 500:
        raise OSError(text)
    raise ConfigError(f"{text}. {mend}", source="SLS connection", field="credentials", value=role)
