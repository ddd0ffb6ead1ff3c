"""What people type into a connection, made safe where they leave something out: HTTPS, signature v4, the region."""

from __future__ import annotations

import re
from typing import Final

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
    found = _ENDPOINT.fullmatch(endpoint.lower())
    return found["region"] if found else ""
