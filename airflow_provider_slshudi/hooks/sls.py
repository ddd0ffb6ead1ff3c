"""Connections of type `sls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_slshudi.exceptions import ConfigError, SlsHudiError
from airflow_provider_slshudi.hooks.connections import find_connection, require_used

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from aliyun.log import LogClient

    from airflow_provider_slshudi.sls.connection import SlsConnection
    from airflow_provider_slshudi.sls.faults import Patience
    from airflow_provider_slshudi.sls.service import LogService

FIELDS = ("host", "port", "login", "password")
EXTRAS = ("region", "auth_version", "security_token", "credentials", "assume_role", "project", "logstore")
_NO_PROJECT = "slshudi-connection-test"


class SlsHook(BaseHook):
    """The log service: host is the endpoint, login the AccessKey ID, password its secret.

    A host without `http://` is asked by HTTPS. Extra: `region`, where the endpoint names none; `auth_version` (v4 by
    default, or v1), `security_token` (of temporary credentials), `credentials` (the source that gives and renews keys,
    instead of login and password), `assume_role` (a role's ARN). `project` and `logstore` are for the test button, and
    for `slshudi init` to offer.
    """

    conn_name_attr = "sls_conn_id"
    default_conn_name = "sls_default"
    conn_type = "sls"
    hook_name = "Alibaba Cloud SLS"

    def __init__(self, sls_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sls_conn_id = sls_conn_id

    def connection(self) -> SlsConnection:
        """Endpoint and credentials.

        Raises:
            ConnectionMissing: Airflow gives no such connection.
            ConfigError: the connection cannot work; the message says why.
        """
        from airflow_provider_slshudi.sls.connection import VERSION, SlsConnection, endpoint_of, region_of
        from airflow_provider_slshudi.system.secrets import Secret

        connection = find_connection(self.sls_conn_id, self.conn_type)
        extra, endpoint = connection.extra_dejson, endpoint_of(self._host(connection))
        return SlsConnection(
            endpoint,
            connection.login or "",
            Secret(connection.password or ""),
            Secret(extra.get("security_token") or ""),
            extra.get("region") or region_of(endpoint),
            extra.get("auth_version") or VERSION,
            extra.get("credentials") or "",
            extra.get("assume_role") or "",
        )

    def _host(self, found: Connection) -> str:
        """The host with its port.

        Raises:
            ConfigError: a field or an extra would be ignored, or there are two ports.
        """
        host, source = found.host or "", self.sls_conn_id
        require_used(found, FIELDS, EXTRAS)
        if not found.port:
            return host
        if ":" in host.rpartition("://")[2]:
            message = f"connection {source!r}: its host names a port, and so does its field `port`: keep one of them"
            raise ConfigError(message, source=source, field="port")
        return f"{host.rstrip('/')}:{found.port}"

    def service(self, project: str, logstore: str, patience: Patience) -> LogService:
        """A client of one logstore; raises as `connection`."""
        from airflow_provider_slshudi.sls.service import LogService

        return LogService(self.connection(), project, logstore, patience=patience)

    def get_conn(self) -> LogClient:
        """The official SDK's client for calls of your own, whose keys are renewed; raises as `connection`."""
        from airflow_provider_slshudi.sls.sdk import client_of

        return client_of(self.connection())

    def test_connection(self) -> tuple[bool, str]:
        """Asks the logstore that the connection names what a pipeline would ask it; Airflow's test button.

        A connection that names none can only ask for a project that does not exist.
        """
        from airflow_provider_slshudi.doctor.finding import told
        from airflow_provider_slshudi.doctor.source import Logstore
        from airflow_provider_slshudi.sls.faults import PERSON

        try:
            extra = find_connection(self.sls_conn_id, self.conn_type).extra_dejson
        except SlsHudiError as error:
            return False, str(error)
        project, logstore = (str(extra.get(name) or "") for name in ("project", "logstore"))
        if not project and not logstore:
            return told(Logstore(lambda: self.service(_NO_PROJECT, "none", PERSON)).checks_of_none())
        return told(Logstore(lambda: self.service(project, logstore, PERSON)).checks())
