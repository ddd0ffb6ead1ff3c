"""Plan: pins the ranges of one batch, under the lease; or only shows them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from airflow_provider_slshudi.config.sources import by_place, place_of
from airflow_provider_slshudi.exceptions import ConfigError, IllegalTransition, SourceRefused
from airflow_provider_slshudi.handover.names import PARAMS_SOURCE, Act
from airflow_provider_slshudi.ledger.records import GONE, LATE, AuditEntry, Kind, LedgerShard, State, Transaction
from airflow_provider_slshudi.planning.batches import left_to_backfill, plan_backfill, plan_tail
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.shard_order import Keys, waiting
from airflow_provider_slshudi.planning.windows import ShardWindow, reach_of, refuse_other_shards, unread
from airflow_provider_slshudi.sls.service import LogService, Shard
from airflow_provider_slshudi.sls.transport import ask_each
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import backlog, context, record, start_positions
from airflow_provider_slshudi.transaction.columns import require_fit
from airflow_provider_slshudi.transaction.context import Work, is_of
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.record import GAP_ACCEPTED, WHAT_IS_THERE
from airflow_provider_slshudi.transaction.settle import register, require_alone, require_turn

_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, Any] = {}
_OPEN = "readwrite"
"""The service's status of a shard that takes logs."""
_CONSENT_HOLDS = timedelta(hours=1)
"""How long an accepted gap waits for its plan; what is lost later was not accepted."""

LEAST_RETENTION_SECONDS = 86_400
"""The service keeps every log at least this long: its shortest ttl is a day."""
_CLOCKS_SECONDS = 3_600
"""Margin between this machine's clock and the service's, which refuses requests that are a quarter of an hour off."""


@dataclass(frozen=True)
class _Shards:
    """The service's shards.

    Attributes:
        listed: each with the cursor where our duty for it begins.
        ends: their ends, by id.
        open: ids of the shards that take logs.
        gone: shards that the service no longer has.
        late: ids of shards that may have lost logs before a plan saw them.
        since: the first unread log was received then (unix seconds) or later; None if that is not known.
    """

    listed: list[LedgerShard]
    ends: dict[int, int]
    open: frozenset[int]
    gone: list[LedgerShard]
    late: frozenset[int]
    since: int | None = None

    def unread(self, taken: list[Range]) -> list[Range]:
        """What there is that is not `taken`."""
        return unread(((shard.id, shard.first, self.ends[shard.id]) for shard in self.listed), taken)

    def waiting(self, left: Iterable[Range]) -> frozenset[int]:
        """The shards that share keys with an older one which is open, or of which `left` has something.

        Those of different logstores do not wait for one another.
        """
        unfinished = self.open | {item.shard for item in left}
        # Of the many that are gone only these count; the others are long read.
        candidates = (*self.listed, *(shard for shard in self.gone if shard.id in unfinished))
        keys = [
            Keys(item.id, item.hash_begin, item.hash_end, item.id not in unfinished, item.id in self.open)
            for item in candidates
        ]
        by_logstore = by_place(keys, lambda item: item.shard).values()
        return frozenset(shard for mine in by_logstore for shard in waiting(mine))


@dataclass(frozen=True)
class BackfillRequest:
    """What to read where no batch has: cursors [begin, end) per shard, a span of receive times (unix seconds,
    half-open) over all shards, or all that the service holds. Of cursors and everything: what it holds of the cursors.
    """

    cursors: Mapping[int, tuple[int, int]] | None = None
    span: tuple[int, int] | None = None
    everything: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the cursors were named, so that one that the service does not hold is a mistake."""
        return self.cursors is not None and not self.everything


def tail(work: Work, in_turn: bool = False) -> Transaction | None:
    """The next batch of the tail, PLANNED; None where there is nothing new.

    Where a person accepted it (`Act.ACCEPT_GAP`), it records what the service dropped as a gap.

    Raises:
        TailUnderWay: it asks for its turn, and another run of the DAG works on a batch.
        ColumnMismatch: the table's columns cannot become the pipeline's.
        DataExpired: the service dropped unread logs, or may have (a shard is gone, or was found too late), and the
            pipeline says `on_expired: fail`.
        PipelineConflict: the logstore is not the one that was read.
        BatchUnderWay: see `settle.require_alone`.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: see `evidence.require_agreement`.
    """
    if (consent := _consent(work)) is not None:
        return _accepting_gaps(work, consent, in_turn)
    return _tail(work, in_turn)


def _tail(work: Work, in_turn: bool) -> Transaction | None:
    register(work)
    work, request_count = context.counting(work)
    with work.lease():
        require_fit(work, require_agreement(work))
        if in_turn:
            require_turn(work)
        require_alone(work)
        begun = _begun(work)
        if begun is None:
            ranges, since = _tail_ranges(work, work.connect(), save=True)
            begun = _begin(work, Kind.TAIL, ranges, request_count, record.of_plan(work.pipeline, since))
    return _planned(work, begun)


def _consent(work: Work) -> AuditEntry | None:
    """A person's word, not older than an hour and not used yet, that what the service dropped may be missing."""
    newest = work.ledger.audit_entries(work.pipeline.name, 1, Act.ACCEPT_GAP.value)
    return next((d for d in newest if d.result is None and work.ledger.now() - d.at < _CONSENT_HOLDS), None)


def _accepting_gaps(work: Work, consent: AuditEntry, in_turn: bool) -> Transaction | None:
    """The next batch, as `tail`, which records what the service dropped as gaps."""
    source = work.pipeline.source.model_copy(update={"on_expired": "skip"})
    skipping = replace(work, pipeline=work.pipeline.model_copy(update={"source": source}))
    name = work.pipeline.name
    before = {shard.id: shard.status for shard in work.ledger.shards(name)}
    planned = _tail(skipping, in_turn)
    gaps = [item for item in work.ledger.ranges(planned.id) if item.gap] if planned is not None else []
    result = [f"planned as a gap: {item}" for item in gaps]
    for shard in work.ledger.shards(name):
        if shard.status == GONE and before.get(shard.id) not in (GONE, "readonly"):
            result.append(f"shard {shard.id} is gone: what it got after cursor {shard.end} is not known")
        if before.get(shard.id) == LATE and shard.status != LATE:
            result.append(f"what shard {shard.id} got before cursor {shard.first} is not known")
    if not result:
        result.append("nothing that no batch had read is known to be lost")
    work.ledger.answer(name, consent.act, consent.run, "; ".join(result))
    if planned is not None:
        detail = {"by": consent.who, "why": consent.reason, "gaps": [str(item) for item in gaps]}
        work.ledger.note(planned.id, GAP_ACCEPTED, detail)
    return planned


def preview(work: Work) -> list[Range]:
    """The ranges that the next tail batch would read; nothing is written. Raises as `tail`."""
    work.require_unedited()
    require_fit(work)
    return _tail_ranges(work, work.connect(), save=False)[0]


def has_news(work: Work) -> bool:
    """Whether the next plan has something to read, or to say of lost logs; keeps the shards and what it saw of them.

    Raises:
        LeaseHeld: another run decides for the pipeline at the moment.
        PipelineConflict: the pipeline's source or table has changed, or the logstore is not the one that was read.
        SourceError: the service refuses, or does not answer.
    """
    pipeline = work.pipeline
    known_ids = {shard.id for shard in work.ledger.shards(pipeline.name)}
    if not known_ids:
        return True
    # By another's file, its shards would be kept as this pipeline's.
    work.ledger.require(pipeline.name, pipeline.source.identity, pipeline.table.path)
    with work.look_lease() as lease:
        service, taken = work.connect(), _taken(work)
        listed = service.shards()
        if not {shard.id for shard in listed} <= known_ids:
            # The plan asks the table for what it kept of them; a look does not, since it may never answer.
            return True
        shards = _refreshed(work, service, taken, True, listed, lease.renew)
    held = _held(work, shards)
    has_unread = any(item.shard not in held for item in (*shards.unread(taken), *_lost(shards, taken)))
    return has_unread or bool(shards.late) or any(shard.status != GONE for shard in shards.gone)


def backfill(work: Work, request: BackfillRequest) -> Transaction | None:
    """The next batch, PLANNED, of requested cursors that no batch has; None where there are none.

    Raises:
        ColumnMismatch: the table's columns cannot become the pipeline's.
        ConfigError: the request names nothing, or cursors that the source does not hold.
        BatchUnderWay: see `settle.require_alone`.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: see `evidence.require_agreement`.
    """
    register(work)
    work, request_count = context.counting(work)
    with work.lease():
        require_fit(work, require_agreement(work))
        require_alone(work)
        begun = _begun(work)
        if begun is None:
            ranges = _backfill_ranges(work, work.connect(), request, save=True)
            begun = _begin(work, Kind.BACKFILL, ranges, request_count)
            if begun is not None and not request.is_named:
                work.ledger.note(begun.id, WHAT_IS_THERE, {})
    return _planned(work, begun)


def skip(work: Work, wanted: Range) -> Transaction:
    """A batch, PLANNED, that records the unread cursors of `wanted` as gaps and reads nothing.

    Raises:
        ConfigError: the service does not hold these cursors, or all of them were read.
        BatchUnderWay, LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: as `backfill`.
    """
    register(work)
    work, request_count = context.counting(work)
    with work.lease():
        require_fit(work, require_agreement(work))
        require_alone(work)
        gaps = [replace(item, gap=True) for item in left_of(work, request_of(wanted))]
        begun = _begin(work, Kind.BACKFILL, gaps, request_count)
    if begun is None:
        why = f"cursors: {wanted} of pipeline {work.pipeline.name}: a batch has read all of it, or records it as a gap"
        raise ConfigError(why, source=PARAMS_SOURCE, field="cursors", value=str(wanted))
    return begun


def request_of(item: Range) -> BackfillRequest:
    """The request for the cursors of one shard."""
    return BackfillRequest(cursors={item.shard: (item.begin, item.end)})


def pinned(work: Work, request: BackfillRequest) -> BackfillRequest:
    """The request as cursors; everything, or a span that is not over, ends where the service's shards end now."""
    if request.cursors is not None:
        return request
    service = work.connect()
    # Saves no shard: the plan does that.
    shards = _refreshed(work, service, _taken(work), save=False)
    return BackfillRequest(cursors=_wanted(request, service, shards.listed), everything=True)


def left_of(work: Work, request: BackfillRequest) -> list[Range]:
    """All ranges that a backfill would read, in as many batches as it takes; writes nothing."""
    work.require_unedited()
    service, taken = work.connect(), _taken(work)
    cursors, windows = _asked(service, request, taken, _refreshed(work, service, taken, save=False))
    return left_to_backfill(work.pipeline.name, cursors, windows, taken) if cursors else []


def preview_backfill(work: Work, request: BackfillRequest) -> list[Range]:
    """The ranges that a backfill's next batch would read, empty once nothing is left; writes nothing."""
    return _backfill_ranges(work, work.connect(), request, save=False)


def _begun(work: Work) -> Transaction | None:
    """The transaction that a dead try of this run planned, with a new token; None where there is none.

    Raises:
        IllegalTransition: the run's transaction is further than PLANNED.
    """
    for live in work.ledger.live(work.pipeline.name):
        if not is_of(work.ledger, live, work.run):
            continue
        if live.state is not State.PLANNED:
            raise IllegalTransition(
                f"this run planned transaction {live.id} before, which is {live.state.value}: a run has one batch, so "
                "nothing is planned. The next run's settle decides it; clear a run from its settle on, or leave it",
                transaction=live.id,
                found=live.state.value,
                wanted=State.PLANNED.value,
            )
        taken = work.ledger.take_over(live.id)
        # The dead try's process stands there yet.
        work.ledger.heartbeat(taken.id, taken.token)
        return work.ledger.get(taken.id)
    return None


def _planned(work: Work, begun: Transaction | None) -> Transaction | None:
    if begun is not None:
        work.release(begun.id, begun.token)
    return begun


def _begin(
    work: Work, kind: Kind, ranges: list[Range], asked: Callable[[], int], told: Mapping[str, Any] = _NOTHING
) -> Transaction | None:
    if not ranges:
        return None
    if work.ledger.has_written(work.pipeline.name):
        start_positions.keep(work)
    reach(Point.PLAN_BEGINNING)
    more = {context.REQUESTS: asked(), **told}
    run = work.run
    begun = work.ledger.begin(work.pipeline.name, kind, ranges, run.dag_id, run.run_id, more, run.airflow)
    reach(Point.PLAN_BEGUN)
    return begun


def _tail_ranges(work: Work, service: LogService, save: bool) -> tuple[list[Range], int | None]:
    """The ranges, and since when the oldest log is unread, as far as a look that is kept tells."""
    name, taken = work.pipeline.name, _taken(work)
    shards = _refreshed(work, service, taken, save)
    unread_ranges = shards.unread(taken)
    held = _held(work, shards)
    ranges = plan_tail(
        name,
        [*_windows(service, shards, unread_ranges), *_last_windows(shards.gone, taken)],
        taken,
        work.ledger.density(name),
        work.pipeline.batch,
        work.pipeline.source.on_expired,
        lambda: work.ledger.last_shard(name, Kind.TAIL),
        held,
    )
    if save:
        _let_go(work, shards)
    # What another batch reads at the moment is older, and not of this one.
    return ranges, None if work.ledger.reserved(name) else shards.since


def _backfill_ranges(work: Work, service: LogService, request: BackfillRequest, save: bool) -> list[Range]:
    name, taken = work.pipeline.name, _taken(work)
    shards = _refreshed(work, service, taken, save)
    cursors, windows = _asked(service, request, taken, shards)
    if not request.is_named and not cursors:
        return []
    unread_ranges = unread(((shard, *cursors[shard]) for shard in sorted(cursors.keys() & shards.ends.keys())), taken)
    held = shards.waiting(unread_ranges) if work.pipeline.in_order else frozenset[int]()
    return plan_backfill(name, cursors, windows, taken, work.ledger.density(name), work.pipeline.batch, held)


def _asked(
    service: LogService, request: BackfillRequest, taken: list[Range], found: _Shards
) -> tuple[Mapping[int, tuple[int, int]], list[ShardWindow]]:
    """The request as cursors, and what the service holds of their shards."""
    cursors = dict(_wanted(request, service, found.listed))
    unread_ranges = unread(((shard, *cursors[shard]) for shard in sorted(cursors.keys() & found.ends.keys())), taken)
    windows = _windows(service, found, unread_ranges)
    if not request.is_named:
        # The request names no cursors: the oldest log of a moment ago may have expired, and more may have come since.
        held = {window.shard: (window.service_begin, window.service_end) for window in windows}
        clamped = {
            shard: (max(begin, held[shard][0]), min(end, held[shard][1]))
            for shard, (begin, end) in cursors.items()
            if shard in held
        }
        cursors = {shard: (begin, end) for shard, (begin, end) in clamped.items() if begin < end}
    return cursors, windows


def _held(work: Work, found: _Shards) -> frozenset[int]:
    """The shards whose logs would overtake those of an older one, where the pipeline's batches go in order.

    What a batch reads at the moment counts as unread: it may be given up.
    """
    if not work.pipeline.in_order:
        return frozenset()
    covered = work.ledger.coverage(work.pipeline.name)
    held = found.waiting([*found.unread(covered), *_lost(found, covered)])
    if held:
        _log.info(
            "pipeline %s: shards that wait for older ones with the same keys: %s", work.pipeline.name, sorted(held)
        )
    return held


def _lost(found: _Shards, taken: list[Range]) -> list[Range]:
    """What shards that are gone had, and no batch has taken."""
    lost = _last_windows(found.gone, taken)
    return unread(((item.shard, item.duty_begin, item.service_end) for item in lost), taken)


def _taken(work: Work) -> list[Range]:
    name = work.pipeline.name
    # In this order: a batch that commits in between is in both, not in neither.
    return [*work.ledger.reserved(name), *work.ledger.coverage(name)]


def _refreshed(
    work: Work,
    service: LogService,
    taken: list[Range],
    save: bool,
    listed: Iterable[Shard] | None = None,
    renew: Callable[[], None] = lambda: None,
) -> _Shards:
    """The service's shards of now, of which `listed` was read a moment ago; `save` puts them into the ledger.

    A shard is gone if the service neither lists it nor answers for it. A late shard is saved as LATE: so the tail's
    plan keeps reporting it, and the ledger does not forget it once the service deletes it.

    Raises:
        PipelineConflict: a shard is not the one that was read.
    """
    name, asked_at = work.pipeline.name, work.ledger.now()
    listed_shards = {shard.id: shard for shard in (service.shards() if listed is None else listed)}
    ledger_shards = _known(work, listed_shards.keys())
    unlisted = [shard for shard in ledger_shards.values() if shard.id not in listed_shards]
    unlisted_ends = ask_each(service.end_if_there, (shard.id for shard in unlisted if shard.status != GONE))
    gone_shards = [shard for shard in unlisted if unlisted_ends.get(shard.id) is None]
    # After the list: a shard that was closed then does not grow any more.
    ends = ask_each(service.end, listed_shards) | {
        shard: end for shard, end in unlisted_ends.items() if end is not None
    }
    first = {id_: shard.first for id_, shard in ledger_shards.items()}
    known_places = {place_of(id_) for id_ in ledger_shards}
    unknown = [id_ for id_ in listed_shards if id_ not in ledger_shards]
    first |= _first_cursors(work, service, unknown, known_places, ends)
    unsure = {id_ for id_, shard in ledger_shards.items() if shard.status == LATE}
    oldest = ask_each(service.begin, sorted(unsure & ends.keys()))
    first |= {id_: min(first[id_], begin) for id_, begin in oldest.items()}
    appeared = [id_ for id_ in unknown if place_of(id_) in known_places]
    doubtful = [listed_shards[id_] for id_ in (*appeared, *sorted(unsure & listed_shards.keys()))]
    # A shard that is not listed has no known age.
    late = _late(service, doubtful) | (unsure - listed_shards.keys())
    present_shards = [
        LedgerShard(id_, shard.status, shard.hash_begin, shard.hash_end, first[id_], ends[id_])
        for id_, shard in sorted((ledger_shards | listed_shards).items())
        if id_ in ends
    ]
    refuse_other_shards(name, ((shard.id, shard.first, ends[shard.id]) for shard in present_shards), taken)
    since = None
    if save:
        reach(Point.PLAN_LEASED)
        renew()
        new_shards = (listed_shards[id_] for id_ in unknown if place_of(id_) not in known_places)
        for of_logstore in by_place(new_shards, lambda shard: shard.id).values():
            if expired_before := _lost_before(work, service, of_logstore):
                work.ledger.lose(name, expired_before, 1)
        if unseen := _unseen(ledger_shards.keys(), listed_shards.keys()):
            work.ledger.lose(name, int(work.ledger.now().timestamp()), unseen)
        # Also shards that only the table told of: without the ledger they would be asked for only once.
        saved_shards = [replace(shard, status=LATE) if shard.id in late else shard for shard in present_shards]
        work.ledger.save_shards(name, [*saved_shards, *gone_shards])
        reach(Point.PLAN_SHARDS_SAVED)
        since = backlog.look(work, present_shards, ledger_shards, asked_at, service.listed)
    takes_logs = frozenset(id_ for id_, shard in listed_shards.items() if shard.status == _OPEN)
    return _Shards(present_shards, ends, takes_logs, gone_shards, late, since)


def _known(work: Work, found: Collection[int]) -> dict[int, LedgerShard]:
    """The ledger's shards; where it lacks some of the service's, also the shards that the table keeps."""
    ledger_shards = {shard.id: shard for shard in work.ledger.shards(work.pipeline.name)}
    if ledger_shards.keys() >= set(found):
        return ledger_shards
    return start_positions.read(work).shards() | ledger_shards


def _late(service: LogService, doubtful: Sequence[Shard]) -> frozenset[int]:
    """Ids of the doubtful shards that are, or may be, older than the logs that the logstore keeps."""
    now, late = time.time(), set[int]()
    for shards in by_place(doubtful, lambda shard: shard.id).values():
        if all(now - shard.created < LEAST_RETENTION_SECONDS - _CLOCKS_SECONDS for shard in shards):
            continue
        retention, changed = _retention(service.of_shard(shards[0].id)) or (LEAST_RETENTION_SECONDS, 0)
        for shard in shards:
            # The retention before its last change is not known.
            kept_for = LEAST_RETENTION_SECONDS if changed > shard.created else retention
            if now - shard.created >= kept_for - _CLOCKS_SECONDS:
                late.add(shard.id)
    return frozenset(late)


def _unseen(known: Collection[int], listed: Collection[int]) -> int:
    """How many shards came and went between two lists: the service counts shards up, and keeps each for a day."""
    known_by, listed_by = by_place(known, int), by_place(listed, int)
    return sum(
        len(set(range(max(known_by[place]) + 1, max(listed_by[place]))) - set(listed_by[place]))
        for place in known_by.keys() & listed_by.keys()
    )


def _lost_before(work: Work, service: LogService, listed: Sequence[Shard]) -> int | None:
    """Before which time (unix seconds) a logstore received logs that expired before its first plan.

    None: none can have. What the file's `source.start` leaves out is not meant.
    """
    start = work.pipeline.source.start
    if start == "end" or not _late(service, listed):
        return None
    retention, changed = _retention(service.of_shard(listed[0].id)) or (LEAST_RETENTION_SECONDS, 0)
    now = time.time()
    age = LEAST_RETENTION_SECONDS if now - changed < retention else retention
    expired_before = int(now - age) + _CLOCKS_SECONDS
    return expired_before if start == "begin" or int(start) < expired_before else None


def _retention(service: LogService) -> tuple[int, int] | None:
    try:
        return service.retention()
    except SourceRefused:  # this key may not ask
        return None


def _last_windows(gone: list[LedgerShard], taken: list[Range]) -> list[ShardWindow]:
    """The windows of shards that are gone, as last seen; nothing in them can be read."""
    reached = reach_of(taken)
    windows = []
    for shard in gone:
        end = max(shard.first, shard.end or 0, reached.get(shard.id, 0))
        windows.append(ShardWindow(shard.id, shard.first, end, end, open_end=not shard.end_known))
    return windows


def _let_go(work: Work, found: _Shards) -> None:
    """Accepts the ends of gone shards and the begins of late ones in the ledger; logs what was never read.

    Later plans still contain all that is unread up to such an end.
    """
    name = work.pipeline.name
    for shard in found.gone:
        if not shard.end_known:
            _log.warning(
                "pipeline %s: shard %d is gone and was open when its end, %s, was last asked; what it got later was "
                "never read, which `on_expired: skip` accepts",
                name,
                shard.id,
                shard.end,
            )
    late = [shard for shard in found.listed if shard.id in found.late]
    for shard in late:
        _log.warning(
            "pipeline %s: shard %d is older than what its logstore keeps and was not seen before; what it got before "
            "cursor %d was never read, which `on_expired: skip` accepts",
            name,
            shard.id,
            shard.first,
        )
    changed = [*(replace(shard, status=GONE) for shard in found.gone if shard.status != GONE), *late]
    if unknown := [*(shard for shard in found.gone if not shard.end_known), *late]:
        work.ledger.lose(name, int(work.ledger.now().timestamp()), len(unknown))
    if changed:
        work.ledger.save_shards(name, changed)


def _first_cursors(
    work: Work, service: LogService, shards: list[int], known_places: Collection[int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Where the duty for new `shards` begins: at their `ends` at the latest, which were asked a moment ago.

    A logstore takes logs meanwhile, so its end of now, and where all expire its begin too, is a later cursor.

    Args:
        work: the pipeline's.
        service: of its logstores.
        shards: those that the ledger does not know.
        known_places: the logstores of which it knows shards.
        ends: the ends of all shards.
    """
    start = work.pipeline.source.start

    def first(shard: int) -> int:
        # A shard that appears later holds what its parents no longer take: all of it is ours.
        if start == "begin" or place_of(shard) in known_places:
            return service.begin(shard)
        return ends[shard] if start == "end" else service.at(shard, int(start))

    return {shard: min(cursor, ends[shard]) for shard, cursor in ask_each(first, shards).items()}


def _windows(service: LogService, found: _Shards, left: list[Range]) -> list[ShardWindow]:
    """The shards' windows. Asks for the oldest retained cursor only where ranges are unread (`left`)."""
    begins = ask_each(service.begin, sorted({item.shard for item in left}))
    windows = []
    for shard in found.listed:
        end = found.ends[shard.id]
        late = shard.id in found.late
        windows.append(ShardWindow(shard.id, shard.first, begins.get(shard.id, end), end, open_begin=late))
    return windows


def _wanted(request: BackfillRequest, service: LogService, shards: list[LedgerShard]) -> Mapping[int, tuple[int, int]]:
    if request.cursors is not None:
        return request.cursors
    if request.everything:
        begins = ask_each(service.begin, (shard.id for shard in shards))
        held = {shard.id: (begins[shard.id], shard.end or 0) for shard in shards}
        return {shard: (begin, end) for shard, (begin, end) in held.items() if begin < end}
    if request.span is None:
        return {}
    first, last = (_at(service, shards, moment) for moment in request.span)
    # A shard that received nothing within the span has nothing to give.
    return {shard: (first[shard], last[shard]) for shard in first if first[shard] < last[shard]}


def _at(service: LogService, shards: list[LedgerShard], unix_seconds: int) -> dict[int, int]:
    return ask_each(lambda shard: service.at(shard, unix_seconds), (shard.id for shard in shards))
