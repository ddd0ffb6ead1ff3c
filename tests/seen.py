"""Pipelines in a ledger as their runs leave them: shards, batches, looks at the service, failures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import BacklogSample, Kind, LedgerShard, RangeTotals, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark
from airflow_provider_slshudi.transaction.context import CPU, REQUESTS
from airflow_provider_slshudi.transaction.record import PROMISE, SINCE

GROUP = 1_000
"""Raw bytes of a log group; it holds ten logs."""
LAST = "f" * 32


def registered(ledger: Ledger, name: str, shards: int = 1, end: int = 100) -> None:
    """A pipeline whose shards begin at 0 and were last seen to end at `end`."""
    ledger.register(name, f"sls://ads/{name}", f"file:///lake/{name}")
    ledger.save_shards(name, [LedgerShard(id_, "readwrite", "0" * 32, LAST, 0, end) for id_ in range(shards)])


def saw(
    ledger: Ledger,
    name: str,
    unread: int,
    *,
    came: int | None = None,
    since: int | None = None,
    kept: int | None = None,
    seconds_ago: float = 0,
    shards: int = 1,
) -> None:
    """A look at the service, some time ago; `since` is the age in seconds of the oldest unread log of each shard."""
    now = ledger.now()
    of_shard = None if since is None else int(now.timestamp()) - since
    sighting = BacklogSample(
        now - timedelta(seconds=seconds_ago),
        came,
        None if came is None else came * GROUP,
        unread,
        unread * GROUP,
        of_shard,
        kept,
    )
    ledger.save_backlog_sample(name, sighting, dict.fromkeys(range(shards), of_shard))


def looked(ledger: Ledger, name: str, at: int, cursors: Mapping[int, int]) -> None:
    """A look at a time of the service (unix seconds) that found each shard to end at a cursor."""
    ledger.save_look(name, at, {shard: [Mark(cursor, at)] for shard, cursor in cursors.items()})


def planned(ledger: Ledger, name: str, ranges: list[Range], run: str, dag: str = "") -> Transaction:
    """A batch that is PLANNED, with four requests, whose oldest log came a minute before; five are promised."""
    since = int(ledger.now().timestamp()) - 60
    more = {REQUESTS: 4, SINCE: since, PROMISE: [300.0, 10e6, None]}
    return ledger.begin(name, Kind.TAIL, ranges, dag or f"{name}_tail", run, more)


def committed(
    ledger: Ledger,
    name: str,
    ranges: list[Range],
    run: str,
    last_time: int = 1_700_000_000,
    partitions: Mapping[str, int] | None = None,
) -> Transaction:
    """A batch that went all the way; its instant is its id's digits."""
    found = planned(ledger, name, ranges, run)
    instant = found.id.replace("T", "")[:17]
    ledger.opened(found.id, 1, instant, {CPU: 0.5})
    totals = [
        RangeTotals(item, len(item) * 10, len(item) * GROUP, last_time - 60, last_time)
        for item in ranges
        if not item.gap
    ]
    facts = {"files": 2, "stored": 5_000, "misfits": {"price": 3}, "unfit": 3, "examples": ["shard 0: price 'x'"]}
    facts |= {"spent": {"requests": 6, "driver": 2.0, "tasks": 1.25}}
    ledger.prepared(found.id, 1, facts, totals, partitions=partitions)
    return ledger.committed(found.id, 1, f"{int(instant) + 5}", {CPU: 0.25})
