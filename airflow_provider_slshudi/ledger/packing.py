"""An old batch in one row: over hundreds of shards it has as many rows of ranges, and some of events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row

from airflow_provider_slshudi.ledger.records import Event


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


def pack_ranges(ranges: Sequence[Row[Any] | StoredRange]) -> bytes:
    """Ranges of one transaction, none of them a gap."""
    ordered = sorted(ranges, key=lambda row: (row.shard, row.begin_cursor))
    # Alike stands beside alike, and an end beside its begin is short.
    columns = {name: [getattr(row, name) for row in ordered] for name in _KEPT}
    columns["end_cursor"] = [row.end_cursor - row.begin_cursor for row in ordered]
    return _pack(columns)


def unpack_ranges(transaction: str, content: bytes) -> list[StoredRange]:
    """What was packed, sorted."""
    columns = _unpack(content)
    return [
        StoredRange(transaction, shard, begin, begin + length, False, *read)
        for shard, begin, length, *read in zip(*(columns[name] for name in _KEPT), strict=True)
    ]


def pack_events(events: Sequence[Row[Any]]) -> bytes:
    """Events of one transaction, in order."""
    return _pack([(event.at.isoformat(), event.what, event.detail) for event in events])


def unpack_events(transaction: str, content: bytes) -> list[Event]:
    """What was packed, in order."""
    return [Event(transaction, datetime.fromisoformat(at), what, detail) for at, what, detail in _unpack(content)]


def _pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpack(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))
