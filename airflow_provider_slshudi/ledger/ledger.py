"""The ledger of all pipelines: the one entry to the metastore."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine

from airflow_provider_slshudi.ledger import (
    audit_log,
    consumer_rows,
    lease,
    models,
    new_keys,
    overview,
    partition_rows,
    pipeline_rows,
    reads,
    registration,
    transactions,
)
from airflow_provider_slshudi.ledger import backlog_samples as samples
from airflow_provider_slshudi.ledger.coverage import audit
from airflow_provider_slshudi.ledger.engine import now, transaction
from airflow_provider_slshudi.ledger.lease import Holding, Lease
from airflow_provider_slshudi.ledger.prune import old, prune
from airflow_provider_slshudi.ledger.records import (
    Audit,
    LedgerPipeline,
    Pruned,
    Trouble,
    UnnamedKey,
)
from airflow_provider_slshudi.ledger.restore import rebuild

P = ParamSpec("P")
R = TypeVar("R")
_NO_COLUMNS: Mapping[str, str] = {}


def _reading(question: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[Ledger, P], R]:
    """A method that asks the question in a reading SQL transaction."""

    @wraps(question)
    def asked(ledger: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with ledger._read() as connection:
            return question(connection, *args, **kwargs)

    return asked


def _writing(change: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[Ledger, P], R]:
    """A method that makes the change in a writing SQL transaction."""

    @wraps(change)
    def changed(ledger: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with ledger._write() as connection:
            return change(connection, *args, **kwargs)

    return changed


class Ledger:
    """Records and reads decisions, on an engine of `open_engine` whose database is migrated.

    Every method is one SQL transaction and raises `LedgerUnavailable` where the database does not answer. Whether a
    change took effect is then unknown, and the caller may repeat it. A changing method that names a transaction raises
    `LedgerError` for an unknown id, `Fenced` for an old token, and `IllegalTransition` for a state that it does not
    start from. Repeated with the same token and values, it returns the transaction as it is.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(self, pipeline: str, source: str, table: str, dag_id: str = "") -> None:
        """Registers the pipeline; may be repeated. A pipeline that has written nothing yet may change.

        Args:
            pipeline: its name.
            source: its source's identity.
            table: its table's base path.
            dag_id: the DAG that works on it, which owns the pipeline's page from now on; empty for none.

        Raises:
            PipelineConflict: the table belongs to another pipeline, or the name to another source or table.
        """
        with self._write() as connection:
            registration.register(connection, LedgerPipeline(pipeline, source, table.rstrip("/")))
            pipeline_rows.keep(connection, pipeline, dag_id)

    def forget_values(self, pipeline: str) -> None:
        """Deletes those values of the pipeline's logs that were kept for long enough."""
        with self._read() as connection:
            expired = transactions.any_expired(connection, pipeline)
        if expired:
            with self._write() as connection:
                transactions.forget(connection, pipeline)

    writers = _reading(pipeline_rows.writers)

    def require(self, pipeline: str, source: str, table: str) -> None:
        """Checks that a registered pipeline still has this source and table; raises as `register`, or LedgerError."""
        with self._read() as connection:
            registration.require(connection, LedgerPipeline(pipeline, source, table.rstrip("/")))

    has_written = _reading(reads.has_written)

    def lease(self, pipeline: str, holder: str, seconds: float = 60, wait: float = 0) -> AbstractContextManager[Lease]:
        """The right to decide for the pipeline within a `with` block, for `seconds`; one holder at a time.

        Times are by the database server's clock, on SQLite by this machine's. An expired lease is taken over; its
        former holder finds out by `Lease.renew`. Waits up to `wait` seconds for it.

        Args:
            pipeline: its name.
            holder: the run, as text.
            seconds: how long it lasts unless it is renewed.
            wait: seconds to wait for another holder.

        Raises:
            LeaseHeld: another run has it.
        """
        return lease.hold(self._engine, models.leases, pipeline, holder, seconds, wait)

    def service_lease(
        self, pipeline: str, holder: str, seconds: float = 60, wait: float = 0
    ) -> AbstractContextManager[Lease]:
        """The right to rewrite files of the pipeline's table, but not to decide; otherwise as `lease`.

        Args:
            pipeline: its name.
            holder: the run, as text.
            seconds: how long it lasts unless it is renewed.
            wait: seconds to wait for another holder.
        """
        return lease.hold(self._engine, models.service_leases, pipeline, holder, seconds, wait)

    def lease_is_free(self, pipeline: str) -> bool:
        """Whether no run holds the lease, as far as this process can tell; one may take it the next moment."""
        with self._read() as connection:
            return lease.is_free(connection, models.leases, pipeline)

    def holdings(self, pipeline: str) -> list[Holding]:
        """Who has the pipeline's leases, and what is known of them here."""
        with self._read() as connection:
            holdings = (lease.holding(connection, table, pipeline) for table in (models.leases, models.service_leases))
            return [item for item in holdings if item is not None]

    def break_lease(self, holding: Holding) -> bool:
        """Ends a holding; False where the lease has changed since. Its holder finds out by `Lease.renew`."""
        with self._write() as connection:
            return lease.end(connection, holding)

    begin = _writing(transactions.begin)
    opened = _writing(transactions.opened)
    prepared = _writing(transactions.prepared)
    committed = _writing(transactions.committed)
    aborted = _writing(transactions.aborted)
    completed_once = _writing(transactions.completed_once)
    heartbeat = _writing(transactions.heartbeat)
    release = _writing(transactions.rest)
    take_over = _writing(transactions.take_over)

    def note(self, id: str, what: str, detail: str | Mapping[str, Any]) -> None:
        """Adds an event to a transaction's history; state changes and take-overs add theirs."""
        with self._write() as connection:
            reads.get(connection, id)
            transactions.note(connection, id, what, detail)

    reserve_act = _writing(transactions.reserve_act)
    save_shards = _writing(pipeline_rows.save_shards)
    save_backlog_sample = _writing(samples.save)
    backlog_samples = _reading(samples.last)
    backlog_since = _reading(samples.since)
    retention_seen = _reading(samples.last_kept)
    unread_since = _reading(samples.unread_since)
    save_timeline = _writing(samples.save_timeline)
    last_timeline = _reading(samples.timeline)

    def note_trouble(
        self,
        pipeline: str,
        dag_id: str,
        run_id: str,
        step: str,
        error: str,
        message: str,
        waits: bool,
        transaction: str | None = None,
    ) -> None:
        """Notes that a step of a DAG failed, or waits; the same error again counts up.

        Args:
            pipeline: its name.
            dag_id: of the run that failed.
            run_id: of that run.
            step: the step's name.
            error: the error's class.
            message: its text.
            waits: whether the step tries again by itself.
            transaction: the id that it is about.
        """
        row = {"pipeline": pipeline, "dag_id": dag_id, "run_id": run_id, "step": step, "error": error}
        with self._write() as connection:
            samples.note_trouble(connection, {**row, "message": message, "waits": waits, "transaction_id": transaction})
            if transaction is not None:
                transactions.failed(connection, transaction, step, error, message)

    note_failure = _writing(transactions.failed)

    def clear_troubles(self, pipeline: str, dag_id: str, step: str) -> None:
        """Ends the trouble of a step that succeeded, and troubles of transactions that are committed by now."""
        with self._read() as connection:
            ended = samples.over(connection, pipeline, dag_id, step)
        # Mostly there is none, and nothing is written.
        if ended:
            with self._write() as connection:
                samples.end(connection, ended)

    def dismiss(self, pipeline: str) -> list[Trouble]:
        """Forgets all troubles of a pipeline, and returns them."""
        with self._write() as connection:
            troubles = samples.troubles(connection, pipeline)
            samples.end(connection, troubles)
            return troubles

    troubles = _reading(samples.troubles)

    def save_new_keys(
        self,
        pipeline: str,
        transaction: str,
        looked: int,
        logs: Mapping[str, int],
        examples: Mapping[str, Sequence[str]],
        named: Container[str],
        values_kept: timedelta | None = None,
        kept_in: Mapping[str, str] = _NO_COLUMNS,
    ) -> list[UnnamedKey]:
        """Keeps what a batch saw of keys that no column names; returns those that are kept for the first time.

        A pipeline has 1,000 of them at most. For a new one beyond that, one that no batch has seen for 30 days is
        forgotten; where there is none, the new one is not kept, nor returned.

        Args:
            pipeline, transaction: the batch, whose history tells of new keys.
            looked: how many of its logs were looked at.
            logs: by key, how many of these have it; of new keys the first ones are kept.
            examples: by key, a few values.
            named: the keys that columns keep by now, which are forgotten.
            values_kept: for how long the examples are kept; None for as long as their key.
            kept_in: by key, the column that keeps it; the others are dropped.
        """
        with self._read() as connection:
            has_stored_keys = new_keys.has_any(connection, pipeline)
        # Mostly there is none, and nothing is written.
        if not has_stored_keys and all(key in named for key in logs):
            return []
        with self._write() as connection:
            return new_keys.save(connection, pipeline, transaction, looked, logs, examples, named, values_kept, kept_in)

    unnamed_keys = _reading(new_keys.seen)

    @contextmanager
    def audited(
        self, pipeline: str, act: str, who: str, reason: str, run: str, transaction: str | None = None
    ) -> Iterator[list[str]]:
        """Keeps what a person has done in the block, and why; the result is what the block adds to the list.

        Args:
            pipeline: its name.
            act: an `Act`'s name.
            who: the person.
            reason: theirs.
            run: the DAG run or command, as text.
            transaction: the id that it is about.
        """
        row = {"pipeline": pipeline, "act": act, "who": who, "reason": reason, "run": run}
        with self._write() as connection:
            id_ = audit_log.begin(connection, {**row, "transaction_id": transaction})
        result: list[str] = []
        try:
            yield result
        except Exception as error:
            result.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            with self._write() as connection:
                audit_log.end(connection, id_, "; ".join(result))

    def ask(self, pipeline: str, act: str, who: str, reason: str, run: str, about: Mapping[str, Any]) -> None:
        """Keeps that a person began something that goes on, once for each act and run; `answer` ends it.

        Args:
            pipeline: its name.
            act: an `Act`'s name.
            who: the person.
            reason: theirs.
            run: the DAG run, as text.
            about: what it is about, for those who follow it.
        """
        row = {"pipeline": pipeline, "act": act, "who": who, "reason": reason, "run": run, "about": about}
        with self._write() as connection:
            audit_log.ask(connection, row)

    answer = _writing(audit_log.answer)
    audit_entries = _reading(audit_log.last)
    standings = _reading(overview.standings)
    rebuild = _writing(rebuild)

    def prune(self, pipeline: str, before: datetime, after: str = "") -> Pruned:
        """Makes some transactions small that ended before then, the oldest first; call it until `last` is None.

        Their ranges and events are packed, and read as before. The newest 1,000 transactions of a pipeline stay as
        they are. Others wait for the ledger while one call runs: pause in between.

        Args:
            after: the `last` of the call before.
        """
        with self._read() as connection:
            reads.require_known(connection, pipeline)
            chosen = old(connection, pipeline, before, after)
        if not chosen:
            return Pruned(0, 0, 0, None)
        with self._write() as connection:
            return prune(connection, pipeline, before, chosen)

    accept = _writing(pipeline_rows.accept)
    accepted = _reading(reads.accepted)
    committed_instants = _reading(reads.committed_instants)
    now = _reading(now)
    find = _reading(reads.find)
    get = _reading(reads.get)
    live = _reading(reads.live)
    last = _reading(reads.last)
    history = _reading(reads.history)
    by_instant = _reading(reads.by_instant)
    airflow_of = _reading(reads.airflow_of)
    of_run = _reading(reads.of_run)
    latest_committed = _reading(reads.latest_committed)
    last_shard = _reading(reads.last_shard)
    ranges = _reading(reads.ranges)
    ranges_of = _reading(reads.ranges_of)
    totals = _reading(reads.totals)
    coverage = _reading(reads.coverage)
    reserved = _reading(reads.reserved)
    pipelines = _reading(reads.pipelines)
    shards = _reading(reads.shards)
    density = _reading(reads.density)
    recorded = _reading(reads.recorded)
    filters = _reading(reads.filters)

    def audit(self, pipeline: str) -> Audit:
        """Compares the coverage with the ranges of committed transactions; reads the whole history."""
        with self._read() as connection:
            comparison = audit(connection, pipeline)
        if comparison.ok:
            return comparison
        # A commit between the two reads looks like a fault; none happens under this lock.
        with self._write() as connection:
            reads.lock_pipeline(connection, pipeline)
            return audit(connection, pipeline)

    save_look = _writing(partition_rows.save_look)
    lose = _writing(partition_rows.lose)
    fold = _writing(partition_rows.fold)
    announced = _reading(partition_rows.announced)
    announce = _writing(partition_rows.announce)
    partitions = _reading(partition_rows.partitions)
    completions = _reading(partition_rows.completions)
    completions_of = _reading(partition_rows.completions_of)
    newest_begin = _reading(partition_rows.newest_begin)
    proof = _reading(partition_rows.proof)
    progress = _reading(partition_rows.progress)
    began = _reading(partition_rows.began)
    start = _reading(partition_rows.start)
    consumers = _reading(consumer_rows.consumers)
    lags = _reading(consumer_rows.lags)
    consumer = _reading(consumer_rows.consumer)
    newest = _reading(consumer_rows.newest)
    commits = _reading(consumer_rows.commits)
    subscribe = _writing(consumer_rows.subscribe)
    take = _writing(consumer_rows.take)
    confirm = _writing(consumer_rows.confirm)
    move = _writing(consumer_rows.move)
    forget = _writing(consumer_rows.forget)
    holds = _reading(consumer_rows.holds)
    save_cleaned = _writing(consumer_rows.save_cleaned)
    gaps = _reading(reads.gaps)
    replays = _reading(reads.replays)
    events = _reading(reads.events)

    def _read(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, write=False)

    def _write(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, write=True)
