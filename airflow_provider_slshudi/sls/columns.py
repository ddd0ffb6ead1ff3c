"""The columns of a decoded pull, and the errors that both decoders share."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_provider_slshudi.exceptions import DecodeError

META = pa.schema(
    [
        pa.field("__cursor__", pa.int64(), nullable=False),
        pa.field("__index__", pa.int32(), nullable=False),
        pa.field("__time__", pa.uint32(), nullable=False),
        pa.field("__time_ns_part__", pa.uint32()),
        pa.field("__topic__", pa.binary(), nullable=False),
        pa.field("__source__", pa.binary(), nullable=False),
    ]
)
"""The columns that every log has: its row key's cursor and index, and the fields beside its contents."""

REST = pa.field("__rest__", pa.map_(pa.binary(), pa.binary()), nullable=False)
"""Contents and tags that have no column of their own."""

LARGEST_TABLE = 2**31 - 1
"""Bytes that a decoded table may have: Arrow's offsets have 32 bits."""

TAG = b"__tag__:"
"""Prefix of a log group's tag where its name stands beside content keys, as in the SDK."""


def schema(keys: Sequence[str]) -> pa.Schema:
    """The schema of `decode`'s tables. Raises ValueError for a key given twice and for `__rest__`."""
    return pa.schema([*META, *(pa.field(key, pa.binary()) for key in names(keys)), REST])


def names(keys: Sequence[str]) -> list[str]:
    """The `keys` that get a column of their own; raises as `schema`."""
    columns = [key for key in keys if key not in META.names]
    if REST.name in columns or len(set(columns)) != len(columns):
        raise ValueError(f"keys {list(keys)}: name each key once, and not {REST.name}, which holds all others")
    return columns


class Wide(DecodeError):
    """Copies of topics, sources and tags would take more memory than they may: see `sls.pieces`."""

    def __init__(self, shard: int, first: int, why: str) -> None:
        super().__init__(f"shard {shard} cursor {first}: {why}", shard=shard, cursor=first)


def checked(found: int, announced: int | None, shard: int, first: int) -> None:
    """Raises DecodeError where a body holds another number of log groups than was announced.

    Args:
        found: log groups in the body.
        announced: the number that a header told; None: none did.
        shard: its id.
        first: the body's first cursor.
    """
    if announced is not None and found != announced:
        message = f"shard {shard} cursor {first}: {found} log groups where the answer announced {announced}"
        raise DecodeError(message, shard=shard, cursor=first)


def malformed(body: bytes, why: str, shard: int, first: int) -> DecodeError:
    """The error for a body that is no LogGroupList.

    Args:
        body: the bytes.
        why: the decoder's words.
        shard: its id.
        first: the body's first cursor.
    """
    message = f"shard {shard} cursor {first}: {len(body)} bytes are no LogGroupList: {why}"
    return DecodeError(message, shard=shard, cursor=first)
