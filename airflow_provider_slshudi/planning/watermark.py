"""Up to which receive time all logs of a source are committed: its watermark, made of what looks at its shards said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from airflow_provider_slshudi.planning.ranges import Range

MOST_MARKS = 32
"""The most marks of a shard. Between two that are left the watermark stands still for a while."""


class Mark(NamedTuple):
    """Every log that the service received in the shard before `received` (unix seconds) has a cursor below `cursor`."""

    cursor: int
    received: int


class ShardState(NamedTuple):
    """What is known of a shard.

    Attributes:
        first: the cursor where the pipeline's duty begins.
        end: its last cursor; None: more may come.
        covered: its part of the coverage, sorted.
        marks: of looks at it.
        is_doubtful: whether logs before `first` may be lost, which is not accepted yet.
    """

    first: int
    end: int | None
    covered: Sequence[Range]
    marks: Sequence[Mark]
    is_doubtful: bool = False

    @property
    def reach(self) -> int:
        """The cursor up to which all is covered."""
        return next((item.end for item in self.covered if item.begin <= self.first < item.end), self.first)

    @property
    def is_read(self) -> bool:
        """Whether all of a shard that takes no more logs is covered."""
        return self.end is not None and self.reach >= self.end

    @property
    def proof(self) -> Mark | None:
        """The latest mark up to which all is covered; None where no look tells any."""
        return max((mark for mark in self.marks if mark.cursor <= self.reach), key=_received, default=None)


def watermark(shards: Iterable[ShardState], looked: int | None) -> int | None:
    """All logs that the service received before this time (unix seconds) are committed; None where that is not known.

    Args:
        shards: all that the newest list named, and those that are gone and not wholly read.
        looked: the service's time before that list: logs of a shard that is not on it came later.
    """
    waiting = [shard for shard in shards if not shard.is_read]
    times = [None if shard.proof is None or shard.is_doubtful else shard.proof.received for shard in waiting]
    if looked is None or None in times:
        return None
    return min([looked, *(time for time in times if time is not None)])


def kept(shard: ShardState, new: Iterable[Mark]) -> list[Mark]:
    """The shard's marks with new ones: the latest that is proven, and those beyond it, at most `MOST_MARKS`."""
    latest: dict[int, int] = {}
    for mark in (*shard.marks, *new):
        latest[mark.cursor] = max(mark.received, latest.get(mark.cursor, mark.received))
    marks = [Mark(cursor, received) for cursor, received in sorted(latest.items())]
    proven = ShardState(shard.first, shard.end, shard.covered, marks).proof
    beyond = [mark for mark in marks if mark.cursor > shard.reach]
    while len(beyond) >= MOST_MARKS:
        # The newest stays, or a shard that is read to its end would not be known to be.
        beyond = [*beyond[:-1:2], beyond[-1]]
    return [*([] if proven is None else [proven]), *beyond]


def _received(mark: Mark) -> int:
    return mark.received
