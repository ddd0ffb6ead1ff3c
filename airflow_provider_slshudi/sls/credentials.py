"""Credentials: keys that stay, or temporary ones that are fetched again before they expire."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.secret import NONE, Secret
from airflow_provider_slshudi.visible import hidden_in

_log = logging.getLogger(__name__)

METADATA = "http://100.100.100.200"
"""Where an ECS instance asks about itself: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata"""

EARLY = 300.0
"""How many seconds before their end temporary credentials are asked for again."""

_RETRY_SECONDS = 10.0
_TIMEOUT = 3.0


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
        from airflow_provider_slshudi.sls.sts import PodRole

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
            found = self.provider()
        except (OSError, ConfigError) as error:
            old = self._present
            if old is None or (old.expires is not None and now >= old.expires):
                raise
            _log.warning("credentials could not be renewed yet: %s", error)
            self._ask_again = now + _RETRY_SECONDS
            return old
        self._plan(found, now)
        return found

    def _plan(self, found: Credentials, now: float) -> None:
        if found.expires is None:
            self._ask_again = float("inf")
        else:
            # Credentials with less than `EARLY` left are asked for again after a pause, not at every request.
            self._ask_again = max(found.expires - EARLY, now + _RETRY_SECONDS)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    try:
        answer = urllib3.request(method, url, headers=headers, timeout=_TIMEOUT, retries=False, redirect=False)
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
        found: Any = json.loads(text)
        given = [found[name] for name in ("AccessKeyId", "AccessKeySecret")]
        token, end = found.get("SecurityToken") or "", found.get("Expiration")
        if not all(isinstance(item, str) for item in (*given, token)) or not all(given):
            raise ValueError
        expires = None if end is None else _unix(end)
    except (ValueError, LookupError, TypeError, AttributeError):  # dropped: they may quote the text, which holds keys
        message = (
            f"{source} holds no credentials: expected a JSON object with AccessKeyId, AccessKeySecret and, for "
            "temporary ones, SecurityToken and Expiration (like 2026-01-31T12:00:00Z)"
        )
        raise ConfigError(message, source=source, field="credentials") from None
    return Credentials(given[0], Secret(given[1]), Secret(token), expires)


def _unix(text: str) -> float:
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
