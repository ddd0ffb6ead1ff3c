"""Ranges of cursors and their arithmetic; every room speaks of work in these terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The log groups of one shard from cursor `begin` up to, not including, cursor `end`.

    `gap` marks a range that the service had already dropped: it is recorded, never pulled.
    """

    shard: int
    begin: int
    end: int
    gap: bool = False

    def __post_init__(self) -> None:
        if self.begin >= self.end:
            raise ValueError(f"shard {self.shard}: empty range [{self.begin}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.shard}:[{self.begin}, {self.end})"


@dataclass(frozen=True, slots=True)
class Density:
    """Raw bytes and rows per log group of a shard in the last committed batches."""

    bytes: float
    rows: float


def by_shard(ranges: Iterable[Range]) -> dict[int, list[Range]]:
    """The sorted ranges of each shard."""
    return {shard: list(group) for shard, group in groupby(sorted(ranges), key=lambda item: item.shard)}


def merge(ranges: Iterable[Range]) -> list[Range]:
    """The cursors of `ranges` in as few ranges as possible, sorted; drops `gap`, since a gap is covered too."""
    merged: list[Range] = []
    for item in sorted(ranges):
        last = merged[-1] if merged else None
        if last is not None and last.shard == item.shard and item.begin <= last.end:
            merged[-1] = Range(last.shard, last.begin, max(last.end, item.end))
        else:
            merged.append(Range(item.shard, item.begin, item.end))
    return merged


def subtract(wanted: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """The parts of `wanted` that no range of `taken` holds, merged and sorted; one walk over both."""
    holes = merge(taken)
    remainder: list[Range] = []
    position = 0
    for item in merge(wanted):
        begin = item.begin
        while position < len(holes) and (holes[position].shard, holes[position].end) <= (item.shard, begin):
            position += 1
        # Both are sorted and each is disjoint, so only the last hole of one item may concern the next one too.
        while position < len(holes) and holes[position].shard == item.shard and holes[position].begin < item.end:
            hole = holes[position]
            if hole.begin > begin:
                remainder.append(Range(item.shard, begin, hole.begin))
            begin = hole.end
            if hole.end > item.end:
                break
            position += 1
        if begin < item.end:
            remainder.append(Range(item.shard, begin, item.end))
    return remainder


def overlap(left: Iterable[Range], right: Iterable[Range]) -> list[Range]:
    """The cursors that both hold, merged and sorted."""
    left = merge(left)
    return subtract(left, subtract(left, right))
