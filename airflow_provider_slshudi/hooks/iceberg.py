"""Connections of type `slshudi_iceberg`: the catalog of a pipeline's Iceberg mirror."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_slshudi.exceptions import ConfigError, SlsHudiError
from airflow_provider_slshudi.hooks.connections import find_connection

TYPES = ("sql", "rest", "hive", "glue")
_WITH_ADDRESS = ("sql", "rest", "hive")


class IcebergHook(BaseHook):
    """A catalog: extra `type` is sql, rest, hive or glue, host its address.

    For `sql` the host is SQLAlchemy's URL of the database, without a password. Login and password are the database's,
    or the client of an Iceberg REST catalog; a password without a login is a REST catalog's token. Extra `name` is the
    catalog's name, by which a SQL catalog tells its tables from others', the connection's id by default. All other
    extras go to pyiceberg as they are (py.iceberg.apache.org/configuration), `warehouse` for example.
    """

    conn_name_attr = "iceberg_conn_id"
    default_conn_name = "slshudi_iceberg"
    conn_type = "slshudi_iceberg"
    hook_name = "Iceberg catalog of SLS to Hudi"

    def __init__(self, iceberg_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.iceberg_conn_id = iceberg_conn_id

    def properties(self) -> dict[str, str]:
        """pyiceberg's properties of the catalog, and its `name`. They hold the password: log none of them.

        Raises:
            ConnectionMissing: Airflow gives no such connection.
            ConfigError: the connection cannot work; the message says why.
        """
        connection = find_connection(self.iceberg_conn_id, self.conn_type)
        extra = {name: value for name, value in connection.extra_dejson.items() if value}
        kind, address, login, password = (
            extra.get("type"),
            connection.host or "",
            connection.login or "",
            connection.password or "",
        )
        if kind not in TYPES:
            raise self._wrong("extra type", f"extra `type` is one of {', '.join(TYPES)}")
        if kind in _WITH_ADDRESS and not address:
            raise self._wrong("host", f"a {kind} catalog needs its address in `host`")
        if kind == "sql":
            address, login, password = self._with_password(address, login, password), "", ""
        catalog_properties = {"name": self.iceberg_conn_id, **extra}
        if address:
            catalog_properties["uri"] = address
        if kind == "rest" and password:
            catalog_properties |= {"credential": f"{login}:{password}"} if login else {"token": password}
        return catalog_properties

    def _with_password(self, address: str, login: str, password: str) -> str:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(address)
        except ArgumentError:
            # Without the cause, which quotes the address.
            raise self._wrong("host", "a sql catalog's `host` is SQLAlchemy's URL: postgresql://server/db") from None
        if url.password is not None:
            raise self._wrong("host", "`host` holds a password, which pages show: put it into `password`")
        # None leaves the address's own user.
        return url.set(username=login or None, password=password or None).render_as_string(hide_password=False)

    def get_conn(self) -> dict[str, str]:
        """Airflow's name for `properties`."""
        return self.properties()

    def test_connection(self) -> tuple[bool, str]:
        """Asks the catalog for its namespaces; Airflow's test button."""
        try:
            from pyiceberg.catalog import load_catalog

            properties = self.properties()
            with load_catalog(properties.pop("name"), **properties) as catalog:
                return True, f"the catalog answers; it has {len(catalog.list_namespaces())} namespaces"
        except ImportError:
            return False, "pyiceberg is not installed here: pip install 'airflow-provider-slshudi[iceberg]'"
        except SlsHudiError as error:
            return False, str(error)
        except Exception as error:  # the clients of catalogs raise all sorts of errors
            return False, f"{type(error).__name__}: {error}"

    def _wrong(self, field: str, message: str) -> ConfigError:
        return ConfigError(f"connection {self.iceberg_conn_id!r}: {message}", source=self.iceberg_conn_id, field=field)
