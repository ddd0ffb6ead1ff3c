"""Plans a batch of cursors that a person asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.planning.windows import MOST_RANGES, ShardWindow, limit
from airflow_provider_slshudi.ranges import Density, Range, subtract


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

    Returns about `limits.max_bytes`, at most `MOST_RANGES` ranges, nothing of the shards `held` (`order.waiting`), and
    none once nothing is left.

    Args:
        pipeline_name: for errors.
        wanted: {shard: (begin, end)}, cursors.
        windows: what the service holds of each shard.
        taken: coverage and reserved ranges.
        density: each shard's recent bytes per log group.
        limits: the file's `batch`.
        held: ids of shards that wait for others.
    """
    left = [item for item in left_to_backfill(pipeline_name, wanted, windows, taken) if item.shard not in held]
    return limit(left[:MOST_RANGES], density, limits.max_bytes)


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
    asked: list[Range] = []
    for shard, (begin, end) in wanted.items():
        field = f"ranges.{shard}"
        if shard not in held:
            known = ", ".join(map(str, sorted(held))) or "none"
            raise _refusal(pipeline_name, field, (begin, end), f"the logstore has no shard {shard}; it has {known}")
        if begin >= end:
            raise _refusal(pipeline_name, field, (begin, end), "its begin is not before its end")
        asked.append(Range(shard, begin, end))
    left = subtract(asked, taken)
    for item in left:
        window = held[item.shard]
        if item.begin < window.service_begin or item.end > window.service_end:
            raise _refusal(
                pipeline_name,
                f"ranges.{item.shard}",
                wanted[item.shard],
                f"[{item.begin}, {item.end}) was never read, but the service holds only "
                f"[{window.service_begin}, {window.service_end})",
            )
    return left


def _refusal(pipeline: str, field: str, value: object, reason: str) -> ConfigError:
    source = f"backfill of pipeline {pipeline}"
    return ConfigError(f"{source}: {field}: {value}: {reason}", source=source, field=field, value=value)
