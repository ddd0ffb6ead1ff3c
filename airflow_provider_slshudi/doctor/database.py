"""The ledger's database."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL, Engine

from airflow_provider_slshudi.doctor import finding
from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, warning, wrong
from airflow_provider_slshudi.ledger.engine import open_engine, require_files, shown
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.registration import Versions, trial, versions
from airflow_provider_slshudi.storage import owners

_HERE = (None, "localhost", "127.0.0.1", "::1")
_NOT_ASKED = "not asked: the connection cannot be used"


class Database:
    """The checks of a ledger's database, none of which leaves anything there; `url_of` gives its URL."""

    def __init__(self, url_of: Callable[[], str | URL]) -> None:
        self._url_of = url_of
        self._engine: Engine | None = None
        self._versions: Versions | None = None

    def checks(self) -> list[Check]:
        """All checks, in the order in which each needs the ones before it."""
        return [
            Check("connection", self.connection),
            Check("tables", self.tables),
            Check("TLS", self.tls),
            Check("lease", self.lease),
            Check("database's clock", self.clock),
        ]

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is an SQLite file; not before `connection` looked."""
        return self._engine is not None and self._engine.dialect.name == "sqlite"

    def close(self) -> None:
        """Lets go of the database."""
        if self._engine is not None:
            self._engine.dispose()

    def has_written(self, pipeline: str, source: str, table: str) -> bool:
        """Whether the ledger knows that a pipeline wrote to its table; not before `tables` looked.

        Raises:
            LookupError: it is not known.
            PipelineConflict: it wrote, from another source or into another table.
            LedgerUnavailable, LedgerError: as `Ledger.has_written`.
        """
        ledger = self.ledger()
        if ledger is None or not ledger.has_written(pipeline):
            return False
        ledger.require(pipeline, source, table)
        return True

    def ledger(self) -> Ledger | None:
        """The ledger, None before its first use; not before `tables` looked.

        Raises:
            LookupError: it cannot be asked.
        """
        if self._engine is not None and self._is_missing(self._engine):
            return None
        if self._engine is None or self._versions is None:
            raise LookupError("the ledger cannot be asked")
        return None if self._versions.tables is None else Ledger(self._engine)

    def connection(self) -> Seen:
        """The database's address; of SQLite also file and folder."""
        engine = open_engine(self._url_of())
        if engine.dialect.name == "sqlite":
            refused = _refused(Path(engine.url.database or ""))
            if refused is not None:
                return refused
            require_files(engine.url)
        self._engine = engine
        return ok(shown(engine.url))

    def tables(self) -> Seen:
        """The versions of database and tables."""
        if self._engine is None:
            return unknown(_NOT_ASKED)
        if self._is_missing(self._engine):
            return ok("there is no file yet: the first use makes it")
        self._versions = schema = versions(self._engine)
        if schema.airflows:
            return wrong(f"{schema.database}: this is Airflow's own database", "give the ledger a database of its own")
        if schema.tables is None:
            return ok(f"{schema.database}, no tables yet: the first use makes them, of version {schema.newest}")
        if not schema.known:
            return wrong(
                f"{schema.database}, tables of version {schema.tables}, which this package does not know: its own is "
                f"{schema.newest}",
                "install the version of airflow-provider-slshudi that wrote them, or a newer one",
            )
        if schema.tables != schema.newest:
            return warning(
                f"{schema.database}, tables of version {schema.tables}: the next use brings them to {schema.newest}",
                "install this version on all machines before that; older ones do not know those tables",
            )
        return ok(f"{schema.database}, tables of version {schema.tables}, this package's own")

    def tls(self) -> Seen:
        """Whether what the ledger is told, and asked, can be read on the way."""
        if self.is_sqlite:
            return ok("not needed: SQLite is a file")
        if self._engine is None or self._versions is None:
            return unknown(_NOT_ASKED)
        if self._versions.tls:
            return ok("the connection is by TLS")
        if self._engine.url.host in _HERE:
            return ok("none: the connection stays on this machine")
        extra = "sslmode: verify-full" if self._engine.dialect.name == "postgresql" else "ssl_ca"
        return warning(
            "none: what is told to the database can be read, and changed, on the way",
            f"turn TLS on at the server, and set the extra {extra} in the connection",
        )

    def lease(self) -> Seen:
        """A lease, taken and given back."""
        if self._engine is None:
            return unknown(_NOT_ASKED)
        if self._is_missing(self._engine):
            return _beside(Path(self._engine.url.database or ""))
        if self._versions is None or self._versions.airflows:
            return unknown("not tried: the tables are not known")
        if self._versions.tables not in (None, self._versions.newest):
            return unknown("not tried: the tables are not of this package's version")
        if self._versions.tables is None and self._engine.dialect.name == "mysql":
            return unknown("not tried: MySQL would keep the tables that this makes")
        trial(self._engine)
        return ok("one was taken and given back, and nothing of it is left")

    def clock(self) -> Seen:
        """This machine's clock beside the database's."""
        if self._engine is None or (self._versions is None and not self.is_sqlite):
            return unknown(_NOT_ASKED)
        if self.is_sqlite:
            return ok("SQLite takes this machine's")
        ahead = (datetime.now(timezone.utc) - Ledger(self._engine).now()).total_seconds()
        return finding.compared(ahead, "the ledger's", stops=ahead > _most_ahead())

    def _is_missing(self, engine: Engine) -> bool:
        """Whether SQLite's file is not there; a connection would make it."""
        return engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists()


def _refused(file: Path) -> Seen | None:
    """Why SQLite's file cannot be used; None where nothing speaks against it."""
    if file.is_dir():
        return wrong(f"{file} is a folder", "name the file in `schema`, like /var/lib/slshudi/ledger.db")
    folder = file.parent
    if not folder.is_dir():
        return wrong(f"{folder} is no folder", f"make it, as the user that runs the pipelines: mkdir -p {folder}")
    if not file.exists() and not owners.may(folder, os.W_OK | os.X_OK):
        return wrong(f"{file} is not there; {owners.refused(folder)}", f"give {folder} to the user of the pipelines")
    return None


def _beside(file: Path) -> Seen:
    """A lease in a file of our own, beside the one that is not there yet: locks depend on the file system."""
    other = file.with_name(f"{file.name}.trial-{uuid4().hex}")
    engine = open_engine(f"sqlite:///{other}")
    try:
        trial(engine)
    finally:
        engine.dispose()
        for suffix in ("", "-wal", "-shm", "-journal"):
            other.with_name(other.name + suffix).unlink(missing_ok=True)
    return ok("one was taken and given back, in a file beside it that is gone again")


def _most_ahead() -> float:
    from airflow_provider_slshudi.transaction.context import MOST_AHEAD

    return MOST_AHEAD.total_seconds()
