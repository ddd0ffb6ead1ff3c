"""How soon a batch brought its logs into the table, and what made it late where more was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Event, Kind, Past, RangeTotals, State, Transaction
from airflow_provider_slshudi.transaction.record import PROMISE, SINCE
from airflow_provider_slshudi.views.words import Text, amount, items, rate, span

NEWEST = 20
"""Among so many batches the tail's newest one is looked for."""
_NEAR = 0.7
"""What is read at such a part of a limit is held up by it."""
_HOT = 2.0
"""A shard is hot that has so many times as much as any other."""
_LONG = 2.0
"""Logs waited for the batch before where that one took so many times as long as their own."""
_RESERVE = 3
"""A promise holds where a batch takes a third of it: one begins a third later at most, and a third is left."""


@dataclass(frozen=True)
class Freshness:
    """How old the oldest log of a batch was when a reader could see it.

    Attributes:
        seconds: from its receipt by the service, by the service's clock, to the commit, at most.
        waited: the part of that before the batch was planned.
        promised: what the pipeline's file promised then; None if it promised nothing.
        shard_limit, total_limit: raw bytes a second that the file lets be read, of a shard and of all.
    """

    seconds: float
    waited: float
    promised: float | None = None
    shard_limit: float | None = None
    total_limit: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether the promise was not kept."""
        return self.promised is not None and self.seconds > self.promised


def freshness_of(batch: Transaction, events: Iterable[Event]) -> Freshness | None:
    """Of a committed batch of the tail; None of any other, or where the service did not tell."""
    if batch.state is not State.COMMITTED:
        return None
    planned = next((event for event in events if event.what == State.PLANNED.value), None)
    plan_items = {} if planned is None else items(planned.detail) or {}
    since = plan_items.get(SINCE)
    if planned is None or since is None:
        return None
    seconds = max(_visible(batch).timestamp() - since, 0.0)
    waited = min(max(planned.at.timestamp() - since, 0.0), seconds)
    return Freshness(seconds, waited, *plan_items.get(PROMISE, ()))


def _visible(batch: Transaction) -> datetime:
    """When the table had it; a settle may tell the ledger of it much later."""
    try:
        completion = datetime.strptime(f"{batch.completed}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
    except ValueError:
        return batch.changed
    # A clock may tell another time.
    return completion if batch.created <= completion <= batch.changed else batch.changed


def newest(past: Sequence[Past]) -> Freshness | None:
    """Of the tail's newest committed batch among these, newest first; None if there is none, or it is not known."""
    batches = _from_newest(past)
    return freshness_of(batches[0].transaction, batches[0].events) if batches else None


def late(ledger: Ledger, past: Sequence[Past]) -> str:
    """Why the tail's newest committed batch among these, newest first, was late; empty if it was not."""
    freshness = newest(past)
    if freshness is None or not freshness.is_late:
        return ""
    batch, *before = (item.transaction for item in _from_newest(past) if item.transaction.kind is Kind.TAIL)
    why = why_late(batch, freshness, ledger.totals(batch.id), before[0] if before else None)
    return Text("batch {id}: {why}", id=batch.id, why=why)


def _from_newest(past: Sequence[Past]) -> Sequence[Past]:
    """The tail's newest committed batch among these, and all that are older."""
    kinds = [(item.transaction.kind, item.transaction.state) for item in past]
    return past[kinds.index(committed_tail) :] if (committed_tail := (Kind.TAIL, State.COMMITTED)) in kinds else ()


def why_late(batch: Transaction, found: Freshness, totals: Iterable[RangeTotals], before: Transaction | None) -> str:
    """What took most of the time of a batch that was late, and what would have it in time.

    `before` is the tail's batch before this one, if that is known.

    Args:
        batch: a committed one.
        found: its freshness.
        totals: rows and bytes of its ranges.
        before: see above.
    """
    took = found.seconds - found.waited
    said = {"age": span(found.seconds), "promised": span(found.promised)}
    summary = Text("its logs were visible after up to {age}, {promised} are promised", **said)

    def of(why: str) -> str:
        return Text("{summary}. {why}", summary=summary, why=why)

    if batch.token > 1:
        return of(Text("Its task died, and another one decided it"))
    if found.waited > took and (why := _why_it_waited(batch, found.waited, took, before)):
        return of(why)
    reading = float((batch.manifest or {}).get("seconds") or 0.0)
    if reading < took / 2:
        fixed = Text(
            "{span} went to what a batch costs whatever its size: starting tasks, starting Spark, commits. Give "
            "Airflow's and Spark's machines more cores, or let the process that stays serve the batches "
            "(SLSHUDI_RESIDENT_SECONDS)",
            span=span(took - reading),
        )
        promise = Text("{fixed}; or promise {span}", fixed=fixed, span=span(_RESERVE * took))
        return of(promise if _RESERVE * took > (found.promised or 0.0) else fixed)
    slow = _slow(batch, found, totals, reading)
    return of(Text("{span} went to reading and writing {slow}", span=span(reading), slow=slow))


def _why_it_waited(batch: Transaction, waited: float, took: float, before: Transaction | None) -> str:
    """Why a batch that itself took less began late; empty where that is not known."""
    if before is None:
        return Text(
            "No batch of the tail came shortly before it: {span} of that are from before its run began",
            span=span(waited),
        )
    pause = (batch.created - before.changed).total_seconds()
    if min(pause, waited) > took:
        return Text(
            "{span} of that passed before its run began. Look whether the DAG was paused, and whether Airflow has free "
            "slots of workers and pools",
            span=span(min(pause, waited)),
        )
    if before.state is State.ABORTED:
        return Text("Batch {id} before it failed, and its logs were read anew: its page says why", id=before.id)
    busy = (before.changed - before.created).total_seconds()
    if busy > _LONG * took:
        spent = span(min(busy, waited))
        return Text(
            "{span} of that passed while batch {id} was worked on: its page says on what", span=spent, id=before.id
        )
    return ""


def _slow(batch: Transaction, found: Freshness, totals: Iterable[RangeTotals], reading: float) -> str:
    shards = Counter[int]()
    for item in totals:
        shards[item.range.shard] += item.bytes
    (hot, most), (_, next_) = [*shards.most_common(2), (0, 0), (0, 0)][:2]
    read = rate(batch.bytes / reading)
    if found.total_limit is not None and batch.bytes / reading > _NEAR * found.total_limit:
        return Text(
            "at {rate}, the most that `source.total_bytes_per_second` allows. Raise it, and the project's quota",
            rate=read,
        )
    if found.shard_limit is not None and most / reading > _NEAR * found.shard_limit:
        if most > _HOT * next_:
            return Text(
                "at {rate}: shard {shard} has {percent} % of the logs, and gives {limit} at most. Split it",
                rate=read,
                shard=hot,
                percent=amount(100 * most / batch.bytes),
                limit=rate(found.shard_limit),
            )
        return Text(
            "at {rate}: its {n} shards give {limit} each at most. Split them, or raise "
            "`source.read_bytes_per_second` if the service allows it",
            rate=read,
            n=len(shards),
            limit=rate(found.shard_limit),
        )
    return Text(
        "at {rate}. Give Spark more cores; or raise the quota, if the task's log tells of throttling", rate=read
    )
