"""Airflow connections, with errors that say how to add one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook

from airflow_provider_slshudi.exceptions import ConfigError, TransientError
from airflow_provider_slshudi.system.secrets import hidden_in

if TYPE_CHECKING:
    from airflow.sdk import Connection


_log = logging.getLogger(__name__)
_FIELDS = ("host", "port", "schema", "login", "password")
_STORAGE_EXTRAS = {
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region_name": "AWS_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL",
}


class ConnectionMissing(TransientError):
    """Airflow gives no connection of this id. It also says so to a worker when the API server is away: ask again."""


def connection_ids(conn_type: str) -> list[str]:
    """The ids of all connections of a type that can be listed, sorted: those of the environment and of Airflow's
    database. A secrets backend may have more. Only for a person to choose from."""
    from airflow.models.connection import Connection as Stored
    from airflow.secrets.environment_variables import CONN_ENV_PREFIX
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    conn_ids = set()
    for variable in os.environ:
        conn_id = variable.removeprefix(CONN_ENV_PREFIX).lower()
        if conn_id == variable.lower() or conn_id.startswith("_"):  # of a team
            continue
        try:
            if BaseHook.get_connection(conn_id).conn_type == conn_type:
                conn_ids.add(conn_id)
        except Exception:  # noqa: S112 - with any error: no caller asked for this one
            continue
    try:
        with create_session() as session:
            conn_ids |= set(session.scalars(select(Stored.conn_id).where(Stored.conn_type == conn_type)))
    except SQLAlchemyError as error:
        _log.info("connections of Airflow's database are not known: %s", error)
    return sorted(conn_ids)


def find_connection(conn_id: str, conn_type: str) -> Connection:
    """The connection of an id.

    Raises:
        ConnectionMissing: Airflow gives no such connection.
        ConfigError: the connection is of another type, its extra is no JSON object of texts, or one of its fields has a
            character that is not seen; no value is told.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConnectionMissing(
            f"Airflow has no connection {conn_id!r}: add it with type {conn_type} under Admin > Connections, or with "
            f"`airflow connections add {conn_id} --conn-type {conn_type} ...`, or as JSON in the environment variable "
            f"AIRFLOW_CONN_{conn_id.upper()}. One that Airflow cannot read counts as none"
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


def require_used(connection: Connection, fields: Collection[str], extras: Collection[str]) -> None:
    """Refuses what would be ignored.

    Args:
        connection: as `find_connection` gives it.
        fields: which of host, port, schema, login and password are used.
        extras: the names in the extra that are used.

    Raises:
        ConfigError: another one is given; its value is not told.
    """
    filled_fields = [name for name in _FIELDS if getattr(connection, name) not in (None, "")]
    unused = [name for name in filled_fields if name not in fields]
    unused += [f"extra {name}" for name, value in connection.extra_dejson.items() if value and name not in extras]
    for name in unused:
        used = ", ".join([*fields, *(f"extra {extra}" for extra in extras)])
        raise _wrong(connection, name, f"{name} means nothing here, and would be ignored. It has {used}: take it out")


def storage_variables(conn_id: str) -> dict[str, str | None]:
    """What a connection of Airflow's type `aws` says, as the variables that clients of object stores follow.

    https://airflow.apache.org/docs/apache-airflow-providers-amazon/stable/connections/aws.html

    Returns:
        Values by variable; None for one that must not be set, since it belongs to other keys.

    Raises:
        ConnectionMissing, ConfigError: as `find_connection`; or it has no keys, or more than is used here.
    """
    connection = find_connection(conn_id, "aws")
    require_used(connection, ("login", "password"), tuple(_STORAGE_EXTRAS))
    if not connection.login or not connection.password:
        raise _wrong(connection, "login", "an object store's keys are its login and password, and one is missing")
    extra = connection.extra_dejson
    variables = {variable: extra.get(name) or None for name, variable in _STORAGE_EXTRAS.items()}
    keys = {"AWS_ACCESS_KEY_ID": connection.login, "AWS_SECRET_ACCESS_KEY": connection.password}
    # Where it names neither, the machine's own region and endpoint stay.
    return {**keys, **{name: value for name, value in variables.items() if value or name == "AWS_SESSION_TOKEN"}}


def _require_visible(connection: Connection) -> None:
    """Refuses a field with a line break or another invisible character: errors of clients would quote it.

    Raises:
        ConfigError: names the field and the place in it, never its value.
    """
    fields = {name: getattr(connection, name) for name in _FIELDS}
    for name, value in _extra(connection).items():
        if not isinstance(value, str | None):
            raise _wrong(connection, f"extra {name}", f"its extra {name} is no text: put it in quotes")
        fields[f"extra {name}"] = value
    for name, value in fields.items():
        if isinstance(value, str) and (hidden := hidden_in(value)):
            said = f"its {name} has a character that is not seen: {hidden}. Its value is not shown; type it once more"
            raise _wrong(connection, name, said)


def _extra(connection: Connection) -> dict[str, Any]:
    """The extra, of which Airflow makes an empty one where it is no JSON."""
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        # Without the cause, which keeps the text.
        raise _wrong(connection, "extra", "its extra is no JSON object") from None
    return extra


def _wrong(connection: Connection, field: str, message: str) -> ConfigError:
    conn_id = str(connection.conn_id)
    return ConfigError(f"connection {conn_id!r}: {message}", source=conn_id, field=field)
