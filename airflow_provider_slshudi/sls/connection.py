"""The log service's endpoint and credentials: one value that travels through a process's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.sls.credentials import (
    AssumedRole,
    Credentials,
    Fixed,
    Provider,
    provider_of,
    require_visible,
)
from airflow_provider_slshudi.system.secrets import NONE, Secret, Variables

VERSION: Final = "v4"
"""The signature of a connection that names none; v1 is older."""
# The region, the network, the service: https://www.alibabacloud.com/help/en/sls/developer-reference/endpoints
_REGION = r"(?P<region>[a-z]{2,3}-[a-z]+(?:-[0-9]+)?)"
_ENDPOINT = re.compile(rf"(?:https?://)?{_REGION}(?:-intranet|-share)?\.(?:log|sls)\.aliyuncs\.com(?::[0-9]+)?/?")


def endpoint_of(host: str) -> str:
    """A host with its scheme: HTTPS, unless the host says another."""
    return host if not host or "://" in host else f"https://{host}"


def region_of(endpoint: str) -> str:
    """The region that an endpoint of the service names; empty where it names none that is sure."""
    match = _ENDPOINT.fullmatch(endpoint.lower())
    return match["region"] if match else ""


AuthVersion = Literal["v1", "v4"]
# Airflow and Spark's redaction mask secrets by name: these names let them see the two secrets.
_VARIABLES = {
    "endpoint": "SLSHUDI_SLS_ENDPOINT",
    "access_key_id": "SLSHUDI_SLS_ACCESS_KEY_ID",
    "access_key_secret": "SLSHUDI_SLS_ACCESS_KEY_SECRET",
    "security_token": "SLSHUDI_SLS_SECRET_TOKEN",
    "region": "SLSHUDI_SLS_REGION",
    "auth_version": "SLSHUDI_SLS_AUTH_VERSION",
    "credentials": "SLSHUDI_SLS_CREDENTIALS",
    "assume_role": "SLSHUDI_SLS_ASSUME_ROLE",
    "mask_name": "SLSHUDI_MASK_NAME",
    "mask_key": "SLSHUDI_MASK_SECRET",
}
_KEYS = ("access_key_id", "access_key_secret")
_SECRETS = ("access_key_secret", "security_token", "mask_key")
_SENT = ("endpoint", *_KEYS, "security_token", "region")
"""The fields that a request carries."""


@dataclass(frozen=True, slots=True)
class SlsConnection:
    """An endpoint and the credentials to sign with; its repr shows no secret.

    `endpoint` is a host, `host:port` or `https://host[:port]`; `security_token` belongs to temporary (STS) keys; only
    `auth_version` v4 signs `region`, and needs it. `credentials`, in place of keys, says where temporary ones are
    fetched again and again: `file:/path/of/keys.json`, `ecs:name-of-a-RAM-role` or `rrsa`. `assume_role` is the ARN of
    a role that those assume. With it travels to tasks the key by which a pipeline's masks hash, and the key's name.
    Raises ConfigError for a connection that cannot work.
    """

    endpoint: str
    access_key_id: str
    access_key_secret: Secret
    security_token: Secret = NONE
    region: str = ""
    auth_version: AuthVersion = "v1"
    credentials: str = ""
    assume_role: str = ""
    mask_name: str = ""
    mask_key: Secret = NONE

    def __post_init__(self) -> None:
        for name in _SENT:
            require_visible(name, getattr(self, name))
        if self.credentials:
            provider_of(self.credentials)
        for name in ("endpoint",) if self.credentials else ("endpoint", *_KEYS):
            if not getattr(self, name):
                raise _wrong(name, f"the SLS connection has no {name}")
        if self.credentials and (self.access_key_id or self.access_key_secret or self.security_token):
            message = "the SLS connection has keys and says where credentials come from: keep one of them"
            raise _wrong("credentials", message)
        if self.assume_role and not re.fullmatch(r"acs:ram::\d+:role/\S+", self.assume_role):
            message = "assume_role of the SLS connection: expected a role's ARN, acs:ram::ACCOUNT:role/NAME"
            raise _wrong("assume_role", message)
        if self.auth_version not in ("v1", "v4"):
            raise _wrong("auth_version", "auth_version of the SLS connection: expected v1 or v4")
        if self.auth_version == "v4" and not self.region:
            why = "signature v4 signs the region, and the endpoint names none: set the extra `region`, say cn-hangzhou"
            raise _wrong("region", why)
        _check_endpoint(self.endpoint)

    def to_env(self) -> Variables:
        """The environment variables that `from_env` reads back; empty fields are left out."""
        fields = {variable: getattr(self, name) for name, variable in _VARIABLES.items() if getattr(self, name)}
        return Variables(
            {name: value.reveal() if isinstance(value, Secret) else value for name, value in fields.items()}
        )

    def provider(self) -> Provider:
        """The provider of this connection's credentials."""
        own = Fixed(Credentials(self.access_key_id, self.access_key_secret, self.security_token))
        base = provider_of(self.credentials) if self.credentials else own
        return AssumedRole(base, self.assume_role) if self.assume_role else base

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> SlsConnection:
        """The connection that `to_env` wrote. Raises ConfigError naming the variable that is missing."""
        fields = {name: environ.get(variable, "") for name, variable in _VARIABLES.items()}
        for name in ("endpoint",) if fields["credentials"] else ("endpoint", *_KEYS):
            if not fields[name]:
                raise ConfigError(
                    f"environment variable {_VARIABLES[name]} is not set: it carries the SLS connection's {name}",
                    source="environment",
                    field=_VARIABLES[name],
                )
        secrets = {name: Secret(fields[name]) for name in _SECRETS}
        return cls(**cast(Any, {**fields, **secrets, "auth_version": fields["auth_version"] or "v1"}))


def variables_of(connections: Sequence[SlsConnection]) -> Variables:
    """The environment variables that `connections_of` reads back; names of further connections end in their number."""
    environments = enumerate(connection.to_env() for connection in connections)
    return Variables(
        {f"{name}{_suffix(number)}": value for number, variables in environments for name, value in variables.items()}
    )


def connections_of(environ: Mapping[str, str]) -> list[SlsConnection]:
    """The connections that `variables_of` or `SlsConnection.to_env` wrote; raises as `SlsConnection.from_env`."""
    connections = [SlsConnection.from_env(environ)]
    while f"{_VARIABLES['endpoint']}{_suffix(len(connections))}" in environ:
        suffix = _suffix(len(connections))
        of_it = {name: environ[f"{name}{suffix}"] for name in _VARIABLES.values() if f"{name}{suffix}" in environ}
        connections.append(SlsConnection.from_env(of_it))
    return connections


def _suffix(number: int) -> str:
    return f"_{number}" if number else ""


def split_endpoint(endpoint: str) -> tuple[str, str, int | None]:
    """Scheme, host and port (None: the scheme's own) of an endpoint. Raises ValueError."""
    scheme, separator, rest = endpoint.rpartition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise ValueError("a scheme that is not http or https")
    host, colon, port = rest.rstrip("/").partition(":")
    if "@" in rest:
        raise ValueError("a user before the host, whose key belongs into the connection's password")
    if not host or "/" in host or any(map(str.isspace, host)):
        raise ValueError("no host")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("no port after the colon (IPv6 addresses are not supported)")
    return scheme.lower() or "http", host, int(port) if colon else None


def _check_endpoint(endpoint: str) -> None:
    try:
        split_endpoint(endpoint)
    except ValueError as error:
        expected = "expected host, host:port or https://host, for example cn-hangzhou.log.aliyuncs.com"
        raise _wrong("endpoint", f"endpoint of the SLS connection: {error}; {expected}") from None


def _wrong(name: str, message: str) -> ConfigError:
    """An error that quotes no field: keys are typed into any."""
    return ConfigError(message, source="SLS connection", field=name)
