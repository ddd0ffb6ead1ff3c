"""The fast decoder: slshudi-native fills Arrow's buffers in one walk of the bytes, without the GIL.

It refuses what ptars refuses, and also impossible field numbers and lengths, which ptars lets pass or panics at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import slshudi_native

from airflow_provider_slshudi.sls.columns import LARGEST_TABLE, REST, Wide, checked, malformed, names, schema


def decode(
    pull_body: bytes, shard: int, first: int, keys: Sequence[str], groups: int | None = None, most: int = LARGEST_TABLE
) -> pa.Table:
    """See `sls.decode`. Raises Wide if copies of topics, sources and tags would take more than `most` bytes.

    Args:
        pull_body: a LogGroupList, uncompressed.
        shard: its id.
        first: the body's first cursor.
        keys: of logs, in the order of the columns.
        groups: the number of log groups that was announced.
        most: bytes.
    """
    named = [key.encode() for key in names(keys)]
    try:
        decoded = slshudi_native.decode(pull_body, first, named, most)
    except OverflowError as error:
        raise Wide(shard, first, str(error)) from None
    except ValueError as error:
        raise malformed(pull_body, str(error), shard, first) from None
    group_count, rows, columns, (entries, ends, rest_keys, rest_values) = decoded
    checked(group_count, groups, shard, first)
    fields = schema(keys)
    arrays = [_array(field.type, rows, *column) for field, column in zip(fields, columns, strict=False)]
    offsets = _array(pa.int32(), rows + 1, 0, [None, ends])
    items = [_array(pa.binary(), entries, *column) for column in (rest_keys, rest_values)]
    arrays.append(pa.MapArray.from_arrays(offsets, *items, REST.type))
    return pa.Table.from_arrays(arrays, schema=fields)


def _array(kind: Any, rows: int, nulls: int, buffers: list[bytes | None]) -> Any:
    return pa.Array.from_buffers(kind, rows, [None if each is None else pa.py_buffer(each) for each in buffers], nulls)
