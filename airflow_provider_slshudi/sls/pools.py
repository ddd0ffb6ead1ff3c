"""Connections to servers of Alibaba Cloud: through the environment's proxy, with the certificates that it names."""

from __future__ import annotations

import os
import ssl
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3


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
