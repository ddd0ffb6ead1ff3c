"""The steps of one batch after its plan: open, append, record, commit."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import timedelta

from airflow_provider_slshudi.config.sources import Source
from airflow_provider_slshudi.exceptions import IllegalTransition, TableError
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder, Selection, Unnamed
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.ledger.records import Kind, State, Transaction
from airflow_provider_slshudi.planning.ranges import by_shard
from airflow_provider_slshudi.planning.windows import MOST_BYTES_PER_GROUP, estimate
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import columns, context, start_positions
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import InstantState
from airflow_provider_slshudi.transaction.evidence import look, open_instant_of, require_known_commits
from airflow_provider_slshudi.transaction.record import (
    accepts_losses,
    judge,
    lost_of,
    reads_what_is_there,
    refused,
    require_files,
    require_share,
    totals_of,
)
from airflow_provider_slshudi.transaction.resolve import resolve

_TOLD = 20
_log = logging.getLogger(__name__)


def keep(work: Work, transaction: Transaction, found: Unnamed) -> None:
    """Keeps what a recorded batch saw, and logs each key that no batch saw before.

    It is for people's eyes: where the ledger does not take it, the batch goes on.
    """
    name, named, retention = transaction.pipeline, work.pipeline.named_keys, work.pipeline.values_kept
    examples = {} if retention is None else found.examples
    try:
        kept_in = {key: column for key in found.logs if (column := named.kept_in(key)) is not None}
        keys = found.looked, found.logs, examples
        new = work.ledger.save_new_keys(name, transaction.id, *keys, named, retention, kept_in)
    except Exception as error:
        _log.warning("the ledger was not told which keys of logs no column names: %s", error)
        return
    for key in new[:_TOLD]:
        _log.warning("new key, which no column of %s names, %s: %s", name, key.fate, key.told)
    if len(new) > _TOLD:
        _log.warning("and %d more: `slshudi schema unnamed %s`", len(new) - _TOLD, name)


_LENGTHS_KEPT = timedelta(days=7)
"""How long the ledger keeps examples without values."""
_SLOW_SECONDS = 10.0
"""An append that waits for a limit of the service for longer does so in a driver of its own."""


def open_instant(work: Work, id_: str, token: int, replay: Selection | None = None) -> str:
    """Opens the transaction's instant, leaves the order for the append or the `replay`, and returns the instant.

    Args:
        work: the pipeline's.
        id_: the transaction's.
        token: its fencing token.
        replay: which quarantined logs a replay reads.
    """
    transaction = work.held(id_, token)
    if transaction.state is State.OPEN and transaction.instant is not None:
        return transaction.instant
    _require(transaction, State.PLANNED)
    with work.heartbeat(id_, token):
        instant = open_instant_of(work, transaction)
        creates, cpu = not work.ledger.has_written(work.pipeline.name), None
        if instant is None:
            reach(Point.OPEN_STARTED)
            # The plan could not keep the duties: there was no table yet.
            duties = start_positions.to_keep(work) if creates else ""
            opening = work.order(transaction=id_, token=token, creates=creates, duties=duties)
            cpu = work.launcher.run(Verb.OPEN, opening, {})
            instant = open_instant_of(work, transaction)
        if instant is None:
            raise TableError(
                f"{work.storage.uri}: the job ended well, but no instant of transaction {id_} is on the timeline",
                table=work.storage.uri,
            )
        reach(Point.OPEN_SEEN)
        density = {
            str(shard): shard_density.bytes for shard, shard_density in work.ledger.density(work.pipeline.name).items()
        }
        ranges = [[item.shard, item.begin, item.end] for item in work.ledger.ranges(id_) if not item.gap]
        pipeline = work.pipeline.model_dump(mode="json")
        pipeline["source"] = _source(work, transaction).model_dump(mode="json")
        if accepts_losses(work, transaction):
            pipeline["source"]["on_expired"] = "skip"
        # Not a worker's clock: which logs are late must not depend on when, or how often, they are read.
        planned = int(transaction.created.timestamp())
        chosen = None if replay is None else asdict(replay)
        order = BatchOrder(id_, token, instant, pipeline, ranges, density, planned, chosen)
        digest = batch_files.write_order(work.storage, order)
        reach(Point.OPEN_ORDERED)
        work.ledger.opened(id_, token, instant, context.of_driver(cpu), digest)
        reach(Point.OPEN_TOLD)
    return instant


def append(work: Work, id_: str, token: int) -> None:
    """Runs the append. No run continues a failed one: settle rolls its instant back.

    Raises:
        IllegalTransition: the append ran before, or the transaction or its instant is not open any more.
    """
    transaction = work.held(id_, token)
    _require(transaction, State.OPEN)
    evidence = look(work, transaction)
    if evidence.state is not InstantState.REQUESTED:
        raise IllegalTransition(
            f"the append of transaction {id_} was not started: its instant {evidence.instant} is "
            f"{evidence.state.value}, not REQUESTED. Either the task was cleared after it had run, or a client rolled "
            "the instant back. Nothing of it is committed; the next run's settle decides it, and its ranges are "
            "read again",
            transaction=id_,
            found=evidence.state.value,
            wanted=InstantState.REQUESTED.value,
        )
    instant, digest, size = transaction.instant or "", transaction.order_digest or "", size_of(work, transaction)
    order = work.order(transaction=id_, token=token, instant=instant, digest=digest, size=size, drains=work.drains)
    with work.heartbeat(id_, token):
        reach(Point.APPEND_LAUNCHED)
        secrets = {} if transaction.kind is Kind.REPLAY else work.connect().to_env()
        work.launcher.run(Verb.APPEND, order, secrets)
        reach(Point.APPEND_ENDED)


def size_of(work: Work, transaction: Transaction) -> float | None:
    """About how many raw bytes the batch reads; None for what reads the table, and for what is read slowly.

    A log group of a shard that told nothing so far counts as large as any may be.
    """
    if transaction.kind not in (Kind.TAIL, Kind.BACKFILL):
        return None
    ranges = [item for item in work.ledger.ranges(transaction.id) if not item.gap]
    density = work.ledger.density(work.pipeline.name)
    sizes = [estimate(mine, density, unknown=MOST_BYTES_PER_GROUP) for mine in by_shard(ranges).values()]
    source, size = _source(work, transaction), sum(sizes)
    seconds = max(sizes, default=0.0) / source.read_bytes_per_second
    seconds = max(seconds, size / (source.total_bytes_per_second or float("inf")))
    return size if seconds <= _SLOW_SECONDS else None


def _source(work: Work, transaction: Transaction) -> Source:
    """The pipeline's source, with the limits by which this transaction reads it."""
    source = work.pipeline.source
    return source.of_backfill if transaction.kind is Kind.BACKFILL else source


def record(work: Work, id_: str, token: int) -> Transaction:
    """Checks the manifest and records it, with the totals of each range, in the ledger: phase one.

    Raises:
        TooManyFiles: the batch has more files than one commit takes.
        CheckFailed: the batch is not what the pipeline asks for.
        TooManyMisfits: more of its logs do not fit than the pipeline's file allows.
    """
    transaction = work.held(id_, token)
    if transaction.state is State.PREPARED:
        return transaction
    _require(transaction, State.OPEN)
    with work.heartbeat(id_, token):
        manifest, digest = Attempt(work.storage, id_, transaction.instant or "", token).manifest()
        require_files(work, manifest)
        require_share(transaction, manifest, work.pipeline.max_misfits)
        warned = judge(work, transaction, manifest)
        with work.lease():
            totals = totals_of(work, transaction, manifest)
            why = columns.promise(work, transaction)
            if why:
                raise refused(work, transaction, why)
            reach(Point.RECORD_CHECKED)
            # The ledger has the ranges already, and the digest vouches for the list of files.
            written = [*manifest.stats, *(stat for stats in manifest.routed.values() for stat in stats)]
            facts = {"token": token, "digest": digest, "files": len(written)}
            facts |= {"stored": sum(stat["fileSizeInBytes"] for stat in written)}
            facts |= {"misfits": manifest.misfits, "seconds": manifest.seconds, "warnings": warned}
            facts |= {"unfit": manifest.unfit, "examples": manifest.examples, "dropped": manifest.dropped}
            facts |= {"spent": None if manifest.spent is None else asdict(manifest.spent)}
            facts |= {"quarantined": None if manifest.quarantine is None else manifest.quarantined}
            facts |= {"routed": manifest.rows_by_route} if manifest.routed else {}
            if transaction.kind is Kind.REPLAY:
                facts |= {"moved": manifest.taken - manifest.quarantined, "left": manifest.left}
            facts |= {} if manifest.filter is None else {"filtered": manifest.filtered}
            lost = lost_of(manifest)
            facts |= {"lost": [str(item) for item in lost]} if lost else {}
            gaps, released = ([], lost) if lost and reads_what_is_there(work, transaction) else (lost, [])
            values_kept = work.pipeline.values_kept or _LENGTHS_KEPT
            partitions = None if work.pipeline.table.partition is None else manifest.partitions
            recorded = work.ledger.prepared(
                id_, token, facts, totals, gaps, released, values_kept, partitions, manifest.filter
            )
            reach(Point.RECORD_TOLD)
        keep(work, recorded, manifest.unnamed)
        return recorded


def commit(work: Work, id_: str, token: int) -> Transaction:
    """Commits the instant and says so in the ledger: phase two.

    Raises:
        LedgerAhead, LedgerLost: see `evidence.require_known_commits`; the next settle decides about the batch.
    """
    transaction = work.held(id_, token)
    if transaction.state is not State.COMMITTED:
        _require(transaction, State.PREPARED)
        with work.heartbeat(id_, token), work.lease() as lease:
            reach(Point.COMMIT_LEASED)
            # Read again under the lease: another run may have decided the transaction meanwhile.
            transaction = work.held(id_, token)
            if transaction.state is not State.COMMITTED:
                _require(transaction, State.PREPARED)
                resolve(work, transaction, lease, require_known_commits(work))
    committed = work.ledger.get(id_)
    _require(committed, State.COMMITTED)
    return committed


_AND_NOW = {
    State.PLANNED: "a step before it did not end, be it killed, cleared or marked by hand. The next run's settle "
    "decides it, and its ranges are read again",
    State.PREPARED: "it was recorded before, and is not written a second time. The next run's settle commits it",
    State.COMMITTED: "the batch is in the table, and nothing is left to do",
    State.ABORTED: "nothing of it is in the table, and the next run reads its ranges again",
}
_AND_NOW[State.OPEN] = _AND_NOW[State.PLANNED]


def _require(transaction: Transaction, state: State) -> None:
    if transaction.state is not state:
        raise IllegalTransition(
            f"transaction {transaction.id} is {transaction.state.value}"
            f"{f' ({transaction.error})' if transaction.error else ''}, this step needs {state.value}: "
            f"{_AND_NOW[transaction.state]}",
            transaction=transaction.id,
            found=transaction.state.value,
            wanted=state.value,
        )
