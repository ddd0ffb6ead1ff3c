"""The ranges of one old batch as one value: a batch over hundreds of shards has as many rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row


class StoredRange(NamedTuple):
    """A range as its table keeps it; see `records.RangeTotals`."""

    transaction_id: str
    shard: int
    begin_cursor: int
    end_cursor: int
    gap: bool
    rows: int | None
    bytes: int | None
    first_time: int | None
    last_time: int | None


_KEPT = ("shard", "begin_cursor", "end_cursor", "rows", "bytes", "first_time", "last_time")


def pack(ranges: Sequence[Row[Any] | StoredRange]) -> bytes:
    """Ranges of one transaction, none of them a gap."""
    ordered = sorted(ranges, key=lambda row: (row.shard, row.begin_cursor))
    # Alike stands beside alike, and an end beside its begin is short.
    columns = {name: [getattr(row, name) for row in ordered] for name in _KEPT}
    columns["end_cursor"] = [row.end_cursor - row.begin_cursor for row in ordered]
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)


def unpack(transaction: str, content: bytes) -> list[StoredRange]:
    """What was packed, sorted."""
    columns = json.loads(zlib.decompress(content))
    return [
        StoredRange(transaction, shard, begin, begin + length, False, *read)
        for shard, begin, length, *read in zip(*(columns[name] for name in _KEPT), strict=True)
    ]
