"""Samples of the backlog: how far the service's shards are ahead of what batches have read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_slshudi.exceptions import ConfigError, LedgerError, SourceError, SourceRefused
from airflow_provider_slshudi.ledger.records import GONE, BacklogSample, LedgerShard
from airflow_provider_slshudi.planning.ranges import Density, Range, by_shard
from airflow_provider_slshudi.planning.watermark import Mark
from airflow_provider_slshudi.planning.windows import estimate, reach_of, unread
from airflow_provider_slshudi.sls.faults import PERSON
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.sls.transport import ask_each
from airflow_provider_slshudi.transaction.context import Work


@dataclass(frozen=True, slots=True)
class Seen:
    """A shard at one look: where this pipeline's duty begins, its end, and its end at the look before, if any."""

    shard: int
    first: int
    end: int
    before: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is unread, and what came since the look before (None: there was none); bytes are estimates or None."""

    unread: list[Range]
    unread_bytes: int | None
    came: int | None
    came_bytes: int | None


def backlog(shards: Sequence[Seen], covered: Sequence[Range], density: Mapping[int, Density]) -> Backlog:
    """Compares the shards' ends with the coverage and with the look before.

    A shard that the look before did not have counts with all its logs: they came since.
    """
    unread_ranges = unread(((shard.shard, shard.first, shard.end) for shard in shards), covered)
    if all(shard.before is None for shard in shards):
        return Backlog(unread_ranges, _bytes(unread_ranges, density), None, None)
    begins = ((shard, shard.first if shard.before is None else shard.before) for shard in shards)
    came = [Range(shard.shard, begin, shard.end) for shard, begin in begins if begin < shard.end]
    return Backlog(unread_ranges, _bytes(unread_ranges, density), sum(map(len, came)), _bytes(came, density))


def _bytes(ranges: list[Range], density: Mapping[int, Density]) -> int | None:
    """An estimate, None where no batch has shown how large log groups are."""
    return round(estimate(ranges, density)) if density or not ranges else None


def first_unread(left: Sequence[Range]) -> dict[int, int]:
    """The first unread cursor of each shard that has one."""
    return {shard: mine[0].begin for shard, mine in by_shard(left).items()}


_log = logging.getLogger(__name__)
SERVICE_CLOCKS_SECONDS = 5
"""How far the clocks of the service's machines may differ."""
_RETENTION_STAYS = timedelta(hours=1)
"""How long the answer to "how long are logs kept" counts; it changes by hand, and costs a request."""


def look(
    work: Work,
    shards: Iterable[LedgerShard],
    before: Mapping[int, LedgerShard],
    at: datetime,
    listed: int | None,
) -> int | None:
    """Keeps what the `shards` say of the pipeline, and never fails: a plan does not depend on figures.

    Returns `BacklogSample.unread_since`.

    Asks the service for the age of unread logs where the look before does not tell it. Where it does not answer
    within seconds, that stays unknown.

    Args:
        before: the shards as the ledger had them until now.
        at: a time before the shards' ends were asked: what came later is younger.
        listed: the service's time (unix seconds) when it listed its shards; None where it told none.
    """
    try:
        service = work.connect()
        service.patience = PERSON
        return _look(work, service, shards, before, at, listed)
    except (SourceError, ConfigError, LedgerError) as error:
        _log.warning("what this plan saw of the service is not kept: %s", error)
        return None


def _look(
    work: Work,
    service: LogService,
    shards: Iterable[LedgerShard],
    before: Mapping[int, LedgerShard],
    now: datetime,
    listed: int | None,
) -> int | None:
    name = work.pipeline.name
    last = next(iter(work.ledger.backlog_samples(name, 1)), None)
    former_ends = {id_: shard.end for id_, shard in before.items()}
    shard_ends = [
        Seen(shard.id, shard.first, shard.end, former_ends.get(shard.id)) for shard in shards if shard.end is not None
    ]
    current_backlog = backlog(shard_ends, work.ledger.coverage(name), work.ledger.density(name))
    # What came after the look before is younger than that, which is too little to say where a freshness is promised.
    looked = None if last is None or work.pipeline.promised is not None else last.at
    first_cursors = first_unread(current_backlog.unread)
    since = _since(service, shard_ends, first_cursors, looked)
    if work.pipeline.lateness is not None and listed is not None:
        safely = listed - SERVICE_CLOCKS_SECONDS
        readable_cursors = _still_held(service, first_cursors)
        marks = _marks(shard_ends, readable_cursors, since, looked, safely)
        # What came until the ends were known may lie on either side of them.
        seconds = round((work.ledger.now() - now).total_seconds()) + 2 * SERVICE_CLOCKS_SECONDS
        work.ledger.save_look(name, safely, marks, seconds, work.pipeline.source.start)
    ages = [moment for moment in since.values() if moment is not None]
    sighting = BacklogSample(
        now,
        current_backlog.came,
        current_backlog.came_bytes,
        sum(map(len, current_backlog.unread)),
        current_backlog.unread_bytes,
        # One unknown age may be the oldest.
        min(ages) if ages and len(ages) == len(since) else None,
        _kept(work, service, now),
    )
    work.ledger.save_backlog_sample(name, sighting, {item.shard: since.get(item.shard) for item in shard_ends})
    return sighting.unread_since


def _marks(
    shards: Iterable[Seen],
    unread: Mapping[int, int],
    since: Mapping[int, int | None],
    looked: datetime | None,
    listed: int,
) -> dict[int, list[Mark]]:
    """What a look tells of each shard's receive times: by its end, and by its first unread log where it was asked.

    Args:
        shards: as they were seen.
        unread: the first unread cursor of each that the service still holds.
        since: when its log was received, see `_since`.
        looked: the `last` of `_since`, whose time is the ledger's.
        listed: the service's time before these ends were asked.
    """
    marks = {shard.shard: [Mark(shard.end, listed)] for shard in shards}
    for shard in shards:
        received, cursor = since.get(shard.shard), unread.get(shard.shard)
        was_asked = looked is None or shard.before is None or (cursor is not None and cursor < shard.before)
        if cursor is not None and received is not None and was_asked:
            # A machine whose clock is behind may have stamped a later log with an earlier time.
            marks[shard.shard].append(Mark(cursor, received - SERVICE_CLOCKS_SECONDS))
    return marks


def _still_held(service: LogService, unread: Mapping[int, int]) -> dict[int, int]:
    """Those of the first unread cursors of which the log is there: of one that expired, a later log's time is told."""
    try:
        begins = ask_each(service.begin, unread)
    except SourceError as error:
        _log.info("which unread logs are still there is not known: %s", error)
        return {}
    return {shard: cursor for shard, cursor in unread.items() if begins[shard] <= cursor}


def is_left(work: Work) -> bool:
    """Whether the newest look saw logs that no committed batch has; asks the ledger alone."""
    name = work.pipeline.name
    shards = [shard for shard in work.ledger.shards(name) if shard.status != GONE]
    ends = ((shard.id, shard.first, shard.end) for shard in shards if shard.end is not None)
    return bool(unread(ends, work.ledger.coverage(name)))


@dataclass(frozen=True)
class Behind:
    """How far one shard is behind.

    Attributes:
        covered_to: the end of the last committed range, or where duty begins.
        unread, unread_bytes: log groups that no committed batch has; their raw bytes, estimated (None: unknown).
        seconds: the age of the oldest of them; 0 where there is none, None where the service does not say.
    """

    shard: int
    covered_to: int
    end: int
    unread: int
    unread_bytes: int | None
    seconds: float | None


def behind(work: Work) -> list[Behind]:
    """Asks the service how far each shard is behind now; changes nothing. Shards that no plan has seen are left out.

    Raises:
        SourceError: the service refuses, or does not answer.
    """
    name, service = work.pipeline.name, work.connect()
    shards = [shard for shard in work.ledger.shards(name) if shard.status != GONE]
    ends = ask_each(service.end_if_there, (shard.id for shard in shards))
    shard_ends = [(shard, end) for shard in shards if (end := ends[shard.id]) is not None]
    covered, density = work.ledger.coverage(name), work.ledger.density(name)
    unread_ranges = unread(((shard.id, shard.first, end) for shard, end in shard_ends), covered)
    reached, unread_of, now = reach_of(covered), by_shard(unread_ranges), time.time()
    ages = _since(service, [], first_unread(unread_ranges), None)
    lags = []
    for shard, end in shard_ends:
        mine = unread_of.get(shard.id, [])
        received = ages.get(shard.id)
        size = round(estimate(mine, density)) if shard.id in density or not mine else None
        seconds = 0.0 if not mine else None if received is None else max(now - received, 0.0)
        to = max(shard.first, reached.get(shard.id, 0))
        lags.append(Behind(shard.id, to, end, sum(map(len, mine)), size, seconds))
    return lags


def _since(
    service: LogService, seen: Iterable[Seen], unread: Mapping[int, int], last: datetime | None
) -> dict[int, int | None]:
    """For each shard with unread logs when the first of them was received, at the earliest; None if unknown."""
    ends = {item.shard: item.before for item in seen}
    since: dict[int, int | None] = {}
    shards_to_ask = []
    for shard, cursor in unread.items():
        end = ends.get(shard)
        if last is not None and end is not None and cursor >= end:
            since[shard] = int(last.timestamp())  # it came after the look before
        else:
            shards_to_ask.append(shard)

    failed: list[SourceError] = []

    def ask(shard: int) -> int | None:
        if failed:  # one is enough: the others would wait for as long
            return None
        try:
            return service.received(shard, unread[shard])
        except SourceError as error:
            failed.append(error)
            _log.info("the age of unread logs is not known: %s", error)
            return None

    return since | ask_each(ask, shards_to_ask)


def _kept(work: Work, service: LogService, now: datetime) -> int | None:
    """How many seconds the logstore keeps logs, asked once an hour; None where this key may not know."""
    former_retention = work.ledger.retention_seen(work.pipeline.name)
    if former_retention is not None and now - former_retention.at < _RETENTION_STAYS:
        return None
    try:
        retention = service.retention()
    except SourceRefused:  # this key may not ask
        return None
    except SourceError as error:
        _log.info("how long logs are kept is not known: %s", error)
        return None
    return None if retention is None else retention[0]
