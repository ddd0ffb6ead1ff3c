"""Decoded pulls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def logs(**columns: list[Any]) -> pa.Table:
    """A decoded pull, of as many logs as `ts` has."""
    count = len(columns["ts"])
    table: dict[str, Any] = {
        "__cursor__": pa.array([100 + n // 2 for n in range(count)], pa.int64()),
        "__index__": pa.array([n % 2 for n in range(count)], pa.int32()),
        "__time__": pa.array([1_700_000_000 + n for n in range(count)], pa.uint32()),
        "__rest__": pa.array([[(b"k", b"v")]] * count, pa.map_(pa.binary(), pa.binary())),
    }
    for key in ("event_id", "ts", "price", "clicks"):
        table[key] = pa.array(columns.get(key, [None] * count), pa.binary())
    return pa.table(table)
