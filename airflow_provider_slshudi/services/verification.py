"""Verification: what counts of a table's rows, beside the ledger and the service, prove; a driver counts them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_provider_slshudi.exceptions import ConfigError, ReplayUnderWay, TableError
from airflow_provider_slshudi.handover.batch_files import QUARANTINE, ROUTE
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.handover.verification_report import (
    Findings,
    Outside,
    Question,
    RangeFound,
    ask,
    forget,
    take_answer,
)
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.ledger.records import LIVE, Audit, RecordedRange, State, Transaction
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.evidence import check_table_against_ledger
from airflow_provider_slshudi.transaction.tables import TransactionTables

_COUNTS = ("recorded", "rows", "missing", "doubled", "foreign")
_OF_SERVICE = ("compared", "not_comparable", "lacking", "strange")


@dataclass(frozen=True)
class Counts:
    """Rows of a range, a shard or the table.

    Attributes:
        recorded: rows that the ledger recorded.
        rows: rows in the table, and in the quarantine.
        missing: recorded rows that are not there.
        doubled: surplus rows, whose key another row has.
        foreign: rows that no transaction of the pipeline wrote: outside all recorded ranges, under another instant
            than their range's, or more than were recorded.
        compared: log groups that were compared with the service; None, like the next three, where it was not asked.
        not_comparable: log groups that the service no longer holds, of which nothing is known.
        lacking: logs that the service has and the table has not.
        strange: rows whose log group the service has, but without such a log, or with one that the batch's conditions
            leave out or send into another table.
        filtered: logs that the ledger recorded as left out by the pipeline's condition; None where there are none.
        unbalanced: how far that differs from what the condition leaves out of the logs that the service has, of ranges
            that it still has whole; None where it was not asked or no batch had a condition.
        quarantined: how many of `rows` are in the quarantine; None where there is none.
        erased: recorded rows that accepted erasures took: they are neither among `rows` nor `missing`; None where there
            are none.
    """

    recorded: int
    rows: int
    missing: int
    doubled: int
    foreign: int
    compared: int | None = None
    not_comparable: int | None = None
    lacking: int | None = None
    strange: int | None = None
    quarantined: int | None = None
    erased: int | None = None
    filtered: int | None = None
    unbalanced: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; log groups that could not be compared with the service do not count."""
        wrong = self.missing, self.doubled, self.foreign, self.lacking, self.strange, self.unbalanced
        return not any(wrong)

    def to_dict(self) -> dict[str, int]:
        """For JSON; leaves out figures that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class RangeProof:
    """One recorded range. `examples` has the first row key, or cursor, of each kind of wrong rows."""

    shard: int
    begin: int
    end: int
    gap: bool
    transaction: str
    instant: str
    counts: Counts
    examples: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ids = {name: getattr(self, name) for name in ("shard", "begin", "end", "gap", "transaction", "instant")}
        return {**ids, **self.counts.to_dict(), "examples": dict(self.examples)}


@dataclass(frozen=True)
class ShardProof:
    """One shard: the sum of its ranges, and the rows outside of them (all foreign), with the key of one as example."""

    shard: int
    counts: Counts
    outside: int
    example: str | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"shard": self.shard, **self.counts.to_dict(), "outside": self.outside, "example": self.example}


@dataclass(frozen=True)
class Proof:
    """The whole table as of a commit; `unreadable` rows have a key that names no shard and cursor.

    `audit` says where the ledger contradicts itself.
    """

    as_of: str
    ranges: list[RangeProof]
    shards: list[ShardProof]
    totals: Counts
    unreadable: int
    unreadable_example: str | None
    audit: Audit = field(default_factory=Audit)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.totals.ok and not self.unreadable and self.audit.ok

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return self.totals.rows + self.unreadable

    @property
    def wrong(self) -> list[RangeProof]:
        """The ranges that differ from what was recorded."""
        return [item for item in self.ranges if not item.counts.ok]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "as_of": self.as_of,
            "rows": self.rows,
            "totals": self.totals.to_dict(),
            "unreadable": self.unreadable,
            "unreadable_example": self.unreadable_example,
            "coverage": {name: [str(item) for item in ranges] for name, ranges in self.audit.named().items()},
            "shards": [item.to_dict() for item in self.shards],
            "ranges": [item.to_dict() for item in self.ranges],
        }

    def complaint(self) -> str:
        """What is wrong, in one sentence; empty where nothing is."""
        counts = {**self.totals.to_dict(), "unreadable": self.unreadable}
        kinds = ("missing", "doubled", "foreign", "unreadable", "lacking", "strange", "unbalanced")
        said = [f"{counts[kind]} {kind}" for kind in kinds if counts.get(kind)]
        places = [f"{item.shard}:[{item.begin}, {item.end}) of {item.transaction}" for item in self.wrong]
        places += [
            f"shard {item.shard} outside all ranges, like {item.example}" for item in self.shards if item.outside
        ]
        if self.unreadable:
            places.append(f"keys like {self.unreadable_example!r}")
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        rows = [f"{', '.join(said)} rows: {'; '.join(places[:3])}{more}"] if said else []
        return "; ".join([*rows, *self.ledger_complaints()])

    def ledger_complaints(self) -> list[str]:
        """Where the ledger contradicts itself, a sentence for each kind."""
        what = {
            "uncovered": "committed and not covered, so it will be read again",
            "unrecorded": "covered and in no committed transaction, so it is never read",
            "twice": "in two committed transactions",
        }
        return [
            f"{', '.join(map(str, ranges[:3]))}{' and more' if len(ranges) > 3 else ''}: {what[name]}"
            for name, ranges in self.audit.named().items()
            if ranges
        ]


def prove(
    as_of: str,
    recorded: Sequence[RecordedRange],
    found: Findings,
    with_source: bool,
    with_quarantine: bool = False,
    audit: Audit | None = None,
) -> Proof:
    """Compares the recorded ranges with what was found.

    Args:
        as_of: the newest completion that was looked at.
        recorded: each range with its rows.
        found: what the table holds of them.
        with_source: whether the log service was asked, too.
        with_quarantine: whether the quarantine was looked at.
        audit: what the ledger says; None: it was not asked.
    """
    by_number = {item.number: item for item in found.ranges}
    ranges = [
        _range_proof(item, by_number.get(number), with_source, with_quarantine) for number, item in enumerate(recorded)
    ]
    outside = {item.shard: item for item in found.outside if item.shard is not None}
    unreadable = next((item for item in found.outside if item.shard is None), Outside(None, 0, None))
    of_shard: dict[int, list[Counts]] = defaultdict(list)
    for item in ranges:
        of_shard[item.shard].append(item.counts)
    shards = [
        _shard_proof(shard, of_shard[shard], outside.get(shard, Outside(shard, 0, None)))
        for shard in sorted({*of_shard, *outside})
    ]
    totals = _sum((item.counts for item in shards), with_source, with_quarantine)
    return Proof(as_of, ranges, shards, totals, unreadable.rows, unreadable.example, audit or Audit())


def _range_proof(
    recorded: RecordedRange, found: RangeFound | None, with_source: bool, with_quarantine: bool
) -> RangeProof:
    item = recorded.range
    tally = found or RangeFound(0, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, None, None)
    recorded_rows = recorded.rows or 0
    compared = tally.groups if with_source else None
    # A gap was gone before it was read: there is nothing to compare with.
    held = 0 if item.gap else len(item)
    is_whole = with_source and tally.groups == held
    counts = Counts(
        recorded_rows,
        tally.rows,
        max(0, recorded_rows - tally.own),
        tally.rows + tally.erased - tally.distinct,
        tally.distinct - tally.own + max(0, tally.own - recorded_rows),
        compared,
        held - tally.groups if with_source else None,
        tally.lacking if with_source else None,
        tally.strange if with_source else None,
        tally.quarantined if with_quarantine else None,
        tally.erased or None,
        recorded.filtered or None,
        abs(recorded.filtered - tally.filtered) if is_whole and (recorded.filtered or tally.filtered) else None,
    )
    places = {"row": tally.example, "lacking": tally.lacking_at, "strange": tally.strange_at}
    examples = {name: str(place) for name, place in places.items() if place is not None}
    return RangeProof(
        item.shard, item.begin, item.end, item.gap, recorded.transaction, recorded.instant, counts, examples
    )


def _shard_proof(shard: int, ranges: Sequence[Counts], outside: Outside) -> ShardProof:
    with_source = any(item.compared is not None for item in ranges)
    with_quarantine = any(item.quarantined is not None for item in ranges)
    rows = Counts(0, outside.rows, 0, 0, outside.rows)
    return ShardProof(shard, _sum([*ranges, rows], with_source, with_quarantine), outside.rows, outside.example)


def _sum(counts: Iterable[Counts], with_source: bool, with_quarantine: bool) -> Counts:
    listed = list(counts)
    names = (*_COUNTS, *(_OF_SERVICE if with_source else ()), *(("quarantined",) if with_quarantine else ()))
    summed = Counts(**{name: sum(getattr(item, name) or 0 for item in listed) for name in names})
    optional = {
        name: sum(values)
        for name in ("erased", "filtered", "unbalanced")
        if (values := [value for item in listed if (value := getattr(item, name)) is not None])
    }
    return replace(summed, **optional)


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
    pending, aside_at, routes = _beside(work, completed)
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
        routes=routes,
        undecided=undecided,
        replays=[str(item.instant) for item in replays],
    )
    if source:
        service = work.connect()
        secrets = service.to_env()
        density = {str(shard): item.bytes for shard, item in work.ledger.density(work.pipeline.name).items()}
        held = _held(service, recorded)
        question = replace(question, source=held, density=density, **_filters(work, recorded, held))
    id_ = uuid.uuid4().hex
    try:
        digest = ask(work.storage, id_, question)
        work.launcher.run(Verb.VERIFY, work.order(transaction=id_, digest=digest), secrets)
        findings = take_answer(work.storage, id_)
    finally:
        forget(work.storage, id_)
    if findings is None:
        raise TableError(f"{work.storage.uri}: the job that verifies left no findings", table=work.storage.uri)
    if [item.id for item in _replays(work)] != [item.id for item in replays]:
        raise _replayed(work, "began meanwhile")
    return prove(as_of, recorded, findings, source, aside_at is not None, work.ledger.audit(work.pipeline.name))


def _beside(work: Work, completed: set[str]) -> tuple[list[str], str | None, list[tuple[str, str]]]:
    """The instants that are not committed in every table, where the quarantine is (None: there is none), and the tables
    of all routes that the pipeline's file has or had, each with its route's name.

    These are the instants that the main table's timeline, read before, has completed and a table beside has pending.
    Raises TimelineUnreadable where a table beside is not where it was made.
    """
    pending, aside, routes = set[str](), None, list[tuple[str, str]]()
    for table in TransactionTables.ever(work).beside:
        table.require_known()
        for storage, timeline in (
            table.everywhere() if table.key != QUARANTINE else [(table.storage(), table.timeline())]
        ):
            pending |= {item.time for item in timeline.pending()} | set(timeline.rolling_back)
            if not any(item.phase is Phase.COMPLETED for item in timeline):
                continue
            if table.key == QUARANTINE:
                aside = storage.uri
            else:
                routes.append((table.key.removeprefix(ROUTE), storage.uri))
    return sorted(pending & completed), aside, routes


def _replays(work: Work) -> list[Transaction]:
    """The replays that are committed.

    Raises:
        ReplayUnderWay: one is not decided yet.
    """
    replays = work.ledger.replays(work.pipeline.name)
    for item in replays:
        if item.state in LIVE:
            raise _replayed(work, f"is {item.state.value}", item.id)
    return replays


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


def _filters(work: Work, recorded: Sequence[RecordedRange], held: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """The conditions by which logs of these ranges were left out, and which is whose."""
    by_transaction = work.ledger.filters(sorted({recorded[number].transaction for number, _, _ in held}))
    filters, places = list[Mapping[str, Any]](), dict[str, int]()
    for number, _, _ in held:
        described = by_transaction.get(recorded[number].transaction)
        if described is not None:
            if described not in filters:
                filters.append(described)
            places[str(number)] = filters.index(described)
    return {"filters": filters, "filter_of": places}


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
