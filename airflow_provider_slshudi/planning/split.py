"""Splits a batch's ranges among the tasks that read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from airflow_provider_slshudi.planning.windows import bytes_per_group, estimate
from airflow_provider_slshudi.ranges import Density, Range


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
    left = sorted(item for item in ranges if not item.gap)
    todo = estimate(left, density)
    count = max(1, min(tasks, math.ceil(todo / target_bytes), sum(map(len, left))))
    parts: list[list[Range]] = []
    for remaining in range(count, 0, -1):
        share = todo / remaining if remaining > 1 else math.inf
        part, left = _fill(left, density, share)
        todo -= estimate(part, density)
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
