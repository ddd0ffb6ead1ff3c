"""Airflow connections, with errors that say how to add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_slshudi.exceptions import ConfigError, TransientError

if TYPE_CHECKING:
    from airflow.sdk import Connection


class ConnectionMissing(TransientError):
    """Airflow gives no connection of this id. It also says so to a worker when the API server is away: ask again."""


def find_connection(conn_id: str, conn_type: str) -> Connection:
    """The connection of an id.

    Raises:
        ConnectionMissing: Airflow gives no such connection.
        ConfigError: the connection is of another type.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConnectionMissing(
            f"Airflow has no connection {conn_id!r}: add it with type {conn_type} under Admin > Connections, or with "
            f"`airflow connections add {conn_id} --conn-type {conn_type} ...`, or as JSON in the environment variable "
            f"AIRFLOW_CONN_{conn_id.upper()}"
        ) from None
    if connection.conn_type != conn_type:
        raise ConfigError(
            f"connection {conn_id!r} has type {connection.conn_type!r}, expected {conn_type!r}: change its type, or "
            "name another connection",
            source=conn_id,
            field="conn_type",
            value=connection.conn_type,
        )
    return connection
