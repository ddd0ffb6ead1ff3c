"""The next batch of a pipeline that follows its logstore."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Literal

from airflow_provider_slshudi.config import Batch
from airflow_provider_slshudi.exceptions import DataExpired, PipelineConflict
from airflow_provider_slshudi.ledger.records import Density
from airflow_provider_slshudi.planning.windows import MOST_RANGES, ShardWindow, in_turn, limit, unread
from airflow_provider_slshudi.ranges import Range


def plan_tail(
    pipeline_name: str,
    shards: Sequence[ShardWindow],
    taken: Sequence[Range],
    density: Mapping[int, Density],
    limits: Batch,
    on_expired: Literal["fail", "skip"],
    last_shard: Callable[[], int | None] = lambda: None,
) -> list[Range]:
    """The ranges of the next batch, sorted: the oldest cursors of each shard that nobody has taken.

    `taken` is the coverage and what is reserved; read it before the windows, within one lease. About
    `limits.max_bytes` are read, one log group of each shard at least. Cursors that the service has dropped are
    returned as gaps where `on_expired` is "skip"; they count no bytes. Where there are more than `MOST_RANGES`, shards
    take turns, and the one behind `last_shard()`, where the batch before ended, is next.

    Raises:
        DataExpired: a shard lost what was never read, and `on_expired` is "fail".
        PipelineConflict: a shard ends before what was already read of it: it is not the one that was read.
    """
    _refuse_other_shards(pipeline_name, shards, taken)
    oldest = {window.shard: window.service_begin for window in shards}
    readable: list[Range] = []
    gaps: list[Range] = []
    for item in unread(((window.shard, window.duty_begin, window.service_end) for window in shards), taken):
        middle = min(max(oldest[item.shard], item.begin), item.end)
        if item.begin < middle:
            gaps.append(Range(item.shard, item.begin, middle, gap=True))
        if middle < item.end:
            readable.append(Range(item.shard, middle, item.end))
    if gaps and on_expired == "fail":
        lost = min(gaps)
        raise DataExpired(pipeline_name, lost.shard, lost.begin, lost.end)
    batch = sorted([*gaps, *readable])
    if len(batch) > MOST_RANGES:
        batch = in_turn(batch, last_shard())
    read = [item for item in batch if not item.gap]
    return sorted([*(item for item in batch if item.gap), *limit(read, density, limits.max_bytes)])


def _refuse_other_shards(pipeline: str, shards: Sequence[ShardWindow], taken: Sequence[Range]) -> None:
    """A logstore that was deleted and created again counts from elsewhere; what it says would be taken for read."""
    by_shard = groupby(sorted(taken), key=lambda item: item.shard)
    reached = {shard: max(item.end for item in group) for shard, group in by_shard}
    for window in shards:
        known = max(window.duty_begin, reached.get(window.shard, 0))
        if window.service_end < known:
            raise PipelineConflict(
                f"pipeline {pipeline}: shard {window.shard} ends at cursor {window.service_end}, but the ledger knows "
                f"it up to {known}: its logstore was deleted and created again, or the name leads elsewhere. Register "
                "a pipeline of another name and table for the new logstore",
                pipeline=pipeline,
                other=f"shard {window.shard} that ends at {window.service_end}",
            )
