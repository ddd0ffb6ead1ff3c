"""Windows of a shard's cursors for one batch, and pieces of them for tasks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import PipelineConflict
from airflow_provider_slshudi.planning.ranges import Density, Range, by_shard, subtract

DEFAULT_BYTES_PER_GROUP = 64 * 1024
MOST_BYTES_PER_GROUP = 10 * 1024 * 1024
"""What the service takes by one request, which makes one log group at least.
https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-putlogs"""
MOST_RANGES = 5_000
"""The most ranges of one batch. Each is in the commit's extra metadata with at most 80 characters, so 400 KB in all,
about what Hudi itself keeps there of the files of a batch over so many shards."""


@dataclass(frozen=True, slots=True)
class ShardWindow:
    """A shard's cursors from `duty_begin` on, where this pipeline's duty begins (`LedgerShard.first`).

    The service holds [service_begin, service_end) and will write the next log group at `service_end`. `service_begin`
    counts only where something is left to read. For a deleted shard both are its last known end; `open_end` says that
    the shard was still open then, so more may have followed. `open_begin` says that logs before `duty_begin`, if there
    were any, were ours too and are gone.
    """

    shard: int
    duty_begin: int
    service_begin: int
    service_end: int
    open_end: bool = False
    open_begin: bool = False


def unread(duties: Iterable[tuple[int, int, int]], taken: Iterable[Range]) -> list[Range]:
    """The parts of each duty (shard, its begin, the shard's end) that are not `taken`."""
    return subtract((Range(shard, begin, end) for shard, begin, end in duties if begin < end), taken)


def refuse_other_shards(pipeline: str, shards: Iterable[tuple[int, int, int]], taken: Iterable[Range]) -> None:
    """Checks that the shards (id, begin of the duty, the service's end) are those that were read before.

    A logstore that was deleted and created again counts from elsewhere, so its new logs would pass for read ones.

    Raises:
        PipelineConflict: a shard ends before a cursor that is known of it.
    """
    reached = reach_of(taken)
    for shard, duty_begin, end in shards:
        reach = max(duty_begin, reached.get(shard, 0))
        if end < reach:
            raise PipelineConflict(
                f"pipeline {pipeline}: shard {shard} ends at cursor {end}, but the ledger knows it up to {reach}: its "
                "logstore was deleted and created again, or the name leads elsewhere. Register a pipeline of another "
                "name and table for the new logstore",
                pipeline=pipeline,
                other=f"shard {shard} that ends at {end}",
            )


def reach_of(ranges: Iterable[Range]) -> dict[int, int]:
    """The last end of each shard's ranges."""
    return {shard: max(item.end for item in mine) for shard, mine in by_shard(ranges).items()}


def bytes_per_group(density: Mapping[int, Density], shard: int, unknown: float = DEFAULT_BYTES_PER_GROUP) -> float:
    """The raw bytes expected of a log group; `unknown` where nothing was learnt yet."""
    shard_density = density.get(shard)
    return max(shard_density.bytes, 1.0) if shard_density is not None else float(unknown)


def estimate(
    ranges: Iterable[Range], density: Mapping[int, Density], unknown: float = DEFAULT_BYTES_PER_GROUP
) -> float:
    """The raw bytes expected of `ranges`; gaps have none. A log group counts as in `bytes_per_group`."""
    return sum(len(item) * bytes_per_group(density, item.shard, unknown) for item in ranges if not item.gap)


def filled(groups: Mapping[int, int], density: Mapping[int, Density]) -> dict[int, Density]:
    """The density of each shard of which there are log groups; empty if no batch tells any.

    Of a shard without a batch the others tell: those here by their log groups, or else all alike.
    """
    weights = {shard: count for shard, count in groups.items() if shard in density and count}
    weights = weights or dict.fromkeys(density, 1)
    whole = sum(weights.values())
    if not whole:
        return {}
    mean = Density(
        sum(density[shard].bytes * count for shard, count in weights.items()) / whole,
        sum(density[shard].rows * count for shard, count in weights.items()) / whole,
    )
    return {shard: density.get(shard, mean) for shard in groups}


def sizes(groups: Mapping[int, int], density: Mapping[int, Density]) -> tuple[int | None, int | None]:
    """Raw bytes and rows expected of so many log groups of each shard, by `filled`; None where that is empty."""
    if not any(groups.values()):
        return 0, 0
    if not density:
        return None, None
    densities = [(count, density[shard]) for shard, count in groups.items()]
    return (
        round(sum(count * shard_density.bytes for count, shard_density in densities)),
        round(sum(count * shard_density.rows for count, shard_density in densities)),
    )


def limit(ranges: Sequence[Range], density: Mapping[int, Density], max_bytes: int) -> list[Range]:
    """The beginning of each shard's sorted `ranges`, together about `max_bytes`.

    All shards get the same part of their backlog, so they reach the end together and a hot shard gets its share.
    Each gets one log group at least, so none waits for ever.
    """
    backlog = estimate(ranges, density)
    if backlog <= max_bytes:
        return list(ranges)
    taken: list[Range] = []
    for mine in by_shard(ranges).values():
        # Whole numbers: a cursor times a float would lose its last digits.
        groups = sum(map(len, mine))
        quota = max(1, math.floor(groups * (max_bytes / backlog)))
        for item in mine:
            if quota <= 0:
                break
            taken.append(Range(item.shard, item.begin, min(item.end, item.begin + quota)))
            quota -= len(item)
    return taken


def in_turn(ranges: Sequence[Range], after: int | None, most: int = MOST_RANGES) -> list[Range]:
    """At most `most` of the sorted `ranges`, sorted: shards take turns, and the one after shard `after` is next."""
    if len(ranges) <= most:
        return list(ranges)
    first = 0 if after is None else bisect_right(ranges, after, key=lambda item: item.shard)
    return sorted([*ranges[first:], *ranges[:first]][:most])


def split(ranges: Sequence[Range], density: Mapping[int, Density], tasks: int, target_bytes: int) -> list[list[Range]]:
    """Splits all cursors of `ranges` except gaps, each exactly once, into at most `tasks` lists of about equal bytes.

    Makes as many lists as give each about `target_bytes`. Ranges are laid end to end and cut where a task is full, so
    a task reads few shards and there are fewer cuts than tasks. The same arguments give the same tasks.

    Args:
        ranges: of one batch.
        density: each shard's recent bytes per log group.
        tasks: the most lists.
        target_bytes: raw bytes of a list.

    Raises:
        ValueError: `tasks` or `target_bytes` is less than 1.
    """
    if tasks < 1 or target_bytes < 1:
        raise ValueError(f"expected at least one task and one byte, got {tasks} tasks of {target_bytes} bytes")
    uncut_ranges = sorted(item for item in ranges if not item.gap)
    unassigned_bytes = estimate(uncut_ranges, density)
    count = max(1, min(tasks, math.ceil(unassigned_bytes / target_bytes), sum(map(len, uncut_ranges))))
    parts: list[list[Range]] = []
    for remaining in range(count, 0, -1):
        share = unassigned_bytes / remaining if remaining > 1 else math.inf
        part, uncut_ranges = _fill(uncut_ranges, density, share)
        unassigned_bytes -= estimate(part, density)
        if part:
            parts.append(part)
    return parts


def _fill(ranges: Sequence[Range], density: Mapping[int, Density], share: float) -> tuple[list[Range], list[Range]]:
    """The beginning of `ranges` that comes nearest to `share` bytes, one log group at least, and the rest."""
    part: list[Range] = []
    for index, item in enumerate(ranges):
        weight = bytes_per_group(density, item.shard)
        room = len(item) if share == math.inf else round(share / weight)
        if not part:
            room = max(room, 1)
        if room < len(item):
            if room > 0:
                part.append(Range(item.shard, item.begin, item.begin + room))
                item = Range(item.shard, item.begin + room, item.end)
            return part, [item, *ranges[index + 1 :]]
        part.append(item)
        share -= len(item) * weight
    return part, []
