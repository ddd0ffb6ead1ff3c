"""Proof: compares the table's rows, by their keys, with what the ledger recorded and what the service holds."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_provider_slshudi.exceptions import ConfigError, ReplayUnderWay, TableError
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.ledger.records import RecordedRange, Transaction
from airflow_provider_slshudi.ledger.states import LIVE, State
from airflow_provider_slshudi.notes.job import Verb
from airflow_provider_slshudi.notes.verification import Question, ask, forget, take_answer
from airflow_provider_slshudi.protocol import quarantine
from airflow_provider_slshudi.protocol.evidence import check_table_against_ledger
from airflow_provider_slshudi.protocol.proof import Proof, prove
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.sls.service import LogService


def verify(work: Work, source: bool = False) -> Proof:
    """Compares the table with the ledger, and where `source` is set also with what the service still holds.

    It takes the table as of its newest commit at this moment, so batches may go on meanwhile.

    Raises:
        ConfigError: the pipeline upserts, so that no row says which log it came from.
        LedgerAhead, LedgerLost: the newest commits of ledger and table disagree.
        TableError: there is no table yet.
        SourceError: the service does not answer.
        JobFailed: the job that compares did not end well.
        ReplayUnderWay: a replay moves rows meanwhile, so there is no single state to compare.
    """
    if work.pipeline.table.upsert is not None:
        raise ConfigError(
            f"pipeline {work.pipeline.name} upserts: rows have keys of their own and one may be made of many logs, "
            "so rows cannot prove which logs were read. What was read is in the ledger and in each commit "
            "(`slshudi ledger show`)",
            source=work.pipeline.name,
            field="table.upsert",
        )
    work.require_owner()
    check_table_against_ledger(work)
    if not work.storage.exists(".hoodie/hoodie.properties"):
        raise TableError(
            f"{work.storage.uri} has no table yet: nothing was committed, run a batch first", table=work.storage.uri
        )
    # The timeline first: the ledger records a batch before its instant is completed.
    timeline = work.timeline()
    as_of = max((item.completion or "" for item in timeline), default="")
    completed = {item.time for item in timeline if item.phase is Phase.COMPLETED}
    pending, aside_at = _quarantine(work, completed)
    recorded = work.ledger.recorded(work.pipeline.name)
    # A batch that the ledger calls committed is decided, also where the quarantine says otherwise.
    decided = {item.instant for item in recorded if item.state is State.COMMITTED}
    undecided = [instant for instant in pending if instant not in decided]
    # The table's own: in layout 1 no completion time tells that one of them was completed later.
    undecided += [item.time for item in timeline.pending() if item.time not in decided]
    recorded = [item for item in recorded if item.instant not in undecided and _is_compared(item, as_of, completed)]
    replays = _replays(work)
    secrets: Mapping[str, str] = {}
    question = Question(
        as_of,
        [(item.range.shard, item.range.begin, item.range.end, item.instant) for item in recorded],
        quarantine=aside_at,
        undecided=undecided,
        replays=[str(item.instant) for item in replays],
    )
    if source:
        service = work.connect()
        secrets = service.connection.to_env()
        density = {str(shard): item.bytes for shard, item in work.ledger.density(work.pipeline.name).items()}
        question = replace(question, source=_held(service, recorded), density=density)
    id_ = uuid.uuid4().hex
    try:
        digest = ask(work.storage, id_, question)
        work.launcher.run(Verb.VERIFY, work.order(transaction=id_, digest=digest), secrets)
        found = take_answer(work.storage, id_)
    finally:
        forget(work.storage, id_)
    if found is None:
        raise TableError(f"{work.storage.uri}: the job that verifies left no findings", table=work.storage.uri)
    if [item.id for item in _replays(work)] != [item.id for item in replays]:
        raise _replayed(work, "began meanwhile")
    return prove(as_of, recorded, found, source, aside_at is not None, work.ledger.audit(work.pipeline.name))


def _quarantine(work: Work, completed: set[str]) -> tuple[list[str], str | None]:
    """The instants that are committed in the main table alone, and where the quarantine is; None where there is none.

    These are the instants that the main table's timeline, read before, has completed and the quarantine has pending.
    Raises TimelineUnreadable where the quarantine is not where it was made.
    """
    quarantine.require_known(work)
    path, timeline = work.pipeline.quarantine_path, quarantine.timeline_of(work)
    pending = {item.time for item in timeline.pending()} | set(timeline.rolling_back)
    has_any = any(item.phase is Phase.COMPLETED for item in timeline)
    return sorted(pending & completed), path if has_any else None


def _replays(work: Work) -> list[Transaction]:
    """The replays that are committed.

    Raises:
        ReplayUnderWay: one is not decided yet.
    """
    found = work.ledger.replays(work.pipeline.name)
    for item in found:
        if item.state in LIVE:
            raise _replayed(work, f"is {item.state.value}", item.id)
    return found


def _replayed(work: Work, why: str, transaction: str = "") -> ReplayUnderWay:
    return ReplayUnderWay(
        f"pipeline {work.pipeline.name}: a replay {transaction} {why}, and moves rows between the tables: verify again "
        "once it is decided",
        pipeline=work.pipeline.name,
        transaction=transaction or None,
    )


def _is_compared(item: RecordedRange, as_of: str, completed: set[str]) -> bool:
    """Whether the range's instant was completed by `as_of`, even if the ledger was not told yet."""
    if item.completed is None:
        return item.instant in completed
    return item.completed <= as_of


def _held(service: LogService, recorded: Sequence[RecordedRange]) -> list[tuple[int, int, int]]:
    """(range number, begin, end) of the parts that the service still holds; none of shards that it no longer lists."""
    listed = {shard.id for shard in service.shards()}
    oldest = {shard: service.begin(shard) for shard in {item.range.shard for item in recorded} & listed}
    held = []
    for number, item in enumerate(recorded):
        begin = max(item.range.begin, oldest.get(item.range.shard, item.range.end))
        if not item.range.gap and begin < item.range.end:
            held.append((number, begin, item.range.end))
    return held
