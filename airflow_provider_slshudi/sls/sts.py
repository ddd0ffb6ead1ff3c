"""Temporary credentials of a RAM role, from Alibaba Cloud's security token service (STS).

Signing: https://www.alibabacloud.com/help/en/sdk/product-overview/rpc-mechanism
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import urllib3

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.secret import Secret
from airflow_provider_slshudi.sls import credentials as made
from airflow_provider_slshudi.sls.credentials import Credentials, Provider
from airflow_provider_slshudi.sls.pools import pool

ENDPOINT = "https://sts.aliyuncs.com"
"""The service for all regions: https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-endpoint"""
ENDPOINT_VARIABLE = "ALIBABA_CLOUD_STS_ENDPOINT"
"""The variable with another address of the service, for example one within a VPC; Alibaba Cloud's own SDKs read it."""
SESSION = "slshudi"
"""The name under which ActionTrail shows what the role does."""
_SECONDS = 3600
_TIMEOUT = 10.0
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
        asked = {
            "Action": "AssumeRole",
            "RoleArn": self.role,
            "AccessKeyId": base.access_key_id,
            "SignatureMethod": "HMAC-SHA1",
            "SignatureVersion": "1.0",
            "SignatureNonce": secrets.token_hex(16),
            "Timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if base.security_token:
            asked["SecurityToken"] = base.security_token.reveal()
        return _asked(asked, self.role, base.access_key_secret)


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
        asked = {
            "Action": "AssumeRoleWithOIDC",
            "RoleArn": role,
            "OIDCProviderArn": provider,
            "OIDCToken": token,
            "Timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return _asked(asked, role)


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
            timeout=_TIMEOUT,
            retries=False,
            redirect=False,
        )
    except urllib3.exceptions.HTTPError as error:
        # Its text may quote parameters, a token among them.
        raise OSError(f"{endpoint} did not answer ({type(error).__name__})") from None
    try:
        found: Any = json.loads(answer.data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OSError(f"{endpoint} answered with status {answer.status} and no JSON object")
    if answer.status != 200:
        _refuse(endpoint, role, answer.status, str(found.get("Code", "")), str(found.get("Message", "")))
    return made.parse(json.dumps(found.get("Credentials")).encode(), f"the answer of {endpoint}")


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
