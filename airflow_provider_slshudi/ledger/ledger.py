"""The ledger of all pipelines: the one entry to the metastore."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from airflow_provider_slshudi.ledger import (
    audit_log,
    backlog_samples,
    lease,
    models,
    new_keys,
    overview,
    pipeline_rows,
    reads,
    registration,
    transactions,
)
from airflow_provider_slshudi.ledger.coverage import audit
from airflow_provider_slshudi.ledger.engine import now, transaction
from airflow_provider_slshudi.ledger.lease import Holding, Lease
from airflow_provider_slshudi.ledger.prune import old, prune
from airflow_provider_slshudi.ledger.records import (
    Audit,
    CommittedBatch,
    Deed,
    Duties,
    Event,
    Kind,
    LedgerPipeline,
    LedgerShard,
    Past,
    Pruned,
    RangeTotals,
    RecordedRange,
    SeenTimeline,
    Sighting,
    Standing,
    State,
    Transaction,
    Trouble,
    UnnamedKey,
)
from airflow_provider_slshudi.ledger.restore import rebuild
from airflow_provider_slshudi.planning.ranges import Density, Range

_NOTHING: Mapping[str, Any] = {}


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

    def writers(self) -> dict[str, frozenset[str]]:
        """By pipeline, the ids of the DAGs that have worked on it as their own."""
        with self._read() as connection:
            return pipeline_rows.writers(connection)

    def require(self, pipeline: str, source: str, table: str) -> None:
        """Checks that a registered pipeline still has this source and table; raises as `register`, or LedgerError."""
        with self._read() as connection:
            registration.require(connection, LedgerPipeline(pipeline, source, table.rstrip("/")))

    def has_written(self, pipeline: str) -> bool:
        """Whether a transaction of the pipeline is committed, or has an instant on the table and is not aborted."""
        with self._read() as connection:
            return reads.has_written(connection, pipeline)

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

    def begin(
        self,
        pipeline: str,
        kind: Kind,
        ranges: Sequence[Range],
        dag_id: str,
        run_id: str,
        more: Mapping[str, Any] = _NOTHING,
        airflow: str = "",
    ) -> Transaction:
        """A new transaction, PLANNED with token 1. Ids sort by time.

        This process works on it, until it says otherwise by `rest`.

        Args:
            pipeline: the pipeline's name.
            kind: what the transaction reads.
            ranges: what it reserves; a replay has none.
            dag_id: the DAG of its run.
            run_id: its run.
            more: here and below, for people alone: further items of the change's event.
            airflow: the name of the Airflow that made the run, empty if unknown.

        Raises:
            RangeConflict: a range overlaps coverage, a live transaction's ranges, or another of `ranges`.
            IllegalTransition: a transaction of this DAG run is still live.
        """
        with self._write() as connection:
            return transactions.begin(connection, pipeline, kind, ranges, dag_id, run_id, more, airflow)

    def opened(
        self, id: str, token: int, instant: str, more: Mapping[str, Any] = _NOTHING, order_digest: str | None = None
    ) -> Transaction:
        """PLANNED -> OPEN: the transaction writes under `instant`, which no other transaction of its pipeline has.

        Args:
            id: the transaction.
            token: its fencing token.
            instant: Hudi's.
            more: further items of the change's event.
            order_digest: the SHA-256 of the order that the append has to find.
        """
        with self._write() as connection:
            return transactions.opened(connection, id, token, instant, more, order_digest)

    def prepared(
        self,
        id: str,
        token: int,
        manifest: Mapping[str, Any],
        totals: Sequence[RangeTotals],
        gaps: Sequence[Range] = (),
        released: Sequence[Range] = (),
        values_kept: timedelta | None = None,
    ) -> Transaction:
        """OPEN -> PREPARED: the data is written.

        Args:
            id: the transaction.
            token: its fencing token.
            manifest: JSON.
            totals: each planned range but gaps exactly once, or each part of it that is neither of the following.
            gaps: parts of planned ranges that are gaps now.
            released: parts of planned ranges that are not the transaction's any more.
            values_kept: for how long the manifest's examples may have values of logs; None where they have none.

        Raises:
            LedgerError: the manifest is no JSON, or the totals are not those of the ranges.
        """
        with self._write() as connection:
            return transactions.prepared(connection, id, token, manifest, totals, gaps, released, values_kept)

    def committed(self, id: str, token: int, completed: str, more: Mapping[str, Any] = _NOTHING) -> Transaction:
        """PREPARED -> COMMITTED at Hudi's completion time: the ranges, gaps too, turn from reserved to covered.

        Args:
            id: the transaction's.
            token: its fencing token.
            completed: Hudi's completion time of its instant.
            more: further items of the event.
        """
        with self._write() as connection:
            return transactions.committed(connection, id, token, completed, more)

    def aborted(self, id: str, token: int, reason: str) -> Transaction:
        """Any live state -> ABORTED: the ranges are free again. The first reason stays."""
        with self._write() as connection:
            return transactions.aborted(connection, id, token, reason)

    def completed_once(self, id: str, completed: str | None, detail: Mapping[str, Any]) -> None:
        """Notes that one of an instant's completions stays; sets `completed`, if given, on a COMMITTED transaction."""
        with self._write() as connection:
            transactions.completed_once(connection, id, completed, detail)

    def heartbeat(self, id: str, token: int) -> None:
        """Says that this process works on a live transaction."""
        with self._write() as connection:
            transactions.heartbeat(connection, id, token)

    def rest(self, id: str, token: int) -> None:
        """Says that this process has stopped working on a transaction; does nothing where another one works on it."""
        with self._write() as connection:
            transactions.rest(connection, id, token)

    def take_over(self, id: str, why: str = "") -> Transaction:
        """Gives a live transaction a new token, which fences off each run that works on it; its history says why.

        Heartbeat and process stay: as long as the transaction is live, they say whose work is to be decided.
        """
        with self._write() as connection:
            return transactions.take_over(connection, id, why)

    def note(self, id: str, what: str, detail: str | Mapping[str, Any]) -> None:
        """Adds an event to a transaction's history; state changes and take-overs add theirs."""
        with self._write() as connection:
            reads.get(connection, id)
            transactions.note(connection, id, what, detail)

    def claim(self, pipeline: str, id: str, what: str, by: str, longest: timedelta, instead: str = "") -> str:
        """Says who does `what` for a transaction, which one alone should do.

        It is `by`, from now on, if no other run claimed it for `longest`, or `instead` did last; else the one that did.

        Args:
            pipeline: its name.
            id: the transaction's.
            what: the act that is claimed.
            by: the run, as text.
            longest: after it another run may claim the act.
            instead: a run whose claim may be taken at once.
        """
        with self._write() as connection:
            return transactions.claim(connection, pipeline, id, what, by, longest, instead)

    def save_shards(self, pipeline: str, shards: Sequence[LedgerShard]) -> None:
        """Adds new shards and updates known ones; removes none. A stored `first` changes only while the shard is LATE.

        `status` and `end` belong together: the status, seen before the end, says whether the end is final.
        """
        with self._write() as connection:
            pipeline_rows.save_shards(connection, pipeline, shards)

    def saw(self, pipeline: str, sighting: Sighting, since: Mapping[int, int | None]) -> None:
        """Keeps a sighting for 48 hours; `since` is each saved shard's part of `Sighting.unread_since`."""
        with self._write() as connection:
            backlog_samples.save(connection, pipeline, sighting, since)

    def sightings(self, pipeline: str, limit: int) -> list[Sighting]:
        """The newest sightings, newest first."""
        with self._read() as connection:
            return backlog_samples.last(connection, pipeline, limit)

    def retention_seen(self, pipeline: str) -> Sighting | None:
        """The newest sighting for which the service said how long it keeps logs."""
        with self._read() as connection:
            return backlog_samples.last_kept(connection, pipeline)

    def unread_since(self, pipeline: str) -> dict[int, int]:
        """For saved shards with unread log groups: the first was received at this time (unix seconds) or later."""
        with self._read() as connection:
            return backlog_samples.unread_since(connection, pipeline)

    def saw_timeline(self, pipeline: str, seen: SeenTimeline) -> None:
        """Keeps what a run saw of the table's timeline, in the place of what was seen before."""
        with self._write() as connection:
            backlog_samples.save_timeline(connection, pipeline, seen)

    def seen_timeline(self, pipeline: str) -> SeenTimeline | None:
        """What a run last saw of the table's timeline; None if none has kept it."""
        with self._read() as connection:
            return backlog_samples.timeline(connection, pipeline)

    def trouble(
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
            backlog_samples.trouble(
                connection, {**row, "message": message, "waits": waits, "transaction_id": transaction}
            )

    def well(self, pipeline: str, dag_id: str, step: str) -> None:
        """Ends the trouble of a step that succeeded, and troubles of transactions that are committed by now."""
        with self._read() as connection:
            ended = backlog_samples.over(connection, pipeline, dag_id, step)
        # Mostly there is none, and nothing is written.
        if ended:
            with self._write() as connection:
                backlog_samples.end(connection, ended)

    def dismiss(self, pipeline: str) -> list[Trouble]:
        """Forgets all troubles of a pipeline, and returns them."""
        with self._write() as connection:
            troubles = backlog_samples.troubles(connection, pipeline)
            backlog_samples.end(connection, troubles)
            return troubles

    def troubles(self, pipeline: str | None = None) -> list[Trouble]:
        """Steps that failed, or wait, and have not succeeded since; of a pipeline, or of all."""
        with self._read() as connection:
            return backlog_samples.troubles(connection, pipeline)

    def saw_keys(
        self,
        pipeline: str,
        transaction: str,
        looked: int,
        logs: Mapping[str, int],
        examples: Mapping[str, Sequence[str]],
        named: Container[str],
        values_kept: timedelta | None = None,
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
        """
        with self._read() as connection:
            has_stored_keys = new_keys.has_any(connection, pipeline)
        # Mostly there is none, and nothing is written.
        if not has_stored_keys and all(key in named for key in logs):
            return []
        with self._write() as connection:
            return new_keys.save(connection, pipeline, transaction, looked, logs, examples, named, values_kept)

    def unnamed_keys(self, names: Collection[str] | None = None, since: datetime | None = None) -> list[UnnamedKey]:
        """Keys that no column of these pipelines (None: of any) names, those seen last for the first time first.

        With `since`, only those that were first seen then or later.
        """
        with self._read() as connection:
            return new_keys.seen(connection, names, since)

    @contextmanager
    def deed(
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

    def answer(self, pipeline: str, act: str, run: str, result: str) -> None:
        """Keeps how something ended that `ask` began; does nothing where it has ended, or never began.

        Args:
            pipeline: its name.
            act: an `Act`'s name.
            run: the DAG run, as text.
            result: how it ended.
        """
        with self._write() as connection:
            audit_log.answer(connection, pipeline, act, run, result)

    def deeds(self, pipeline: str, limit: int, act: str | None = None) -> list[Deed]:
        """What people had done to the pipeline, or the deeds of one act, the newest first."""
        with self._read() as connection:
            return audit_log.last(connection, pipeline, limit, act)

    def standings(self, newest: int, since: datetime, names: Collection[str] | None = None) -> list[Standing]:
        """What the ledger has of each pipeline, or of those named, by name; a few indexed reads for each.

        Args:
            newest: the number of transactions.
            since: how far back sightings go.
        """
        with self._read() as connection:
            return overview.standings(connection, newest, since, names)

    def rebuild(self, pipeline: str, batches: Sequence[CommittedBatch], kept: Duties) -> None:
        """Replaces a pipeline's transactions and coverage by the table's `batches`; known shards stay.

        Raises:
            IllegalTransition: a live transaction is not among `batches`.
        """
        with self._write() as connection:
            rebuild(connection, pipeline, batches, kept)

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

    def accept(self, pipeline: str, completion: str) -> None:
        """Accepts other clients' writes to the table up to `completion`, Hudi's completion time, as meant."""
        with self._write() as connection:
            pipeline_rows.accept(connection, pipeline, completion)

    def accepted(self, pipeline: str) -> str:
        """The completion time last given to `accept`; empty where there was none."""
        with self._read() as connection:
            return reads.accepted(connection, pipeline)

    def committed_instants(self, pipeline: str, instants: Sequence[str]) -> set[str]:
        """Which of these instants are committed transactions of the pipeline."""
        with self._read() as connection:
            return reads.committed_instants(connection, pipeline, instants)

    def now(self) -> datetime:
        """The time (UTC) of the clock that heartbeats, events and leases use."""
        with self._read() as connection:
            return now(connection)

    def find(self, id: str) -> Transaction | None:
        """The transaction, None where the ledger surely has none."""
        with self._read() as connection:
            return reads.find(connection, id)

    def get(self, id: str) -> Transaction:
        """The transaction, or LedgerError."""
        with self._read() as connection:
            return reads.get(connection, id)

    def live(self, pipeline: str) -> list[Transaction]:
        """Transactions that are neither committed nor aborted, oldest first."""
        with self._read() as connection:
            return reads.live(connection, pipeline)

    def last(self, pipeline: str, limit: int, state: State | None = None) -> list[Transaction]:
        """The newest transactions, newest first. Their manifests, which may be large, are left out (None)."""
        with self._read() as connection:
            return reads.last(connection, pipeline, limit, state)

    def history(self, pipeline: str, limit: int, before: str | None = None) -> list[Past]:
        """The newest transactions, or those older than `before`, newest first, with manifests and events."""
        with self._read() as connection:
            return reads.history(connection, pipeline, limit, before)

    def by_instant(self, pipeline: str, instant: str) -> Transaction | None:
        """The transaction that opened `instant`."""
        with self._read() as connection:
            return reads.by_instant(connection, pipeline, instant)

    def airflow_of(self, id: str) -> str:
        """The name of the Airflow that made a transaction's run; empty if unknown."""
        with self._read() as connection:
            return reads.airflow_of(connection, id)

    def of_run(self, pipeline: str, dag_id: str, run_id: str, airflow: str) -> Transaction | None:
        """The newest transaction that a DAG run planned.

        Args:
            pipeline: the pipeline's name.
            dag_id: the run's DAG.
            run_id: the run.
            airflow: the name of its Airflow; where none has that name, one without a name counts, which a rebuild of
                the ledger leaves.
        """
        with self._read() as connection:
            return reads.of_run(connection, pipeline, dag_id, run_id, airflow)

    def latest_committed(self, pipeline: str) -> Transaction | None:
        """The transaction with the latest completion time."""
        with self._read() as connection:
            return reads.latest_committed(connection, pipeline)

    def last_shard(self, pipeline: str, kind: Kind) -> int | None:
        """The shard where the newest transaction of this kind ends; None where there is none."""
        with self._read() as connection:
            return reads.last_shard(connection, pipeline, kind)

    def ranges(self, id: str) -> list[Range]:
        """The ranges of a transaction, sorted."""
        with self._read() as connection:
            return reads.ranges(connection, id)

    def totals(self, id: str) -> list[RangeTotals]:
        """What was read from a transaction's ranges; none before PREPARED, none for gaps."""
        with self._read() as connection:
            return reads.totals(connection, id)

    def coverage(self, pipeline: str) -> list[Range]:
        """The committed ranges in as few intervals as possible, sorted."""
        with self._read() as connection:
            return reads.coverage(connection, pipeline)

    def reserved(self, pipeline: str) -> list[Range]:
        """The ranges of live transactions, sorted."""
        with self._read() as connection:
            return reads.reserved(connection, pipeline)

    def pipelines(self) -> list[LedgerPipeline]:
        """All registered pipelines by name."""
        with self._read() as connection:
            return reads.pipelines(connection)

    def shards(self, pipeline: str) -> list[LedgerShard]:
        """The saved shards by id."""
        with self._read() as connection:
            return reads.shards(connection, pipeline)

    def density(self, pipeline: str) -> dict[int, Density]:
        """Bytes and rows per log group of each saved shard that committed something; older batches count less."""
        with self._read() as connection:
            return reads.density(connection, pipeline)

    def recorded(self, pipeline: str) -> list[RecordedRange]:
        """The ranges of PREPARED and COMMITTED transactions with their rows, sorted; reads the whole history."""
        with self._read() as connection:
            return reads.recorded(connection, pipeline)

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

    def gaps(self, pipeline: str, since: datetime) -> list[tuple[str, Range]]:
        """The gaps that batches recorded, with the batch's id, oldest first: of those committed since then that were
        planned at most a day before.
        """
        with self._read() as connection:
            return reads.gaps(connection, pipeline, since)

    def replays(self, pipeline: str) -> list[Transaction]:
        """The pipeline's replays that were not aborted, oldest first."""
        with self._read() as connection:
            return reads.replays(connection, pipeline)

    def events(self, id: str) -> list[Event]:
        """What happened to a transaction, in order."""
        with self._read() as connection:
            return reads.events(connection, id)

    def _read(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, write=False)

    def _write(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, write=True)
