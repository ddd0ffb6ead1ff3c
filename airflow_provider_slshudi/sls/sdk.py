"""The official SDK's client, for calls that carry no bulk data (github.com/aliyun/aliyun-log-python-sdk).

Batches have a client of their own, see docs/decisions/0009-transport.md.
"""

from __future__ import annotations

from ipaddress import ip_address

from aliyun.log import LogClient
from aliyun.log.credentials import Credentials, CredentialsProvider

from airflow_provider_slshudi.sls.connection import SlsConnection, split_endpoint
from airflow_provider_slshudi.sls.credentials import Keeper

_SOURCE = "slshudi"


class _Renewed(CredentialsProvider):  # type: ignore[misc]  # the SDK counts as untyped
    """The present credentials of a connection, which the SDK asks for with each request."""

    def __init__(self, connection: SlsConnection) -> None:
        super().__init__()
        self._keeper = Keeper(connection.provider())

    def get_credentials(self) -> Credentials:
        """As the SDK has them; raises OSError and ConfigError as `Keeper.get`."""
        present = self._keeper.get()
        token = present.security_token.reveal() or None
        return Credentials(present.access_key_id, present.access_key_secret.reveal(), token)


def client_of(connection: SlsConnection) -> LogClient:
    """A client with the connection's endpoint, signature and credentials."""
    client = LogClient(
        connection.endpoint,
        source=_SOURCE,
        auth_version=connection.auth_version,
        region=connection.region,
        credentials_provider=_Renewed(connection),
    )
    # The SDK takes an address with a port for a name, and puts the project before it.
    client._isRowIp = client._isRowIp or _is_address(split_endpoint(connection.endpoint)[1])
    return client


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
