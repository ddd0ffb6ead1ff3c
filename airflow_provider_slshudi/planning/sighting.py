"""What a look at the service's shards says of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_slshudi.planning.windows import estimate, unread
from airflow_provider_slshudi.ranges import Density, Range, by_shard


@dataclass(frozen=True, slots=True)
class Seen:
    """A shard at one look: where this pipeline's duty begins, its end, and its end at the look before, if any."""

    shard: int
    first: int
    end: int
    before: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is unread, and what came since the look before (None: there was none); bytes are estimates or None."""

    unread: list[Range]
    unread_bytes: int | None
    came: int | None
    came_bytes: int | None


def backlog(shards: Sequence[Seen], covered: Sequence[Range], density: Mapping[int, Density]) -> Backlog:
    """Compares the shards' ends with the coverage and with the look before.

    A shard that the look before did not have counts with all its logs: they came since.
    """
    left = unread(((seen.shard, seen.first, seen.end) for seen in shards), covered)
    if all(seen.before is None for seen in shards):
        return Backlog(left, _bytes(left, density), None, None)
    begins = ((seen, seen.first if seen.before is None else seen.before) for seen in shards)
    came = [Range(seen.shard, begin, seen.end) for seen, begin in begins if begin < seen.end]
    return Backlog(left, _bytes(left, density), sum(map(len, came)), _bytes(came, density))


def _bytes(ranges: list[Range], density: Mapping[int, Density]) -> int | None:
    """An estimate, None where no batch has shown how large log groups are."""
    return round(estimate(ranges, density)) if density or not ranges else None


def first_unread(left: Sequence[Range]) -> dict[int, int]:
    """The first unread cursor of each shard that has one."""
    return {shard: mine[0].begin for shard, mine in by_shard(left).items()}
