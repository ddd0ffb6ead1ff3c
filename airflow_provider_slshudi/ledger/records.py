"""The ledger's rows as objects: states and kinds of transactions, ranges, events, shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from airflow_provider_slshudi.planning.periods import Period
from airflow_provider_slshudi.planning.ranges import Density, Range


class State(str, Enum):
    """How far a transaction has come."""

    PLANNED = "PLANNED"
    OPEN = "OPEN"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class Kind(str, Enum):
    """What a transaction does: tail and backfill read ranges, a replay reads the quarantine."""

    TAIL = "tail"
    BACKFILL = "backfill"
    REPLAY = "replay"


LEGAL: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.OPEN, State.ABORTED}),
    State.OPEN: frozenset({State.PREPARED, State.ABORTED}),
    State.PREPARED: frozenset({State.COMMITTED, State.ABORTED}),
    State.COMMITTED: frozenset(),
    State.ABORTED: frozenset(),
}
LIVE = tuple(state for state, following in LEGAL.items() if following)


def origins(target: State) -> tuple[State, ...]:
    """The states from which `target` may be reached."""
    return tuple(state for state, following in LEGAL.items() if target in following)


GONE = "gone"
"""The status of a shard that the service no longer has, once nothing about its end is left to decide."""
UNKNOWN = "unknown"
"""The status of a shard that the table kept, until the service is asked."""
LATE = "late"
"""The status of a shard that may have lost logs before a plan saw it, until that is accepted."""


def is_within(at: datetime, longest: timedelta, now: datetime) -> bool:
    """Whether it was less than `longest` ago; what is yet to come was kept by a clock that was ahead, and is not."""
    return timedelta() <= now - at < longest


@dataclass(frozen=True, slots=True)
class LedgerPipeline:
    """A registered pipeline: its name, its source's identity and its table's base path."""

    name: str
    source: str
    table: str


@dataclass(frozen=True, slots=True)
class LedgerShard:
    """A shard as last seen. `first`: the cursor where this pipeline's duty for the shard begins.

    `status` is the service's, GONE, UNKNOWN or LATE. `end` is the shard's end, asked for after the status; None if
    no look asked.
    """

    id: int
    status: str
    hash_begin: str
    hash_end: str
    first: int
    end: int | None = None

    @property
    def end_known(self) -> bool:
        """Whether `end` is final: a closed shard does not grow, and a GONE shard's last known end is accepted."""
        return self.status == GONE or (self.status == "readonly" and self.end is not None)


@dataclass(frozen=True, slots=True)
class StartPositions:
    """The cursor where a pipeline's duty for each shard begins, and the shards that are GONE, as a table keeps them.

    `gone` has the end of each, None where it was not known.
    """

    first: Mapping[int, int] = field(default_factory=dict)
    gone: Mapping[int, int | None] = field(default_factory=dict)

    def joined(self, other: StartPositions) -> StartPositions:
        """Joins both: of two begins of a shard the earlier one counts, of two ends the later one."""
        first, last_ends = dict(self.first), dict(self.gone)
        for shard, begin in other.first.items():
            first[shard] = min(begin, first.get(shard, begin))
        for shard, end in other.gone.items():
            last_ends[shard] = later(end, last_ends.get(shard))
        return StartPositions(first, last_ends)

    def shards(self) -> dict[int, LedgerShard]:
        """The shards, by id, as a ledger has them that knows only these duties."""
        return {
            id_: LedgerShard(id_, GONE if id_ in self.gone else UNKNOWN, "", "", begin, self.gone.get(id_))
            for id_, begin in self.first.items()
        }


def later(one: int | None, other: int | None) -> int | None:
    """The later of two ends of a shard, of which either may be unknown."""
    return max((end for end in (one, other) if end is not None), default=None)


@dataclass(frozen=True, slots=True)
class BacklogSample:
    """What a look at the service's shards told of a pipeline, all shards together.

    Attributes:
        at: when the shards' ends were asked (UTC).
        came: log groups that came since the sighting before; None for the first one.
        came_bytes: their raw bytes, estimated; None where no batch tells how large log groups are.
        unread: log groups that no committed batch has.
        unread_bytes: their raw bytes, estimated, or None.
        unread_since: the first of them was received at this time (unix seconds) or later; None where nothing is
            unread, or the service did not say.
        kept: how many seconds the logstore keeps a log; None where the service did not say.
    """

    at: datetime
    came: int | None
    came_bytes: int | None
    unread: int
    unread_bytes: int | None
    unread_since: int | None
    kept: int | None


@dataclass(frozen=True, slots=True)
class SeenInstant:
    """What a timeline shows of an instant: its state, and Hudi's completion time once it is completed."""

    state: str
    completion: str | None


@dataclass(frozen=True, slots=True)
class SeenTimeline:
    """What a run saw of a table's active timeline.

    Attributes:
        at: a time before it looked (UTC).
        run: the DAG run that looked.
        oldest: the oldest instant there; what was older is archived. Empty if there is none.
        first: completed instants from this one on are among `instants`.
        instants: by their times, the newest ones and all that are pending.
    """

    at: datetime
    run: str
    oldest: str
    first: str
    instants: Mapping[str, SeenInstant]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A step of a DAG that failed, or waits, and has not succeeded since.

    Attributes:
        error: the error's class, as the manual's table names it.
        waits: the step tries again by itself.
        transaction: the transaction that the step worked on, if any.
        since, at, times: when it first and last failed (UTC), and how often.
    """

    pipeline: str
    dag_id: str
    step: str
    error: str
    message: str
    waits: bool
    run_id: str
    transaction: str | None
    since: datetime
    at: datetime
    times: int


BACKFILL_DONE = "nothing is left to read"
"""The result of a backfill that has read all that was asked for."""
_HOLD_TOLD = 0.75
"""The part of a consumer's hold after which people are told that it is behind."""
SILENT_AFTER = timedelta(minutes=10)
"""Without a heartbeat for this long no process works on a transaction of a run of which Airflow cannot tell, since
between two steps a scheduler may take its time; nor on a step whose process this machine cannot look at, on another one
say: a fleet's run lives as long as any of its batches."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What a person had done to a pipeline, and why; `result` is None until it has ended.

    `about` is JSON for those who follow it, see `views.progress`.
    """

    pipeline: str
    at: datetime
    act: str
    who: str
    reason: str
    run: str
    transaction: str | None
    result: str | None
    about: Mapping[str, Any] | None = None

    @property
    def failure(self) -> str:
        """Why a backfill failed, the error's class first; empty of one that did not, or has not ended."""
        return "" if self.result in (None, BACKFILL_DONE) else str(self.result)


@dataclass(frozen=True, slots=True)
class UnnamedKey:
    """A key of logs that no column names. Batches look at some of their logs only, so it is in more than `logs`.

    Attributes:
        key: the key as text; bytes that are no UTF-8 are written as `\\xNN`.
        transaction: the first batch that saw it.
        first, last: when batches first and last recorded it (UTC).
        logs: how many of the logs that were looked at have it.
        looked: how many logs the batches that saw it looked at.
        examples: a few of its values in the first batch.
        kept_in: the column that keeps it with others, by the newest batch that saw it; None: it is dropped.
    """

    pipeline: str
    key: str
    transaction: str
    first: datetime
    last: datetime
    logs: int
    looked: int
    examples: list[str]
    kept_in: str | None = None

    @property
    def fate(self) -> str:
        """What becomes of it, as a person reads it."""
        return "so it is dropped" if self.kept_in is None else f"so it goes to `{self.kept_in}`"

    @property
    def told(self) -> str:
        """The key, how often it was seen, and examples, as a person reads it."""
        return f"{self.counted}, like {', '.join(map(repr, self.examples))}" if self.examples else self.counted

    @property
    def counted(self) -> str:
        """The key, and how often it was seen, as a person reads it."""
        return f"{self.key!r} in {self.logs:,} of {self.looked:,} logs looked at"


@dataclass(frozen=True, slots=True)
class UnnamedCount:
    """How many keys no column of a pipeline names, and when the newest of them was first seen (UTC)."""

    keys: int
    newest: datetime


@dataclass(frozen=True, slots=True)
class RangeTotals:
    """What an append read from one range.

    `bytes` are raw (uncompressed) bytes pulled; the log times are unix seconds, None where the range held no log.
    `filtered` logs more were read that the pipeline's condition leaves out.
    """

    range: Range
    rows: int
    bytes: int
    first_time: int | None
    last_time: int | None
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A range whose data was written: by which transaction, under which instant, and how many rows (None: a gap).

    `completed` is Hudi's completion time, None where the transaction is not COMMITTED yet.
    """

    range: Range
    transaction: str
    state: State
    instant: str
    completed: str | None
    rows: int | None
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """Where coverage and ranges of committed transactions differ; an intact ledger has no such place.

    Attributes:
        uncovered: committed, but not covered: a later batch reads it again.
        unrecorded: covered, but in no committed transaction: no batch ever reads it.
        twice: in two committed transactions.
    """

    uncovered: list[Range] = field(default_factory=list)
    unrecorded: list[Range] = field(default_factory=list)
    twice: list[Range] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return not (self.uncovered or self.unrecorded or self.twice)

    def named(self) -> dict[str, list[Range]]:
        """Each kind by its name."""
        return {"uncovered": self.uncovered, "unrecorded": self.unrecorded, "twice": self.twice}


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many transactions were packed, with how many events and ranges.

    `last` is the transaction after which to go on; None if there was no more.
    """

    transactions: int
    events: int
    ranges: int
    last: str | None

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"batches": self.transactions, "events": self.events, "ranges": self.ranges}

    def __add__(self, later: Pruned) -> Pruned:
        return Pruned(
            self.transactions + later.transactions, self.events + later.events, self.ranges + later.ranges, later.last
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """One batch. Times are UTC.

    `token` is the fencing token; `instant` Hudi's, from OPEN on; `manifest`, `rows` and `bytes` are set by PREPARED
    (0 rows and bytes before); `error` says why it was aborted; `completed` is Hudi's completion time. `process` names
    the process whose step works, or worked when it died, on it (`system.processes.this_process`); None between two
    steps.
    `values_until` is when the values of logs in the manifest expire; None where it has none.
    `partitions` are rows by the path of each partition that it writes to; None where that is not known, or there are
    none. `place` is its place in the order in which the ledger heard of commits: 1, 2, 3 ... of each pipeline.
    `filter` is the condition by which logs were left out (`shaping.conditions.described`); None without one.
    `order_digest` is the SHA-256 of the append's order, from OPEN on; None where a rebuild of the ledger wrote the row.
    """

    id: str
    pipeline: str
    kind: Kind
    state: State
    token: int
    instant: str | None
    dag_id: str
    run_id: str
    manifest: Mapping[str, Any] | None = field(repr=False)
    rows: int
    bytes: int
    error: str | None
    created: datetime
    changed: datetime
    heartbeat: datetime
    process: str | None
    completed: str | None
    order_digest: str | None = None
    values_until: datetime | None = None
    partitions: Mapping[str, int] | None = field(default=None, repr=False)
    filter: Mapping[str, Any] | None = field(default=None, repr=False)
    place: int | None = None


class PartitionState(str, Enum):
    """How far a partition of event times is; PARTIAL: it began before the pipeline's duty did, so it is never whole."""

    OPEN = "open"
    COMPLETE = "complete"
    REOPENED = "reopened"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of event times, as far as commits and looks are folded into it.

    Attributes:
        begin, end: its event times, half-open, in unix seconds.
        rows: rows that batches wrote to it; of an upsert more than it has.
        commits: how many batches wrote to it.
        times: how often it became complete.
        gaps: how many ranges of logs that the service had dropped were recorded while it was open, and how many shards
            lost logs of which no cursors are known.
        place: of the last commit that wrote to it; 0: none did.
        kind: of that commit; while the partition is open, of a backfill or replay rather than of the tail.
        opened: the service's time (unix seconds) up to which all has to be committed before it is complete again.
        completed: when it became complete last (UTC).
    """

    value: str
    begin: int
    end: int
    state: PartitionState
    rows: int
    commits: int
    times: int
    gaps: int
    place: int
    kind: Kind
    opened: int
    completed: datetime | None

    @classmethod
    def empty(cls, period: Period, since: int | None) -> PartitionRow:
        """A partition that no commit has written to; `since`: see `PartitionState.PARTIAL`."""
        state = PartitionState.PARTIAL if since is not None and period.begin < since else PartitionState.OPEN
        return cls(period.value, period.begin, period.end, state, 0, 0, 0, 0, 0, Kind.TAIL, 0, None)

    @property
    def is_awaited(self) -> bool:
        """Whether it may yet become complete."""
        return self.state in (PartitionState.OPEN, PartitionState.REOPENED)

    @property
    def late(self) -> float | None:
        """How many seconds after its end it became complete last; None where it never did."""
        return None if self.completed is None else self.completed.timestamp() - self.end

    def written(self, rows: int, place: int, kind: Kind, looked: int) -> PartitionRow:
        """After a commit of so many rows; a complete one is open again."""
        return replace(self.reopened(place, kind, looked), rows=self.rows + rows, commits=self.commits + 1)

    def reopened(self, place: int, kind: Kind, looked: int) -> PartitionRow:
        """After a commit that wrote to it, or may have."""
        was_complete = self.state is PartitionState.COMPLETE
        return replace(
            self,
            place=place,
            kind=kind if was_complete or self.kind is Kind.TAIL else self.kind,
            state=PartitionState.REOPENED if was_complete else self.state,
            opened=looked if was_complete else self.opened,
        )

    def lost(self, ranges: int) -> PartitionRow:
        """After commits that recorded gaps, whose logs may have been its own."""
        return replace(self, gaps=self.gaps + ranges)

    def is_complete(self, watermark: int, lateness: int) -> bool:
        """Whether all is committed that the service received until the end and the declared lateness, in seconds."""
        return self.is_awaited and watermark >= max(self.end + lateness, self.opened)

    def complete(self, at: datetime) -> PartitionRow:
        """Once it is complete."""
        return replace(self, state=PartitionState.COMPLETE, times=self.times + 1, completed=at)


@dataclass(frozen=True, slots=True)
class Completion:
    """A partition became complete; `number` counts these of a pipeline.

    Attributes:
        times: the how manieth time of this partition.
        place: the last commit that is in it, of all of the pipeline's.
        gaps: see `PartitionRow`.
        watermark: all logs that the service received before it (unix seconds) are committed.
        at: when that was known (UTC).
    """

    number: int
    value: str
    times: int
    place: int
    rows: int
    gaps: int
    watermark: int
    at: datetime


class Feed(str, Enum):
    """What a consumer is given one after the other."""

    COMMITS = "commits"
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True)
class Consumer:
    """Who computes on a table next, and how far that consumer has come.

    Attributes:
        of: what it is given: commits by their place, or completions of partitions by their number.
        confirmed: all up to this one are done.
        taken: all up to this one are given, and not confirmed yet; None: nothing is.
        nonce: of what is taken now; only who has it confirms.
        taker: the run that took it, as text; `process` the process in which it did.
        hold: for how many seconds cleaning and archival wait for it.
    """

    pipeline: str
    name: str
    of: Feed
    confirmed: int
    taken: int | None
    nonce: str | None
    taker: str | None
    process: str | None
    hold: int
    created: datetime
    changed: datetime

    @property
    def span(self) -> str:
        """The places of what is taken, as text."""
        return f"{self.pipeline}/{self.name}/{self.confirmed + 1}-{self.taken}"

    @property
    def run(self) -> tuple[str, str, str]:
        """The Airflow (empty: not known), the DAG and the run of who took it; see `transaction.dangling.claimant`."""
        airflow, _, name = (self.taker or "").partition("|")
        dag_id, _, run_id = name.partition("/")
        return airflow, dag_id, run_id


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """How far a consumer is behind.

    Attributes:
        behind: commits, or completions of partitions, that it has not confirmed.
        since: when the ledger heard of the first of these (UTC); None where there is none.
    """

    consumer: Consumer
    behind: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Hold:
    """A consumer of commits that has not confirmed all of them, for which cleaning and archival wait.

    Attributes:
        place: of the first commit that it has not confirmed.
        since: when the ledger heard of that commit (UTC).
        until: how long they wait for it (UTC).
        instant: the oldest one that they keep for it; None: they waited long enough for all commits that it lacks.
        used: how much of this time is over: 0 to 1, and beyond.
    """

    consumer: str
    place: int
    since: datetime
    until: datetime
    instant: str | None
    used: float

    @property
    def is_told(self) -> bool:
        """Whether people are told of it: the time is over, or soon will be."""
        return self.used > _HOLD_TOLD

    def __str__(self) -> str:
        waits = "wait for it until" if self.used < 1 else "do not wait for it any more since"
        return (
            f"consumer {self.consumer} has not confirmed the commit of place {self.place}, of "
            f"{self.since:%Y-%m-%d %H:%M} UTC: cleaning and archival {waits} {self.until:%Y-%m-%d %H:%M} UTC"
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a transaction; `detail` is text or JSON."""

    transaction: str
    at: datetime
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class Past:
    """A transaction with its manifest, and what happened to it, in order."""

    transaction: Transaction
    events: list[Event]


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed transaction as the table's commit tells it; `totals` has each of `ranges` but gaps.

    `partitions` and `filter` are as a `Transaction` has them.
    """

    id: str
    kind: Kind
    instant: str
    completed: str
    dag_id: str
    run_id: str
    ranges: tuple[Range, ...]
    totals: tuple[RangeTotals, ...]
    partitions: Mapping[str, int] | None = None
    filter: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger has of one pipeline, as of `now` (UTC).

    Attributes:
        newest: its newest transactions, newest first.
        live: all that are neither committed nor aborted, oldest first.
        committed: the one that Hudi completed last.
        fresh: the newest log time (unix seconds) of the newest committed transactions; None if they read no log.
        sightings: newest first.
        unread_since: see `Ledger.unread_since`.
        unnamed: None if batches saw no key that no column names.
        acts: what people had done last of the acts that were asked for, the newest first.
    """

    pipeline: LedgerPipeline
    now: datetime
    newest: list[Transaction]
    live: list[Transaction]
    committed: Transaction | None
    fresh: int | None
    sightings: list[BacklogSample]
    kept: int | None
    shards: list[LedgerShard]
    density: dict[int, Density]
    unread_since: dict[int, int]
    coverage: list[Range]
    reserved: list[Range]
    troubles: list[Trouble]
    unnamed: UnnamedCount | None
    acts: list[AuditEntry]
