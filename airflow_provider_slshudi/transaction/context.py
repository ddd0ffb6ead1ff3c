"""The pipeline, ledger, launcher, service and leases that every step works with."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import (
    ClockAhead,
    ConfigError,
    Fenced,
    IllegalTransition,
    LedgerUnavailable,
    PipelineConflict,
    TimelineUnreadable,
)
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.handover.batch_files import BatchOrder
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.lease import Lease
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.sls.faults import TASK, Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.processes import clock

COMMIT_SECONDS = 180.0
COMMIT_SECONDS_PER_FILE = 0.2
"""Seconds that each file adds to a driver's time: three times those measured on two very busy cores."""
LONGEST_COMMIT_SECONDS = 3600.0
LEASE_SECONDS = COMMIT_SECONDS + 15
LEASE_WAIT_SECONDS = 60.0
LOOK_LEASE_SECONDS = 45.0
GIVEN_UP = "given up"
"""The event of a transaction whose task failed; a process that beats for it later works on it all the same."""
PULSE_SECONDS = 10.0
REST_SECONDS = 600.0
"""How long a step that ended well tries to tell a ledger that does not answer; the next step could do nothing."""
MOST_AHEAD = timedelta(hours=2)
"""How far a machine's clock may be ahead of the ledger's. Its times hold up others for as long, but a database's clock
that is a little wrong must stop nothing."""
_AGAIN_SECONDS = 1.0
_beating: ContextVar[tuple[str, int] | None] = ContextVar("beating", default=None)
"""The transaction, and its token, for which a block of this thread beats already."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Who is acting: a DAG run or a command.

    Attributes:
        airflow: the name of the Airflow that made the run; empty if unknown. Two Airflows with one ledger give the runs
            of a schedule the same ids.
        patience: how long it waits for the log service.
    """

    dag_id: str
    run_id: str
    airflow: str = ""
    patience: Patience = field(default=TASK, compare=False)

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}"


def _no_catalog(connection: str) -> dict[str, str]:
    raise ConfigError(f"there are no connections here, so none {connection!r} of an Iceberg catalog", source=connection)


@dataclass(frozen=True)
class Work:
    """A pipeline and all that its steps touch; `connect` makes the source's client when needed.

    `iceberg_catalog` gives pyiceberg's properties of the catalog that a connection leads to. `drains`: its batches
    follow one another, as long as logs are left.
    """

    pipeline: Pipeline
    ledger: Ledger
    launcher: Launcher
    connect: Callable[[], LogService]
    run: Run
    iceberg_catalog: Callable[[str], Mapping[str, str]] = _no_catalog
    drains: bool = False

    @cached_property
    def storage(self) -> Storage:
        """The table's file system."""
        return Storage(self.pipeline.table.path)

    def timeline(self) -> Timeline:
        """The table's timeline.

        Raises:
            TimelineUnreadable: it could not be read; or there is no table, and the ledger knows that there was one: it
                is not mounted, say, or this machine's settings lead to another store.
            PipelineConflict: there is no table, and the ledger knows another path of it: the file was edited.
        """
        loaded = Timeline.load(self.storage)
        name = self.pipeline.name
        if not any(loaded) and not self.storage.exists(PROPERTIES) and self.ledger.has_written(name):
            self.require_unedited()
            raise TimelineUnreadable(
                f"{self.storage.uri}: there is no table here ({PROPERTIES} is missing), but the ledger knows that "
                f"pipeline {name} wrote one, so its commits cannot be checked. See whether it is mounted, and whether "
                "this machine's settings lead to the right store. If it was really deleted, `slshudi ledger rebuild "
                f"{name} --table-is-gone` begins anew",
                table=self.storage.uri,
            )
        return loaded

    def require_unedited(self) -> None:
        """Refuses a file whose source or table is not the one of which the ledger knows that the pipeline wrote it.

        Raises:
            PipelineConflict: the file was edited, or the name belongs to another pipeline.
        """
        pipeline = self.pipeline
        if self.ledger.has_written(pipeline.name):
            self.ledger.require(pipeline.name, pipeline.source.identity, pipeline.table.path)

    def require_owner(self) -> None:
        """Refuses another user's table. Call it before anything is written, also to the ledger.

        Raises:
            TableDenied: the table, or one beside it, is another user's, who could not change what this one writes.
        """
        for path in self.pipeline.table_paths:
            Storage(path).require_owner()

    def require_clock(self) -> None:
        """Refuses a clock that is far ahead. Call it before drivers put this machine's times on timelines.

        Raises:
            ClockAhead: this machine's clock is far ahead of the ledger's.
        """
        ledger, now = self.ledger.now(), datetime.now(timezone.utc)
        if now - ledger > MOST_AHEAD:
            raise ClockAhead(
                f"{self.storage.uri}: this machine's clock says {now:%Y-%m-%d %H:%M:%S} UTC, the ledger's "
                f"{ledger:%Y-%m-%d %H:%M:%S} UTC. Nothing was written: times on a timeline increase, so every other "
                "machine would have to wait for this one's. Correct the wrong clock",
                table=self.storage.uri,
                now=now,
                ledger=ledger,
            )

    def planned(self, batch: BatchOrder) -> dict[str, Any]:
        """The pipeline as it was when the batch was planned, but for Hudi's options: newer versions refuse some."""
        return {**batch.pipeline, "table": {**batch.pipeline["table"], "options": self.pipeline.table.options}}

    def order(self, **fields: Any) -> JobOrder:
        """A job's order for this pipeline."""
        return JobOrder.of(self.pipeline, **fields)

    def held(self, id_: str, token: int) -> Transaction:
        """The transaction, if `token` is still its token and this pipeline is the one that it was planned for.

        Raises:
            Fenced: it changed hands.
            PipelineConflict: the pipeline's name, source or table has changed since.
        """
        transaction = self.ledger.get(id_)
        self._require_same(transaction)
        if transaction.token != token:
            raise Fenced(
                f"transaction {id_} changed hands: its token is {transaction.token}, this run's is {token}. "
                "Another run decides it; nothing is to be done here",
                pipeline=transaction.pipeline,
                transaction=id_,
                token=token,
            )
        return transaction

    def _require_same(self, transaction: Transaction) -> None:
        pipeline = self.pipeline
        if transaction.pipeline != pipeline.name:
            raise PipelineConflict(
                f"transaction {transaction.id} is of pipeline {transaction.pipeline}, not of {pipeline.name}: the name "
                "in the pipeline's file was changed; put it back until the transaction is decided",
                pipeline=pipeline.name,
                other=transaction.pipeline,
            )
        self.ledger.require(pipeline.name, pipeline.source.identity, pipeline.table.path)

    @contextmanager
    def lease(self, wait: float | None = None) -> Iterator[Lease]:
        """The right to decide for the pipeline, renewed while the block runs.

        It outlasts a commit's driver, so the next run that gets it finds no driver alive. Waits for it,
        LEASE_WAIT_SECONDS unless `wait` says how long.

        Raises:
            LeaseHeld: another run has it and keeps it.
            TableDenied, ClockAhead: as `require_owner` and `require_clock`.
        """
        self.require_owner()
        self.require_clock()
        wait = LEASE_WAIT_SECONDS if wait is None else wait
        with (
            self.ledger.lease(self.pipeline.name, str(self.run), LEASE_SECONDS, wait) as lease,
            _pulse(lease.renew),
        ):
            yield lease

    @contextmanager
    def look_lease(self) -> Iterator[Lease]:
        """The right to keep what a look at the service saw. It does not ask the table, which may never answer.

        It is not renewed, so that a look that is given up holds no run up for long: renew it before anything is kept.

        Raises:
            LeaseHeld: another run has it.
            ClockAhead: as `require_clock`.
        """
        self.require_clock()
        with self.ledger.lease(self.pipeline.name, str(self.run), LOOK_LEASE_SECONDS, 0) as lease:
            yield lease

    @contextmanager
    def service_lease(self) -> Iterator[Lease]:
        """The right to rewrite files, renewed while the block runs; decisions about them need `lease` as well.

        Raises:
            LeaseHeld: another run rewrites files of this table.
        """
        with (
            self.ledger.service_lease(self.pipeline.name, str(self.run), LEASE_SECONDS) as lease,
            _pulse(lease.renew),
        ):
            yield lease

    def change(self, lease: Lease, verb: Verb, order: JobOrder, files: int = 0) -> float | None:
        """Runs a driver that changes the table's timeline; the lease's holder starts all such drivers here.

        The number of `files` that the driver tells the table of sets its time. That time begins before the lease's and
        ends first, also where this process or the driver is stopped. The claim guards where time does not: a driver
        that is still alive when the next one starts changes nothing. Returns as `Launcher.run`.

        Args:
            lease: the pipeline's.
            verb: what the driver does.
            order: its order, without time and claim.
            files: see above.

        Raises:
            LeaseHeld: another run has the lease by now.
            ClockAhead: as `require_clock`.
            JobFailed: the driver did not end well.
        """
        self.require_clock()
        seconds = commit_seconds(files)
        until = clock() + seconds
        lease.extend(seconds + LEASE_SECONDS - COMMIT_SECONDS)
        claim = fencing.claim(self.storage, by=str(self.run), to=verb.value, instant=order.instant)
        return self.launcher.run(verb, replace(order, until=until, claim=claim), {})

    @contextmanager
    def heartbeat(self, id_: str, token: int) -> Iterator[None]:
        """Says, while the block runs, that this process works on the transaction, and then that it does not any more.

        Within a block for the same transaction, that one goes on saying so.

        Raises:
            TableDenied, ClockAhead: as `require_owner` and `require_clock`, before it writes.
        """
        self.require_owner()
        self.require_clock()
        self.ledger.heartbeat(id_, token)
        if _beating.get() == (id_, token):
            yield
            return
        beating = _beating.set((id_, token))
        try:
            with _pulse(lambda: self.ledger.heartbeat(id_, token)):
                yield
        except BaseException:
            self.release(id_, token, 0)
            raise
        finally:
            _beating.reset(beating)
        self.release(id_, token)

    def release(self, id_: str, token: int, seconds: float | None = None) -> None:
        """Says that this process has stopped working on the transaction.

        Otherwise others would take the transaction for one whose process died in the middle of its work. So this keeps
        trying for `seconds`, REST_SECONDS if not given, where the ledger does not answer.
        """
        until = clock() + (REST_SECONDS if seconds is None else seconds)
        while True:
            try:
                self.ledger.release(id_, token)
                return
            except LedgerUnavailable as error:
                if clock() >= until:
                    _log.warning("transaction %s: the ledger was not told that this step is over: %s", id_, error)
                    return
                time.sleep(_AGAIN_SECONDS)


def run_of(ledger: Ledger, transaction: Transaction) -> Run:
    """The run that planned a transaction."""
    return Run(transaction.dag_id, transaction.run_id, ledger.airflow_of(transaction.id))


def is_of(ledger: Ledger, transaction: Transaction, run: Run) -> bool:
    """Whether a transaction is of this very run: another Airflow's may have the same ids, but not the same name."""
    if (transaction.dag_id, transaction.run_id) != (run.dag_id, run.run_id):
        return False
    return ledger.airflow_of(transaction.id) == run.airflow


def commit_seconds(files: int) -> float:
    """Seconds that a driver may take which tells the table of so many files."""
    return min(COMMIT_SECONDS + files * COMMIT_SECONDS_PER_FILE, LONGEST_COMMIT_SECONDS)


@contextmanager
def _pulse(beat: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PULSE_SECONDS):
            try:
                beat()
            except IllegalTransition:  # the step's own change of state came first
                return
            except Fenced as error:
                # The step's next change finds out that it may not go on.
                _log.warning("%s", error)
                return
            except Exception as error:
                # The ledger's, or the machine's, which may have no open files left: a step that lives has to beat on.
                _log.warning("no beat: %s", error)

    thread = threading.Thread(target=run, name="slshudi-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        with suppress(RuntimeError):
            thread.join()


REQUESTS = "requests"
"""Item of the event PLANNED: how many requests the plan sent to the log service."""
CPU = "cpu"
"""Item of the events OPEN and COMMITTED: the CPU seconds of the driver that opened or committed."""


def counting(work: Work) -> tuple[Work, Callable[[], int]]:
    """The same work, and a function that tells how many requests were sent through it so far."""
    services: list[LogService] = []

    def connect() -> LogService:
        services.append(work.connect())
        return services[-1]

    return replace(work, connect=connect), lambda: sum(service.requests for service in services)


def of_driver(seconds: float | None) -> Mapping[str, Any]:
    """A driver's CPU seconds as an item of an event; nothing where they are not known."""
    return {} if seconds is None else {CPU: round(seconds, 3)}
