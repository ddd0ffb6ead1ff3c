"""The ranges of the next batch, and those of a backfill."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.exceptions import ConfigError, DataExpired
from airflow_provider_slshudi.planning.ranges import Density, Range, subtract
from airflow_provider_slshudi.planning.windows import MOST_RANGES, ShardWindow, in_turn, limit, unread


def plan_tail(
    pipeline_name: str,
    shards: Sequence[ShardWindow],
    taken: Sequence[Range],
    density: Mapping[int, Density],
    limits: Batch,
    on_expired: Literal["fail", "skip"],
    last_shard: Callable[[], int | None] = lambda: None,
    held: Collection[int] = (),
) -> list[Range]:
    """The ranges of the next batch, sorted: the oldest cursors of each shard that no batch has taken.

    `taken` is the coverage and the reserved ranges; read it before the windows, within one lease. The batch has about
    `limits.max_bytes`, and at least one log group of each shard. Where `on_expired` is "skip", cursors that the
    service has dropped become gaps, which count no bytes. Where there are more than `MOST_RANGES` ranges, shards take
    turns: the one after `last_shard()`, where the batch before ended, is next. Nothing is read of the shards `held`,
    which wait for others (`shard_order.waiting`).

    Args:
        pipeline_name: for errors.
        shards: what the service holds of each shard.
        taken: see above.
        density: each shard's recent bytes per log group.
        limits: the file's `batch`.
        on_expired: see above.
        last_shard: the id of the shard at which the batch before ended; None: not known.
        held: ids of shards that wait for others.

    Raises:
        DataExpired: a shard lost unread logs, or may have (it is gone, or was found too late), and `on_expired` is
            "fail".
    """
    oldest = {window.shard: window.service_begin for window in shards}
    readable: list[Range] = []
    gaps: list[Range] = []
    for item in unread(((window.shard, window.duty_begin, window.service_end) for window in shards), taken):
        middle = min(max(oldest[item.shard], item.begin), item.end)
        if item.begin < middle:
            gaps.append(Range(item.shard, item.begin, middle, gap=True))
        if middle < item.end:
            readable.append(Range(item.shard, middle, item.end))
    if on_expired == "fail":
        _refuse_losses(pipeline_name, shards, gaps)
    batch = sorted(item for item in (*gaps, *readable) if item.shard not in held)
    if len(batch) > MOST_RANGES:
        batch = in_turn(batch, last_shard())
    read = [item for item in batch if not item.gap]
    return sorted([*(item for item in batch if item.gap), *limit(read, density, limits.max_bytes)])


def _refuse_losses(pipeline: str, shards: Sequence[ShardWindow], gaps: Sequence[Range]) -> None:
    open_ends = {window.shard: window.service_end for window in shards if window.open_end}
    losses = [DataExpired(pipeline, gap.shard, gap.begin, gap.end, more=gap.shard in open_ends) for gap in sorted(gaps)]
    with_gaps = {gap.shard for gap in gaps}
    ends = sorted((shard, end) for shard, end in open_ends.items() if shard not in with_gaps)
    losses += [DataExpired(pipeline, shard, end, end, more=True) for shard, end in ends]
    begins = [(window.shard, window.duty_begin) for window in shards if window.open_begin]
    losses += [DataExpired(pipeline, shard, begin, begin, unseen=True) for shard, begin in begins]
    if losses:
        first, *others = losses
        raise DataExpired(pipeline, first.shard, first.begin, first.end, first.more, first.unseen, others)


def plan_backfill(
    pipeline_name: str,
    wanted: Mapping[int, tuple[int, int]],
    windows: Sequence[ShardWindow],
    taken: Sequence[Range],
    density: Mapping[int, Density],
    limits: Batch,
    held: Collection[int] = (),
) -> list[Range]:
    """The sorted ranges of a backfill's next batch: the beginning of what `left_to_backfill` gives, and raises.

    Returns about `limits.max_bytes`, at most `MOST_RANGES` ranges, nothing of the shards `held`
    (`shard_order.waiting`), and none once nothing is left.

    Args:
        pipeline_name: for errors.
        wanted: {shard: (begin, end)}, cursors.
        windows: what the service holds of each shard.
        taken: coverage and reserved ranges.
        density: each shard's recent bytes per log group.
        limits: the file's `batch`.
        held: ids of shards that wait for others.
    """
    unread_ranges = [item for item in left_to_backfill(pipeline_name, wanted, windows, taken) if item.shard not in held]
    return limit(unread_ranges[:MOST_RANGES], density, limits.max_bytes)


def left_to_backfill(
    pipeline_name: str,
    wanted: Mapping[int, tuple[int, int]],
    windows: Sequence[ShardWindow],
    taken: Sequence[Range],
) -> list[Range]:
    """The sorted cursors that are `wanted` ({shard: (begin, end)}) and not `taken`.

    A backfill may begin before the duty for a shard does.

    Args:
        pipeline_name: for errors.
        wanted: {shard: (begin, end)}, cursors.
        windows: what the service holds of each shard.
        taken: coverage and reserved ranges.

    Raises:
        ConfigError: an unknown shard, a begin that is not before its end, or cursors that are neither taken nor held
            by the service. All of `wanted` is checked before anything is returned.
    """
    if not wanted:
        raise _refusal(pipeline_name, "ranges", wanted, "names no shard; expected {shard: (begin, end)}")
    held = {window.shard: window for window in windows}
    wanted_ranges: list[Range] = []
    for shard, (begin, end) in wanted.items():
        field = f"ranges.{shard}"
        if shard not in held:
            shard_ids = ", ".join(map(str, sorted(held))) or "none"
            raise _refusal(pipeline_name, field, (begin, end), f"the logstore has no shard {shard}; it has {shard_ids}")
        if begin >= end:
            raise _refusal(pipeline_name, field, (begin, end), "its begin is not before its end")
        wanted_ranges.append(Range(shard, begin, end))
    unread_ranges = subtract(wanted_ranges, taken)
    for item in unread_ranges:
        window = held[item.shard]
        if item.begin < window.service_begin or item.end > window.service_end:
            raise _refusal(
                pipeline_name,
                f"ranges.{item.shard}",
                wanted[item.shard],
                f"[{item.begin}, {item.end}) was never read, but the service holds only "
                f"[{window.service_begin}, {window.service_end})",
            )
    return unread_ranges


def _refusal(pipeline: str, field: str, value: object, reason: str) -> ConfigError:
    source = f"backfill of pipeline {pipeline}"
    return ConfigError(f"{source}: {field}: {value}: {reason}", source=source, field=field, value=value)
