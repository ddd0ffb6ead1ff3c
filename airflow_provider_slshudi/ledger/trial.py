"""A look at a ledger's database that leaves nothing in it: its versions, and a lease that is taken and given back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, inspect

from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import VERSION, scripts, shown, transaction, upgrade, version
from airflow_provider_slshudi.ledger.lease import end, holding, new_nonce, take
from airflow_provider_slshudi.ledger.records import LedgerPipeline
from airflow_provider_slshudi.ledger.registration import register

_SECONDS = 60
_AIRFLOWS = "dag_run"


@dataclass(frozen=True)
class Versions:
    """What is in a ledger's database.

    Attributes:
        database: the database system and its version.
        tables: the version of the ledger's tables; None where there are none.
        newest: the version that this package gives them.
        known: whether this package knows the tables' version.
        airflows: whether Airflow's own tables are there, too.
        tls: whether the connection is by TLS; None for a file.
    """

    database: str
    tables: str | None
    newest: str
    known: bool
    airflows: bool
    tls: bool | None


def versions(engine: Engine) -> Versions:
    """The versions of database and tables; raises as `transaction`."""
    with transaction(engine, write=False) as connection:
        found, airflows = version(connection), inspect(connection).has_table(_AIRFLOWS)
        tls = _is_by_tls(connection)
        number = ".".join(map(str, connection.dialect.server_version_info or ("of unknown version",)))
    known = {script.revision for script in scripts().walk_revisions()}
    return Versions(f"{engine.dialect.name} {number}", found, VERSION, found is None or found in known, airflows, tls)


def _is_by_tls(connection: Connection) -> bool | None:
    """Asks the client's end, or of MySQL the session: a pooler's own way to the server is another one."""
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        return bool(driver.pgconn.ssl_in_use)
    if connection.dialect.name == "mysql":
        return bool(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").one()[1])
    return None


def trial(engine: Engine) -> None:
    """Registers a pipeline, takes its lease and gives it back, and has the database forget all of that.

    Where there are no tables it makes them, which is forgotten as well; so not on MySQL, which would keep them. If
    this process dies, the database forgets by itself.

    Raises:
        LedgerUnavailable, LedgerDenied, LedgerError: as `transaction`; this user may not make tables, or not write.
    """
    try:
        with transaction(engine, write=True) as connection:
            if version(connection) is None:
                upgrade(connection)
            _lease(connection)
            raise _Forget
    except _Forget:
        return


def _lease(connection: Connection) -> None:
    name = f"slshudi-trial-{uuid4().hex}"
    register(connection, LedgerPipeline(name, name, name))
    take(connection, models.leases, name, name, _SECONDS, new_nonce(_SECONDS))
    held = holding(connection, models.leases, name)
    if held is None or not end(connection, held):
        raise LedgerError(f"ledger {shown(connection.engine.url)}: a lease that was just taken is not there")


class _Forget(Exception):
    """Rolls the transaction back."""
