"""Plan: pins the ranges of one batch, under the lease; or only shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.ledger.records import LedgerShard, Transaction
from airflow_provider_slshudi.ledger.states import Kind, State
from airflow_provider_slshudi.planning.backfill import plan_backfill
from airflow_provider_slshudi.planning.batch import plan_tail
from airflow_provider_slshudi.planning.windows import ShardWindow, unread
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.protocol.columns import require_fit
from airflow_provider_slshudi.protocol.settle import register, require_alone
from airflow_provider_slshudi.protocol.work import Run, Work
from airflow_provider_slshudi.ranges import Range
from airflow_provider_slshudi.sls.fanout import ask_each
from airflow_provider_slshudi.sls.service import LogService


@dataclass(frozen=True)
class BackfillRequest:
    """What to read again or for the first time: cursors [begin, end) per shard, or a span of receive times
    (unix seconds, half-open) over all shards."""

    cursors: Mapping[int, tuple[int, int]] | None = None
    span: tuple[int, int] | None = None


def tail(work: Work) -> Transaction | None:
    """The next batch of the tail, PLANNED; None where there is nothing new.

    Raises:
        ColumnMismatch: the table's columns cannot become the pipeline's.
        DataExpired: the service dropped what should be read next and the pipeline says `on_expired: fail`.
        BatchUnderWay: see `settle.require_alone`.
    """
    register(work)
    require_fit(work)
    with work.lease():
        require_alone(work)
        return _begun(work) or _begin(work, Kind.TAIL, _tail_ranges(work, work.connect(), save=True))


def preview(work: Work) -> list[Range]:
    """The ranges that the next tail batch would read; nothing is written. Raises as `tail`."""
    require_fit(work)
    return _tail_ranges(work, work.connect(), save=False)


def backfill(work: Work, request: BackfillRequest) -> Transaction | None:
    """The next batch, PLANNED, of what the request names and nobody has; None where that is nothing.

    Raises:
        ColumnMismatch: the table's columns cannot become the pipeline's.
        ConfigError: the request names what the source does not hold, or nothing.
        BatchUnderWay: see `settle.require_alone`.
    """
    register(work)
    require_fit(work)
    with work.lease():
        require_alone(work)
        return _begun(work) or _begin(work, Kind.BACKFILL, _backfill_ranges(work, work.connect(), request, save=True))


def preview_backfill(work: Work, request: BackfillRequest) -> list[Range]:
    """The ranges that the next batch of a backfill would read; nothing is written, and nothing is left once empty."""
    return _backfill_ranges(work, work.connect(), request, save=False)


def _begun(work: Work) -> Transaction | None:
    """What a try of this run that died right after it had planned, with a new token; None where there is nothing."""
    for live in work.ledger.live(work.pipeline.name):
        if Run(live.dag_id, live.run_id) == work.run and live.state is State.PLANNED:
            return work.ledger.take_over(live.id)
    return None


def _begin(work: Work, kind: Kind, ranges: list[Range]) -> Transaction | None:
    if not ranges:
        return None
    reach(Point.PLAN_BEGINNING)
    begun = work.ledger.begin(work.pipeline.name, kind, ranges, work.run.dag_id, work.run.run_id)
    reach(Point.PLAN_BEGUN)
    return begun


def _tail_ranges(work: Work, service: LogService, save: bool) -> list[Range]:
    name, taken = work.pipeline.name, _taken(work)
    shards = _refreshed(work, service, save)
    ends = ask_each(service.end, (shard.id for shard in shards))
    left = unread(((shard.id, shard.first, ends[shard.id]) for shard in shards), taken)
    windows = _windows(service, shards, ends, left)
    return plan_tail(
        name,
        windows,
        taken,
        work.ledger.density(name),
        work.pipeline.batch,
        work.pipeline.source.on_expired,
        lambda: work.ledger.last_shard(name, Kind.TAIL),
    )


def _backfill_ranges(work: Work, service: LogService, request: BackfillRequest, save: bool) -> list[Range]:
    name, taken = work.pipeline.name, _taken(work)
    shards = _refreshed(work, service, save)
    wanted = _wanted(request, service, shards)
    if request.span is not None and not wanted:
        return []
    # Of shards that the request does not name it only counts that they are there.
    ends = {shard.id: shard.first for shard in shards}
    ends |= ask_each(service.end, sorted(wanted.keys() & ends.keys()))
    left = unread(((shard, *wanted[shard]) for shard in sorted(wanted.keys() & ends.keys())), taken)
    windows = _windows(service, shards, ends, left)
    return plan_backfill(name, wanted, windows, taken, work.ledger.density(name), work.pipeline.batch)


def _taken(work: Work) -> list[Range]:
    name = work.pipeline.name
    # In this order: a batch that commits in between is in both, not in neither.
    return [*work.ledger.reserved(name), *work.ledger.coverage(name)]


def _refreshed(work: Work, service: LogService, save: bool) -> list[LedgerShard]:
    """The service's shards with the cursor where our duty for each begins."""
    known = {shard.id: shard.first for shard in work.ledger.shards(work.pipeline.name)}
    found = service.shards()
    first = known | _first_cursors(work, service, [shard.id for shard in found if shard.id not in known], not known)
    listed = [LedgerShard(shard.id, shard.status, shard.hash_begin, shard.hash_end, first[shard.id]) for shard in found]
    if save:
        reach(Point.PLAN_LEASED)
        work.ledger.save_shards(work.pipeline.name, listed)
        reach(Point.PLAN_SHARDS_SAVED)
    return listed


def _first_cursors(work: Work, service: LogService, shards: list[int], first_run: bool) -> dict[int, int]:
    start = work.pipeline.source.start
    # A shard that appears later holds what its parents no longer take: all of it is ours.
    if not first_run or start == "begin":
        return ask_each(service.begin, shards)
    return ask_each(service.end if start == "end" else lambda shard: service.at(shard, int(start)), shards)


def _windows(
    service: LogService, shards: list[LedgerShard], ends: Mapping[int, int], left: list[Range]
) -> list[ShardWindow]:
    """The shards' windows. What expired is asked where something is `left`: only there it can be lost."""
    begins = ask_each(service.begin, sorted({item.shard for item in left}))
    return [
        ShardWindow(shard.id, shard.first, begins.get(shard.id, ends[shard.id]), ends[shard.id]) for shard in shards
    ]


def _wanted(request: BackfillRequest, service: LogService, shards: list[LedgerShard]) -> Mapping[int, tuple[int, int]]:
    if request.cursors is not None:
        return request.cursors
    if request.span is None:
        return {}
    first, last = (_at(service, shards, at) for at in request.span)
    # A shard that received nothing within the span has nothing to give.
    return {shard: (first[shard], last[shard]) for shard in first if first[shard] < last[shard]}


def _at(service: LogService, shards: list[LedgerShard], unix_seconds: int) -> dict[int, int]:
    return ask_each(lambda shard: service.at(shard, unix_seconds), (shard.id for shard in shards))
