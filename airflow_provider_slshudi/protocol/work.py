"""What every step works with."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.exceptions import Fenced, LedgerError
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.job.launch import Launcher
from airflow_provider_slshudi.job.orders import JobOrder
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.sls.service import LogService

COMMIT_SECONDS = 180.0
LEASE_SECONDS = COMMIT_SECONDS + 15
LEASE_WAIT_SECONDS = 60.0
PULSE_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """The DAG run that works, or whoever else does."""

    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}"


@dataclass(frozen=True)
class Work:
    """A pipeline and the ways to everything that its steps touch; `connect` makes the source's client when needed."""

    pipeline: Pipeline
    ledger: Ledger
    launcher: Launcher
    connect: Callable[[], LogService]
    run: Run

    @cached_property
    def storage(self) -> Storage:
        """The table's file system."""
        return Storage(self.pipeline.table.path)

    def order(self, **fields: Any) -> JobOrder:
        """A job's order for this pipeline."""
        return JobOrder(self.pipeline.model_dump(mode="json"), **fields)

    def held(self, id_: str, token: int) -> Transaction:
        """The transaction, if `token` is still its token.

        Raises:
            Fenced: it changed hands.
        """
        transaction = self.ledger.get(id_)
        if transaction.token != token:
            raise Fenced(
                f"transaction {id_} changed hands: its token is {transaction.token}, this run's is {token}. "
                "Somebody else decides it; nothing is to be done here",
                pipeline=transaction.pipeline,
                transaction=id_,
                token=token,
            )
        return transaction

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """The right to decide for the pipeline, renewed while the block runs.

        It outlasts a commit's driver, so that whoever gets it next finds none alive.

        Raises:
            LeaseHeld: somebody else has it and keeps it.
        """
        with (
            self.ledger.lease(self.pipeline.name, str(self.run), LEASE_SECONDS, LEASE_WAIT_SECONDS) as lease,
            _pulse(lease.renew),
        ):
            yield lease

    @contextmanager
    def service_lease(self) -> Iterator[Lease]:
        """The right to rewrite files, renewed while the block runs; decisions about them need `lease` as well.

        Raises:
            LeaseHeld: somebody else rewrites files of this table.
        """
        with (
            self.ledger.service_lease(self.pipeline.name, str(self.run), LEASE_SECONDS) as lease,
            _pulse(lease.renew),
        ):
            yield lease

    @contextmanager
    def heartbeat(self, id_: str, token: int) -> Iterator[None]:
        """Says, while the block runs, that somebody works on the transaction."""
        self.ledger.heartbeat(id_, token)
        with _pulse(lambda: self.ledger.heartbeat(id_, token)):
            yield


def driver_time(lease: Lease) -> float:
    """When a driver that changes the table has to be over, on `time.monotonic`'s clock; renews the lease.

    The driver's time begins before the lease's, so it is over first, whatever stops this process or the driver.
    """
    until = time.monotonic() + COMMIT_SECONDS
    lease.renew()
    return until


@contextmanager
def _pulse(beat: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PULSE_SECONDS):
            try:
                beat()
            except LedgerError as error:
                # What the beat was for ends by itself; the step's next change finds out whether it may go on.
                _log.warning("%s", error)
                if isinstance(error, Fenced):
                    return

    thread = threading.Thread(target=run, name="slshudi-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        with suppress(RuntimeError):
            thread.join()
