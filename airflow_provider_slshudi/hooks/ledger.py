"""Connections of type `slshudi_ledger`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import ConfigError, LedgerEmpty, SlsHudiError
from airflow_provider_slshudi.hooks.connections import find_connection, require_used

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_provider_slshudi.ledger.ledger import Ledger

Shown = TypeVar("Shown")

FIELDS = ("host", "port", "schema", "login", "password")
DIALECTS = ("sqlite", "postgresql", "mysql")
TLS = {
    # https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
    "postgresql": ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl"),
    # https://docs.sqlalchemy.org/en/20/dialects/mysql.html#ssl-connections
    "mysql": ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "ssl_check_hostname"),
    "sqlite": (),
}
"""The extras by which a database is reached by TLS, as its driver names them."""
_MOST_LATIN = 0xFF
_NO_CA = "extra ssl_check_hostname means nothing without ssl_ca or ssl_capath: PyMySQL then trusts any certificate"


class LedgerHook(BaseHook):
    """The ledger's database: extra `dialect` is sqlite, postgresql or mysql, `schema` names the database.

    For SQLite `schema` is the absolute path of the file and the other fields stay empty. For the others extras of `TLS`
    go to the driver; any other extra is refused.
    """

    conn_name_attr = "ledger_conn_id"
    default_conn_name = settings.LEDGER_CONN_ID
    conn_type = "slshudi_ledger"
    hook_name = "SLS to Hudi ledger"

    def __init__(self, ledger_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ledger_conn_id = ledger_conn_id

    def ledger(self) -> Ledger:
        """Opens the ledger and brings its tables to this package's version.

        Raises:
            ConnectionMissing: Airflow gives no such connection.
            ConfigError: the connection cannot work; the message says why.
            LedgerUnavailable: the database does not answer.
        """
        return _open(self.url())

    def ledger_as_it_is(self) -> Ledger:
        """Opens the ledger and changes nothing, not even its tables; for callers that only look.

        Raises:
            LedgerError: the tables are not of this package's version; otherwise as `ledger`.
        """
        return _look(self.url())

    def get_conn(self) -> Ledger:
        """Airflow's name for `ledger`."""
        return self.ledger()

    def test_connection(self) -> tuple[bool, str]:
        """Looks at the database, and takes a lease and gives it back; Airflow's test button. Leaves nothing there."""
        from airflow_provider_slshudi.doctor.database import Database
        from airflow_provider_slshudi.doctor.finding import told

        database = Database(self.url)
        try:
            return told(database.checks())
        finally:
            database.close()

    def url(self) -> URL:
        """The database's URL, which shows no password.

        Raises:
            ConnectionMissing, ConfigError: as `ledger`.
        """
        from sqlalchemy import URL

        connection = find_connection(self.ledger_conn_id, self.conn_type)
        dialect = connection.extra_dejson.get("dialect")
        if dialect not in DIALECTS:
            raise self._wrong("dialect", f"extra `dialect` is one of {', '.join(DIALECTS)}")
        require_used(connection, ("schema",) if dialect == "sqlite" else FIELDS, ("dialect", *TLS[dialect]))
        if dialect == "sqlite":
            if not (connection.schema or "").startswith("/"):
                raise self._wrong("schema", "`schema` is the absolute path of the SQLite file, and begins with /")
            return URL.create(dialect, database=connection.schema)
        hosts = ",".join(host.strip() for host in (connection.host or "").split(",") if host.strip())
        if not hosts or not connection.schema:
            raise self._wrong("host", "it needs a host and, in `schema`, a database")
        extra = connection.extra_dejson
        if dialect == "mysql":
            self._require_sent(connection.password or "", extra)
        tls = {name: extra[name] for name in TLS[dialect] if extra.get(name)}
        return URL.create(
            dialect, connection.login, connection.password, hosts, connection.port, connection.schema, tls
        )

    def _require_sent(self, password: str, extra: Mapping[str, Any]) -> None:
        """Refuses what PyMySQL would leave out without a word, or could not send.

        Raises:
            ConfigError: names the field; no value is told.
        """
        from sqlalchemy.util import asbool

        if any(ord(character) > _MOST_LATIN for character in password):
            raise self._wrong("password", "PyMySQL sends no password with a character beyond Latin-1: set another one")
        try:
            checks = asbool(extra.get("ssl_check_hostname") or False)
        except ValueError:  # it quotes the value
            raise self._wrong("extra ssl_check_hostname", "extra ssl_check_hostname is true or false") from None
        if checks and not (extra.get("ssl_ca") or extra.get("ssl_capath")):
            raise self._wrong("extra ssl_check_hostname", _NO_CA)
        if extra.get("ssl_key") and not extra.get("ssl_cert"):
            raise self._wrong("extra ssl_key", "extra ssl_key means nothing without ssl_cert, whose key it is")

    def _wrong(self, field: str, message: str) -> ConfigError:
        return ConfigError(f"connection {self.ledger_conn_id!r}: {message}", source=self.ledger_conn_id, field=field)


def each_ledger(look: Callable[[Ledger], Shown]) -> tuple[list[Shown], dict[str, Exception]]:
    """What a look at each ledger of `settings.ledger_conn_ids` gives, and the errors of the others by connection.

    Of a ledger without tables, as before the first run of all pipelines, there is nothing to look at, and no error.

    Args:
        look: reads a ledger. Two connections of one database are one ledger.

    Raises:
        SlsHudiError, OSError: no ledger can be read; that of the first.
    """
    shown: dict[Ledger, Shown] = {}
    errors: dict[str, Exception] = {}
    conn_ids = settings.ledger_conn_ids()
    for conn_id in conn_ids:
        try:
            ledger = LedgerHook(conn_id).ledger_as_it_is()
            if ledger not in shown:
                shown[ledger] = look(ledger)
        except LedgerEmpty:
            continue
        except (SlsHudiError, OSError) as error:  # a file of TLS or of SQLite that this user may not look at
            errors[conn_id] = error
    if len(errors) == len(conn_ids):
        raise errors[conn_ids[0]]
    return [*shown.values()], errors


@cache
def _open(url: URL) -> Ledger:
    """The ledger at `url`; cached, so that a process has one engine per database."""
    from airflow_provider_slshudi.ledger.engine import migrate, open_engine
    from airflow_provider_slshudi.ledger.ledger import Ledger

    engine = open_engine(url)
    migrate(engine)
    return Ledger(engine)


@cache
def _look(url: URL) -> Ledger:
    """The ledger at `url` if its tables are of this package's version; cached once they are."""
    from airflow_provider_slshudi.ledger.engine import open_engine, require_version
    from airflow_provider_slshudi.ledger.ledger import Ledger

    engine = open_engine(url, writes=False)
    require_version(engine)
    return Ledger(engine)
