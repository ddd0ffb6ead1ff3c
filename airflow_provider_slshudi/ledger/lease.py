"""Who may decide for a pipeline at this moment."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, Table, select, update

from airflow_provider_slshudi.exceptions import LeaseHeld, LedgerError, LedgerUnavailable
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import now, transaction
from airflow_provider_slshudi.system.processes import is_gone, is_here, this_process

_POLL_SECONDS = 0.1
_NOBODY = {"holder": None, "nonce": None, "expires": None, "process": None}
_FREE = "free"
# A clock that is corrected by up to this much does not end a lease that was just taken.
_STEP_SECONDS = 60
_log = logging.getLogger(__name__)


@dataclass
class Lease:
    """The right to decide for `pipeline` until `expires` (UTC, by the ledger's clock)."""

    engine: Engine = field(repr=False)
    leases: Table = field(repr=False)
    pipeline: str
    holder: str
    seconds: float
    nonce: str = field(repr=False)
    expires: datetime
    _changing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def renew(self) -> None:
        """Holds the lease for its full time from now; call it right before a step that cannot be undone.

        Raises:
            LeaseHeld: another run has the lease, or had it since; the decision must not go on.
        """
        with self._changing:
            self.expires = _renew(self.engine, self.leases, self.pipeline, self.seconds, self.nonce, self.nonce)

    def extend(self, seconds: float) -> None:
        """Holds the lease for `seconds` from now and from each renewal, unless it lasts longer anyway.

        Raises:
            LeaseHeld: as `renew`.
        """
        with self._changing:
            seconds = max(seconds, self.seconds)
            nonce = _lasting(self.nonce, seconds)
            self.expires = _renew(self.engine, self.leases, self.pipeline, seconds, self.nonce, nonce)
            self.seconds, self.nonce = seconds, nonce


@dataclass(frozen=True)
class Holding:
    """Who has a lease of a pipeline.

    Attributes:
        lease: the name of the lease's table.
        holder: the run that has the lease; `process` names its process among all machines', empty if unknown.
        expires: when the lease ends; `at` is when it was read. Both are UTC by the ledger's clock.
        known: what this machine knows of the process.
        lives: whether the process surely lives.
    """

    lease: str
    pipeline: str
    holder: str
    nonce: str = field(repr=False)
    process: str
    expires: datetime
    at: datetime
    known: str
    lives: bool


def holding(connection: Connection, leases: Table, pipeline: str) -> Holding | None:
    """Who has a lease, None where no run has."""
    moment, row = now(connection), _read(connection, leases, pipeline)
    if row.nonce is None:
        return None
    process = row.process or ""
    lives, over = is_here(process) and not is_gone(process), _over(row, moment)
    evidence = over or (
        "it lives, on this machine" if lives else "nothing: it is not of this machine, or of a container"
    )
    return Holding(leases.name, pipeline, row.holder, row.nonce, process, row.expires, moment, evidence, lives)


def is_free(connection: Connection, leases: Table, pipeline: str) -> bool:
    """See `Ledger.lease_is_free`."""
    row = _read(connection, leases, pipeline)
    return row.nonce is None or row.expires <= now(connection)


def end(connection: Connection, holding: Holding) -> bool:
    """Ends a holding; False where the lease has changed since. Its holder finds out by `Lease.renew`."""
    leases = models.metadata.tables[holding.lease]
    query = update(leases).where(leases.c.pipeline == holding.pipeline, leases.c.nonce == holding.nonce)
    return connection.execute(query.values(_NOBODY)).rowcount == 1


def take(connection: Connection, leases: Table, pipeline: str, holder: str, seconds: float, nonce: str) -> datetime:
    """Takes a lease that no run holds any more and tells when it expires.

    Args:
        connection: of a writing transaction.
        leases: the table of one kind of lease.
        pipeline: its name.
        holder: the run, as text.
        seconds: how long it lasts unless it is renewed.
        nonce: tells this holding from all others.

    Raises:
        LeaseHeld: another run holds it.
    """
    moment, row = now(connection), _read(connection, leases, pipeline)
    if over := _over(row, moment):
        expires = moment + timedelta(seconds=seconds)
        values = {"holder": holder[: models.NAME_LENGTH], "nonce": nonce, "expires": expires, "process": this_process()}
        if _change(connection, leases, pipeline, row.nonce, row.expires, values):
            if over != _FREE:
                _log.warning("pipeline %s: %s held the lease: %s", pipeline, row.holder, over)
            return expires
        row = _read(connection, leases, pipeline)
    raise _held(row)


@contextmanager
def hold(engine: Engine, leases: Table, pipeline: str, holder: str, seconds: float, wait: float) -> Iterator[Lease]:
    """See `Ledger.lease` and `Ledger.service_lease`.

    Args:
        engine: of the ledger's database.
        leases: the table of one kind of lease; all else as there.
        pipeline: its name.
        holder: the run, as text.
        seconds: how long it lasts unless it is renewed.
        wait: seconds to wait for another holder.
    """
    nonce, deadline = new_nonce(seconds), time.monotonic() + wait
    while True:
        try:
            expires = _take(engine, leases, pipeline, holder, seconds, nonce)
            lease = Lease(engine, leases, pipeline, holder, seconds, nonce, expires)
            break
        except LeaseHeld:
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                raise
            time.sleep(min(_POLL_SECONDS, remaining_seconds))
    try:
        yield lease
    finally:
        _release(engine, leases, pipeline, lease.nonce)


def _take(engine: Engine, leases: Table, pipeline: str, holder: str, seconds: float, nonce: str) -> datetime:
    with transaction(engine, write=True) as connection:
        return take(connection, leases, pipeline, holder, seconds, nonce)


def _renew(engine: Engine, leases: Table, pipeline: str, seconds: float, nonce: str, then: str) -> datetime:
    """Renews a lease under the nonce `then`; a holder that lost it does not get it back, even if it is free."""
    with transaction(engine, write=True) as connection:
        expires = now(connection) + timedelta(seconds=seconds)
        query = update(leases).where(leases.c.pipeline == pipeline, leases.c.nonce == nonce)
        if connection.execute(query.values(expires=expires, nonce=then)).rowcount == 1:
            return expires
        row = _read(connection, leases, pipeline)
    raise _held(row)


def _read(connection: Connection, leases: Table, pipeline: str) -> Row[Any]:
    row = connection.execute(select(leases).where(leases.c.pipeline == pipeline)).one_or_none()
    if row is None:
        raise LedgerError(f"the ledger knows no pipeline {pipeline}; register it first", pipeline=pipeline)
    return row


def _over(found: Row[Any], at: datetime) -> str:
    """Why no run holds the lease at this time of the ledger's clock; empty where one may.

    A Spark driver dies with the process that holds the lease, so a dead holder leaves no process that could go on.
    """
    if found.nonce is None:
        return _FREE
    if found.expires <= at:
        return "it expired"
    if found.expires > at + timedelta(seconds=_length(found.nonce) + _STEP_SECONDS):
        return f"it ends {found.expires}, further ahead of {at} than it can, so a clock was wrong when it was taken"
    return "its process is gone" if is_gone(found.process or "") else ""


def new_nonce(seconds: float) -> str:
    """A text that tells one holding from all others and carries the seconds that it lasts."""
    return _lasting(uuid4().hex[:20], seconds)


def _lasting(nonce: str, seconds: float) -> str:
    """The nonce of the same holding, lasting `seconds`."""
    return f"{nonce.partition('-')[0]}-{math.ceil(seconds)}"


def _length(nonce: str) -> float:
    """The seconds that a holding lasts."""
    return float(nonce.partition("-")[2])


def _change(
    connection: Connection,
    leases: Table,
    pipeline: str,
    nonce: str | None,
    expires: datetime | None,
    values: Mapping[str, Any],
) -> bool:
    """Changes a lease if it is still as it was read; whether it was."""
    query = update(leases).where(leases.c.pipeline == pipeline)
    query = query.where(leases.c.nonce.is_(None) if nonce is None else leases.c.nonce == nonce)
    query = query.where(leases.c.expires.is_(None) if expires is None else leases.c.expires == expires)
    return connection.execute(query.values(values)).rowcount == 1


def _held(found: Row[Any]) -> LeaseHeld:
    by = f"{found.holder} decides until {found.expires} at the latest" if found.nonce else "the lease was lost"
    return LeaseHeld(
        f"pipeline {found.pipeline}: {by}; try again then",
        pipeline=found.pipeline,
        holder=found.holder or "",
        expires=found.expires,
    )


def _release(engine: Engine, leases: Table, pipeline: str, nonce: str) -> None:
    try:
        with transaction(engine, write=True) as connection:
            connection.execute(
                update(leases).where(leases.c.pipeline == pipeline, leases.c.nonce == nonce).values(_NOBODY)
            )
    except LedgerUnavailable as error:
        # What was decided stands; the lease ends by itself.
        _log.warning("pipeline %s: the lease could not be released and expires by itself: %s", pipeline, error)
