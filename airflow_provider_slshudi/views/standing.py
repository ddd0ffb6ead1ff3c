"""How a pipeline stands: how far behind, how fast, and whether it needs a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from airflow_provider_slshudi.handover.names import BACKFILL, Act
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import (
    GONE,
    SILENT_AFTER,
    AuditEntry,
    BacklogSample,
    Kind,
    Standing,
    State,
    Transaction,
    Trouble,
    UnnamedCount,
)
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.windows import estimate, unread
from airflow_provider_slshudi.views.words import Text, moment

WINDOW = timedelta(hours=1)
"""How far back rates and curves go."""
NEWEST = 60
"""Transactions that a curve has at most."""
UNSEEN = timedelta(hours=1)
"""A pipeline at which no run has looked for as long may be paused."""
_IN_VAIN = 3
_CLOCKS = timedelta(minutes=1)
EXPIRES_SOON = 0.25
"""Unread logs expire soon if less than this part of their time is left."""


class Need(Enum):
    """What a pipeline asks of a person, the most urgent first."""

    LOOK = "needs attention"
    EXPIRES = "expires soon"
    WAITS = "retrying"
    PAUSED = "paused"
    NOTHING = "OK"
    UNKNOWN = "not seen yet"

    @property
    def urgency(self) -> int:
        """0 is the most urgent."""
        return list(Need).index(self)


@dataclass(frozen=True)
class Lag:
    """How far a pipeline is behind what the service had at `seen`.

    Attributes:
        groups: log groups that no committed batch has.
        bytes: their raw bytes, estimated; None if no batch has shown how large log groups are.
        seconds: the age of the oldest unread log is at most this; where nothing is unread, of one that no look saw yet.
            None if the service did not tell.
        expires: seconds until the service drops the first unread log, at the earliest; where nothing is unread, the
            first one that came after the look. None if the service did not tell.
    """

    seen: datetime
    groups: int
    bytes: int | None
    seconds: float | None
    expires: float | None


@dataclass(frozen=True)
class Rates:
    """Raw bytes a second over the last hour, estimated: what came in, and what batches committed; None if unknown."""

    came: float | None
    committed: float | None


@dataclass(frozen=True)
class PipelineView:
    """One pipeline at a glance.

    Attributes:
        need, why: what it asks of a person, in a sentence.
        lag: None if no look at the service was kept.
        fresh: log time (unix seconds) of the newest visible row; None if unknown.
        unnamed: None if batches saw no key that no column names.
        failed_backfill: the newest backfill, if it failed and its failure was not dismissed.
        curve: unread bytes (groups, where bytes are unknown) of the last hour's looks, oldest first.
    """

    name: str
    source: str
    table: str
    need: Need
    why: str
    lag: Lag | None
    rates: Rates
    fresh: int | None
    committed: Transaction | None
    live: list[Transaction]
    troubles: list[Trouble]
    unnamed: UnnamedCount | None
    failed_backfill: AuditEntry | None
    curve: list[int]
    now: datetime


def pipelines(ledger: Ledger, names: Sequence[str] | None = None) -> list[PipelineView]:
    """All pipelines, or those named; the one that needs a person most comes first."""
    since = ledger.now() - WINDOW
    return by_need([view_of(standing) for standing in ledger.standings(NEWEST, since, names, ACTS)])


def by_need(views: Iterable[PipelineView]) -> list[PipelineView]:
    """The pipelines; the one that needs a person most comes first."""
    return sorted(views, key=_urgency)


def _urgency(view: PipelineView) -> tuple[float, ...]:
    lag = view.lag
    expires = lag.expires if lag is not None and lag.expires is not None else float("inf")
    behind = lag.seconds if lag is not None and lag.seconds is not None else 0.0
    return (view.need.urgency, expires, -behind)


def view_of(standing: Standing) -> PipelineView:
    """One pipeline at a glance."""
    lag = lag_of(standing)
    need, why = _need(standing, lag)
    return PipelineView(
        standing.pipeline.name,
        standing.pipeline.source,
        standing.pipeline.table,
        need,
        why,
        lag,
        Rates(_came(standing.sightings), _committed(standing)),
        standing.fresh,
        standing.committed,
        standing.live,
        standing.troubles,
        standing.unnamed,
        _failed_backfill(standing.acts),
        _curve(standing.sightings),
        standing.now,
    )


ACTS = (BACKFILL, Act.DISMISS.value)
"""The acts that a pipeline's view looks at."""
_FAILED_ACT = re.compile(r"\w+: ")
"""How the result of an act begins that ended with an error: its class."""


def _failed_backfill(acts: Sequence[AuditEntry]) -> AuditEntry | None:
    """The newest that failed and is neither dismissed nor followed by one that was asked for later and succeeded."""
    for entry in acts:
        if entry.act == BACKFILL and entry.failure:
            return entry
        if entry.result is not None and (entry.act == BACKFILL or not _FAILED_ACT.match(entry.result)):
            return None
    return None


def unread_of(standing: Standing) -> list[Range]:
    """What the service had at the last look and no committed batch has."""
    duties = ((shard.id, shard.first, shard.end) for shard in standing.shards if shard.end and shard.status != GONE)
    return unread(duties, standing.coverage)


def lag_of(standing: Standing) -> Lag | None:
    """How far the pipeline is behind; None if no look was kept."""
    sighting = next(iter(standing.sightings), None)
    if sighting is None or sighting.at - standing.now > _CLOCKS:
        return None  # a look that is yet to come was taken by a clock that was ahead
    unread_ranges = unread_of(standing)
    size = round(estimate(unread_ranges, standing.density)) if standing.density or not unread_ranges else None
    if not unread_ranges:
        # What came after the look is unread, too, and no look has seen it.
        since = _seconds(standing.now - sighting.at)
        return Lag(sighting.at, 0, 0, since, None if standing.kept is None else standing.kept - since)
    shards = {item.shard for item in unread_ranges}
    ages = [standing.unread_since[shard] for shard in shards if shard in standing.unread_since]
    behind = standing.now.timestamp() - min(ages) if len(ages) == len(shards) else None
    expires = None if behind is None or standing.kept is None else standing.kept - behind
    return Lag(sighting.at, sum(map(len, unread_ranges)), size, behind, expires)


def _need(standing: Standing, lag: Lag | None) -> tuple[Need, str]:
    # A run that waits for a batch without a heartbeat is stuck, too.
    stopped = [item for item in standing.troubles if not item.waits or standing.now - item.since > SILENT_AFTER]
    if stopped:
        first = stopped[0]
        return Need.LOOK, Text("{dag} failed at {step}: {error}", dag=first.dag_id, step=first.step, error=first.error)
    silent = [live for live in standing.live if standing.now - live.heartbeat > SILENT_AFTER]
    if silent:
        state = Text(silent[0].state.value)
        return Need.LOOK, Text("batch {id} is {state} and no run works on it", id=silent[0].id, state=state)
    in_vain = _given_up(standing.newest)
    if in_vain >= _IN_VAIN:
        cause = next((item.error for item in standing.newest if item.state is State.ABORTED and item.error), "")
        given_up = Text("the last {n} batches were all given up", n=in_vain)
        return Need.LOOK, Text("{given_up}, the newest: {cause}", given_up=given_up, cause=cause) if cause else given_up
    if _expires_soon(lag, standing.kept):
        return Need.EXPIRES, Text("the service drops unread logs soon")
    waiting = [trouble for trouble in standing.troubles if trouble.waits]
    if waiting:
        first = waiting[0]
        return Need.WAITS, Text("{dag} waits at {step}: {error}", dag=first.dag_id, step=first.step, error=first.error)
    if lag is None:
        return Need.UNKNOWN, Text("no run has looked at the service yet")
    if standing.now - lag.seen > UNSEEN:
        return Need.WAITS, Text("no run has looked at the service since {at}", at=moment(lag.seen))
    if standing.live:
        return Need.NOTHING, Text("a batch is under way")
    return Need.NOTHING, Text("the next run reads what is unread") if lag.groups else Text("all that was seen is read")


def _given_up(newest: Sequence[Transaction]) -> int:
    """How many of the newest decided batches were aborted, one after the other."""
    decided = [item.state for item in newest if item.state in (State.ABORTED, State.COMMITTED)]
    return next((index for index, state in enumerate(decided) if state is State.COMMITTED), len(decided))


def _expires_soon(lag: Lag | None, kept: int | None) -> bool:
    if lag is None or lag.expires is None or kept is None:
        return False
    return lag.expires < EXPIRES_SOON * kept


def _came(sightings: Sequence[BacklogSample]) -> float | None:
    """Bytes a second between the first and the last of the sightings, newest first."""
    if len(sightings) < 2:
        return None
    later = sightings[:-1]
    seconds = _seconds(sightings[0].at - sightings[-1].at)
    if not seconds or any(sighting.came_bytes is None for sighting in later):
        return None
    return sum(sighting.came_bytes or 0 for sighting in later) / seconds


def _committed(standing: Standing) -> float | None:
    """Bytes a second of the batches committed within the window."""
    begin = standing.now - WINDOW
    # A rebuilt ledger does not know when its batches were; it has them begin and end at once.
    within = [
        item
        for item in standing.newest
        if item.state is State.COMMITTED and item.changed >= begin and item.created < item.changed
    ]
    if not within:
        return None
    # A pipeline that began, or a list that ends, within the window is measured over its own time.
    first = min([item.created for item in within])
    read = sum(item.bytes for item in within if item.kind in (Kind.TAIL, Kind.BACKFILL))
    return read / max(_seconds(standing.now - first), 1.0)


def _curve(sightings: Sequence[BacklogSample]) -> list[int]:
    """What was unread at each look, oldest first: bytes, or log groups if the bytes of one look are not known."""
    sizes = [sighting.unread_bytes for sighting in reversed(sightings)]
    known_sizes = [size for size in sizes if size is not None]
    return known_sizes if len(known_sizes) == len(sizes) else [sighting.unread for sighting in reversed(sightings)]


def _seconds(span: timedelta) -> float:
    return max(span.total_seconds(), 0.0)
