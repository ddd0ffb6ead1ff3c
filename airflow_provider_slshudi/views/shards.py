"""The shards of a pipeline: how far each is read, what it came from, and what no batch has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.config.sources import place_of
from airflow_provider_slshudi.ledger.records import LedgerShard, Standing
from airflow_provider_slshudi.planning.ranges import Range, by_shard
from airflow_provider_slshudi.planning.windows import bytes_per_group, unread


@dataclass(frozen=True)
class ShardView:
    """One shard.

    Attributes:
        covered_to: the end of the last committed range; None if nothing was committed.
        unread, unread_bytes: log groups that no committed batch has, and their raw bytes, estimated (None: unknown).
        seconds: the age of the oldest unread log is at most this; None if unknown, or if nothing is unread.
        parents: the shards that this one was split or merged from, as far as key ranges tell.
        covered, running, missing: committed ranges, ranges of live transactions, and what neither has.
    """

    shard: LedgerShard
    covered_to: int | None
    unread: int
    unread_bytes: int | None
    seconds: float | None
    parents: list[int]
    covered: list[Range]
    running: list[Range]
    missing: list[Range]


def shards(standing: Standing) -> list[ShardView]:
    """All shards, by id."""
    covered, running = by_shard(standing.coverage), by_shard(standing.reserved)
    return [
        _view(standing, shard, covered.get(shard.id, []), running.get(shard.id, []))
        for shard in sorted(standing.shards, key=lambda shard: shard.id)
    ]


def _view(standing: Standing, shard: LedgerShard, covered: list[Range], running: list[Range]) -> ShardView:
    duty = [(shard.id, shard.first, shard.end)] if shard.end is not None else []
    unread_ranges = unread(duty, covered)
    since = standing.unread_since.get(shard.id)
    has_size = shard.id in standing.density or not unread_ranges
    return ShardView(
        shard,
        max((item.end for item in covered), default=None),
        sum(map(len, unread_ranges)),
        round(sum(map(len, unread_ranges)) * bytes_per_group(standing.density, shard.id)) if has_size else None,
        standing.now.timestamp() - since if unread_ranges and since is not None else None,
        parents(shard, standing.shards),
        covered,
        running,
        unread(duty, [*covered, *running]),
    )


def parents(shard: LedgerShard, among: Sequence[LedgerShard]) -> list[int]:
    """The closed shards that this one's logs went to before: the newest that share keys with it and are older.

    The service numbers shards in the order of their birth and does not name their parents, so this goes by key ranges.
    """
    if not shard.hash_begin:
        return []
    elders = (item for item in among if item.id < shard.id and place_of(item.id) == place_of(shard.id))
    older = [item for item in elders if item.status != "readwrite" and _share(item, shard)]
    # A grandparent's keys are covered by a parent that was born later.
    return [item.id for item in older if not any(item.id < other.id and _share(item, other) for other in older)]


def _share(one: LedgerShard, other: LedgerShard) -> bool:
    return bool(one.hash_begin) and one.hash_begin < other.hash_end and other.hash_begin < one.hash_end
