"""Airflow connections, with errors that say how to add one."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_slshudi.exceptions import ConfigError, TransientError
from airflow_provider_slshudi.visible import hidden_in

if TYPE_CHECKING:
    from airflow.sdk import Connection


_log = logging.getLogger(__name__)


class ConnectionMissing(TransientError):
    """Airflow gives no connection of this id. It also says so to a worker when the API server is away: ask again."""


def connection_ids(conn_type: str) -> list[str]:
    """The ids of all connections of a type that can be listed, sorted: those of the environment and of Airflow's
    database. A secrets backend may have more. Only for somebody to choose from."""
    from airflow.models.connection import Connection as Stored
    from airflow.secrets.environment_variables import CONN_ENV_PREFIX
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    found = set()
    for variable in os.environ:
        conn_id = variable.removeprefix(CONN_ENV_PREFIX).lower()
        if conn_id == variable.lower() or conn_id.startswith("_"):  # of a team
            continue
        try:
            if BaseHook.get_connection(conn_id).conn_type == conn_type:
                found.add(conn_id)
        except Exception:  # noqa: S112 - whatever is wrong with it: nobody asked for this one
            continue
    try:
        with create_session() as session:
            found |= set(session.scalars(select(Stored.conn_id).where(Stored.conn_type == conn_type)))
    except SQLAlchemyError as error:
        _log.info("connections of Airflow's database are not known: %s", error)
    return sorted(found)


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
    _require_visible(connection)
    return connection


def _require_visible(connection: Connection) -> None:
    """Refuses a field with a line break or another character that nobody sees: errors of clients would quote it.

    Raises:
        ConfigError: names the field and the place in it, never its value.
    """
    fields = {name: getattr(connection, name) for name in ("host", "login", "password", "schema")}
    fields |= {f"extra {name}": value for name, value in connection.extra_dejson.items()}
    for name, value in fields.items():
        if isinstance(value, str) and (hidden := hidden_in(value)):
            raise ConfigError(
                f"connection {connection.conn_id!r}: its {name} has a character that nobody sees: {hidden}. Its value "
                "is not shown; type it once more",
                source=str(connection.conn_id),
                field=name,
            )
