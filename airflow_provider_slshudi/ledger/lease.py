"""Who may decide for a pipeline at this moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import ColumnElement, Engine, Table, or_, select, update

from airflow_provider_slshudi.exceptions import LeaseHeld, LedgerError, LedgerUnavailable
from airflow_provider_slshudi.ledger.engine import now, transaction
from airflow_provider_slshudi.processes import is_gone, this_process

_POLL_SECONDS = 0.1
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

    def renew(self) -> None:
        """Holds the lease for its full time from now; to be called right before what cannot be undone.

        Raises:
            LeaseHeld: it expired and somebody else took it; the decision must not go on.
        """
        self.expires = _take(self.engine, self.leases, self.pipeline, self.holder, self.seconds, self.nonce)


@contextmanager
def hold(engine: Engine, leases: Table, pipeline: str, holder: str, seconds: float, wait: float) -> Iterator[Lease]:
    """See `Ledger.lease` and `Ledger.service_lease`."""
    nonce, deadline = uuid4().hex, time.monotonic() + wait
    while True:
        try:
            expires = _take(engine, leases, pipeline, holder, seconds, nonce)
            lease = Lease(engine, leases, pipeline, holder, seconds, nonce, expires)
            break
        except LeaseHeld:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(_POLL_SECONDS, left))
    try:
        yield lease
    finally:
        _release(engine, leases, pipeline, nonce)


def _take(engine: Engine, leases: Table, pipeline: str, holder: str, seconds: float, nonce: str) -> datetime:
    """Takes a free, expired or own lease, or one whose holder is dead, and tells when it expires.

    A Spark driver dies with the process that holds the lease, so a dead holder leaves nobody who could go on.
    """
    with transaction(engine, write=True) as connection:
        at = now(connection)
        expires = at + timedelta(seconds=seconds)

        def take(condition: ColumnElement[bool]) -> bool:
            change = update(leases).where(leases.c.pipeline == pipeline, condition)
            values = {"holder": holder, "nonce": nonce, "expires": expires, "process": this_process()}
            return connection.execute(change.values(values)).rowcount == 1

        if take(or_(leases.c.nonce.is_(None), leases.c.nonce == nonce, leases.c.expires <= at)):
            return expires
        other = connection.execute(select(leases).where(leases.c.pipeline == pipeline)).one_or_none()
        if other is not None and is_gone(other.process or "") and take(leases.c.nonce == other.nonce):
            _log.warning("pipeline %s: %s held the lease and is dead", pipeline, other.holder)
            return expires
    if other is None:
        raise LedgerError(f"the ledger knows no pipeline {pipeline}; register it first", pipeline=pipeline)
    raise LeaseHeld(
        f"pipeline {pipeline}: {other.holder} decides until {other.expires} at the latest; try again then",
        pipeline=pipeline,
        holder=other.holder,
        expires=other.expires,
    )


def _release(engine: Engine, leases: Table, pipeline: str, nonce: str) -> None:
    try:
        with transaction(engine, write=True) as connection:
            connection.execute(
                update(leases)
                .where(leases.c.pipeline == pipeline, leases.c.nonce == nonce)
                .values(holder=None, nonce=None, expires=None, process=None)
            )
    except LedgerUnavailable as error:
        # What was decided stands; the lease ends by itself.
        _log.warning("pipeline %s: the lease could not be released and expires by itself: %s", pipeline, error)
