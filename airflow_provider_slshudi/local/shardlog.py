"""A shard's log groups: segments one after the other, the oldest of which expire."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from airflow_provider_slshudi.local.segment import SUFFIX, Segment

SEGMENT_BYTES = 256 << 20
"""A segment that has grown to this gets a successor: retention takes whole files off the disk."""


class ShardLog:
    """Log groups `[first, end)` of one shard in `directory`. Raises OSError if the disk fails."""

    def __init__(self, directory: Path, segments: list[Segment], segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory, self._segments, self._segment_bytes = directory, segments, segment_bytes
        self.first = segments[0].first

    @classmethod
    def create(cls, directory: Path, first: int) -> ShardLog:
        """Makes `directory` with an empty log."""
        directory.mkdir(parents=True)
        return cls(directory, [Segment(directory / f"{first}{SUFFIX}")])

    @classmethod
    def open(cls, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> ShardLog:
        """The log that `create` and `append` left in `directory`."""
        segments = sorted(map(Segment, directory.glob(f"*{SUFFIX}")), key=lambda segment: segment.first)
        return cls(directory, segments, segment_bytes)

    @property
    def end(self) -> int:
        """The cursor that the next log group will get."""
        return self._segments[-1].end

    def append(self, group: bytes) -> int:
        """Write one LogGroup and return its cursor; when this returns, a restart keeps it."""
        last = self._segments[-1]
        if last.size >= self._segment_bytes:
            after, last = last.last_time, Segment(self._directory / f"{last.end}{SUFFIX}")
            last.last_time = after
            self._segments.append(last)
        return last.append(group)

    def at(self, unix_seconds: int) -> int:
        """The cursor of the first log group received at or after `unix_seconds`, or `end`."""
        for segment in self._segments:
            if segment.last_time >= unix_seconds:
                return max(self.first, segment.at(unix_seconds))
        return self.end

    def time(self, cursor: int) -> int:
        """When the log group of `cursor` was received; for `end`, now, since there is no log group yet."""
        return self._holding(cursor).time(cursor)

    def read(self, begin: int, end: int, most_bytes: int) -> tuple[memoryview, int]:
        """The LogGroupList of `[begin, end)` and its number of groups: as many as fit `most_bytes`, but at least one.

        It stops at a segment's end too. The bytes are good until the next read.
        """
        return self._holding(begin).read(begin, end, most_bytes)

    def expire(self, before: int) -> None:
        """Forget the log groups received before `before` (unix seconds)."""
        while len(self._segments) > 1 and self._segments[0].last_time < before:
            self._segments.pop(0).delete()
        oldest = self._segments[0]
        if oldest.time(max(self.first, oldest.first)) < before:
            self.first = oldest.at(before)
        self.first = max(self.first, oldest.first)

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()

    def _holding(self, cursor: int) -> Segment:
        place = bisect_right(self._segments, cursor, key=lambda segment: segment.first) - 1
        return self._segments[max(place, 0)]
