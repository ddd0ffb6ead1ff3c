"""Log groups of a shard on disk: a file that only grows.

A record is `length, checksum, receive time` and then the log group as it stands in a LogGroupList, so that an answer is
the records of a range without their heads. One call writes head and group. The server acknowledges a put when the page
cache has it, which the death of the process does not undo. There is no fsync: a machine that loses power may lose the
last seconds, which is fine for this server's purpose. Opening cuts off an unfinished write.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import time
import zlib
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from airflow_provider_slshudi.sls import wire

log = logging.getLogger(__name__)

# Bytes of the framed group, crc32 of (time, framed group), unix seconds of its receipt.
_HEAD = struct.Struct("<IIQ")
_TIME = struct.Struct("<Q")
_MOST_PARTS = 1024  # buffers that one call of preadv takes

SUFFIX = ".groups"
"""The ending of segments' names."""

# Where reads put their bytes: memory that was touched before is several times faster than fresh pages.
_buffer = memoryview(bytearray())


class Segment:
    """The log groups from cursor `first` on, which the file's name states. Raises OSError if the disk fails."""

    def __init__(self, path: Path) -> None:
        self.first = int(path.name.removesuffix(SUFFIX))
        self.last_time = 0
        """When the newest log group was received, in unix seconds."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._starts = array("Q", [0])  # of every record, and where the next one will start
        self._times = array("Q")
        self._index(path)
        if self._times:
            self.last_time = self._times[-1]

    @property
    def end(self) -> int:
        """The cursor that the next log group will get."""
        return self.first + len(self._times)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._starts[-1]

    def append(self, group: bytes) -> int:
        """Write one LogGroup and return its cursor; when this returns, a restart keeps it."""
        now = max(int(time.time()), self.last_time)  # a clock set back must not unsort the times
        frame = wire.frame(len(group))
        checksum = zlib.crc32(group, zlib.crc32(frame, zlib.crc32(_TIME.pack(now))))
        head = _HEAD.pack(len(frame) + len(group), checksum, now) + frame
        start = self._starts[-1]
        try:
            written = os.writev(self._file, [head, group])
            if written != len(head) + len(group):
                raise OSError(f"only {written} of {len(head) + len(group)} bytes written")
        except OSError:
            os.ftruncate(self._file, start)
            raise
        self._starts.append(start + len(head) + len(group))
        self._times.append(now)
        self.last_time = now
        return self.end - 1

    def at(self, unix_seconds: int) -> int:
        """The cursor of the first log group received at or after `unix_seconds`, or `end`."""
        return self.first + bisect_left(self._times, unix_seconds)

    def time(self, cursor: int) -> int:
        """When the log group of `cursor` was received; for `end`, now, since there is no log group yet."""
        return self._times[cursor - self.first] if cursor < self.end else int(time.time())

    def read(self, begin: int, end: int, most_bytes: int) -> tuple[memoryview, int]:
        """The LogGroupList of `[begin, end)` and its number of groups: as many as fit `most_bytes`, but at least one.

        The bytes are good until the next read, of any segment.
        """
        low, high = begin - self.first, min(end, self.end) - self.first
        if low >= high:
            return _room(0), 0
        start = self._starts[low]
        high = max(low + 1, bisect_right(self._starts, start + most_bytes, low, high + 1) - 1)
        body = _room(self._starts[high] - start - (high - low) * _HEAD.size)
        heads, filled = bytearray(_HEAD.size), 0
        for some in range(low, high, _MOST_PARTS // 2):
            parts: list[bytearray | memoryview] = []
            following = min(some + _MOST_PARTS // 2, high)
            for place in range(some, following):
                size = self._starts[place + 1] - self._starts[place] - _HEAD.size
                parts += (heads, body[filled : filled + size])
                filled += size
            length = self._starts[following] - self._starts[some]
            if os.preadv(self._file, parts, self._starts[some]) != length:
                raise OSError(f"{self._path}: {length} bytes at {self._starts[some]} are not there")
        return body, high - low

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def delete(self) -> None:
        """Close the file and take it off the disk."""
        self.close()
        self._path.unlink()

    def _index(self, path: Path) -> None:
        size = os.fstat(self._file).st_size
        if not size:
            return
        with mmap.mmap(self._file, size, access=mmap.ACCESS_READ) as data:
            whole = self._walk(data, size)
        if whole < size:
            log.warning("%s: cut off %d bytes of an unfinished write", path, size - whole)
            os.ftruncate(self._file, whole)

    def _walk(self, data: mmap.mmap, size: int) -> int:
        """Index all records and return the end of the last whole one; sums up only that, since no other can be torn."""
        start = 0
        while start + _HEAD.size <= size:
            length, _, received = _HEAD.unpack_from(data, start)
            following = start + _HEAD.size + length
            if length == 0 or following > size:
                break
            self._starts.append(following)
            self._times.append(received)
            start = following
        if self._times and not self._sums_up(data):
            self._starts.pop()
            self._times.pop()
        return self._starts[-1]

    def _sums_up(self, data: mmap.mmap) -> bool:
        start, end = self._starts[-2], self._starts[-1]
        _, checksum, received = _HEAD.unpack_from(data, start)
        crc = zlib.crc32(data[start + _HEAD.size : end], zlib.crc32(_TIME.pack(received)))
        return crc == int(checksum)


def _room(size: int) -> memoryview:
    global _buffer
    if size > len(_buffer):
        _buffer = memoryview(bytearray(size))
    return _buffer[:size]
