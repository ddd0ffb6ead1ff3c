"""A pull's protobuf bytes to a flat Arrow table: ptars parses, numpy and pyarrow pivot.

Nothing here loops over logs: every (log, key) pair is given a slot, and each column is one take of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from ptars import HandlerPool

from airflow_provider_slshudi.exceptions import DecodeError
from airflow_provider_slshudi.sls import wire

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
"""The columns that every log has: its row key's cursor and index, and what is not among its contents."""

REST = pa.field("__rest__", pa.map_(pa.binary(), pa.binary()), nullable=False)
"""Contents and tags that have no column of their own."""

TAG = b"__tag__:"
"""What precedes the name of a log group's tag where it stands beside content keys, as in the SDK."""

_HANDLER = HandlerPool([wire.FILE]).get_for_message(wire.LOG_GROUP_LIST)
_Ints = NDArray[Any]


def schema(keys: Sequence[str]) -> pa.Schema:
    """The schema of `decode`'s tables. Raises ValueError for a key given twice and for `__rest__`."""
    return pa.schema([*META, *(pa.field(key, pa.binary()) for key in _columns(keys)), REST])


def decode(pull_body: bytes, shard: int, first: int, keys: Sequence[str], groups: int | None = None) -> pa.Table:
    """One row per log of a pull whose first log group has cursor `first`.

    Columns: `META`, one binary column per key (NULL where a log lacks it), `REST`. A key is a content key,
    `__tag__:NAME` for a tag of the log group, or a name of `META`, which is there anyway. A key that a log holds twice
    has its last value, and a content wins over a tag of the same name, as in the SDK's flattening; a content named like
    a column of `META` stays in `REST`. `groups`, where given, is how many log groups the body must hold. Raises
    DecodeError, and ValueError for `keys` that `schema` refuses.
    """
    parsed = _parse(pull_body, shard, first)
    if groups is not None and len(parsed) != groups:
        message = f"shard {shard} cursor {first}: {len(parsed)} log groups where the answer announced {groups}"
        raise DecodeError(message, shard=shard, cursor=first)
    logs_of_group = parsed.field("Logs")
    logs = logs_of_group.flatten()
    group, index = _expand(logs_of_group)
    of_row = pa.array(group)
    named = pa.array([key.encode() for key in _columns(keys)], pa.binary())
    contents = _Pairs(logs.field("Contents"), named)
    tags = _Pairs(parsed.field("LogTags"), named, prefix=TAG)
    columns = [
        pa.array(group.astype(np.int64) + first),
        pa.array(index),
        logs.field("Time").fill_null(0),
        logs.field("Time_ns"),
        parsed.field("Topic").fill_null(b"").take(of_row),
        parsed.field("Source").fill_null(b"").take(of_row),
    ]
    for slot in range(len(named)):
        column = contents.column(slot)
        if tags.holds(slot):
            column = pc.coalesce(column, tags.column(slot).take(of_row))
        columns.append(column)
    columns.append(_rest(contents, tags, group))
    return pa.Table.from_arrays(columns, schema=schema(keys))


class _Pairs:
    """The key-value pairs of some owners (logs, or log groups): which key has a slot, and where its last value is."""

    def __init__(self, lists: Any, named: Any, prefix: bytes = b"") -> None:
        pairs = lists.flatten()
        keys = pairs.field("Key").fill_null(b"").dictionary_encode()
        names = keys.dictionary
        self.names = pc.binary_join_element_wise(pa.scalar(prefix), names, pa.scalar(b"")) if prefix else names
        self.codes = np.asarray(keys.indices)
        self.values = pairs.field("Value").fill_null(b"")
        self.owners = len(lists)
        self.owner = _expand(lists)[0]
        slot_of_name = pc.index_in(self.names, value_set=named).fill_null(len(named)).to_numpy(zero_copy_only=False)
        self.slot = slot_of_name[self.codes]
        # Assigning through repeated indices keeps the last one, which is what a repeated key means.
        last = np.full((len(named) + 1) * self.owners, -1, np.int32)
        last[self.slot.astype(np.int64) * self.owners + self.owner] = np.arange(len(self.codes), dtype=np.int32)
        self._last = last.reshape(len(named) + 1, self.owners)

    def holds(self, slot: int) -> bool:
        return bool((self._last[slot] >= 0).any())

    def column(self, slot: int) -> Any:
        """The value of the key in `slot`, one per owner, NULL where it has none."""
        position = self._last[slot]
        return self.values.take(pa.array(position, mask=position < 0))

    def unnamed(self) -> _Ints:
        """The positions of the pairs whose key has no slot."""
        return np.nonzero(self.slot == len(self._last) - 1)[0]


def _parse(body: bytes, shard: int, first: int) -> Any:
    try:
        return _HANDLER.list_to_record_batch([body]).column(0).flatten()
    except ValueError as error:
        message = f"shard {shard} cursor {first}: {len(body)} bytes are no LogGroupList: {error}"
        raise DecodeError(message, shard=shard, cursor=first) from error


def _columns(keys: Sequence[str]) -> list[str]:
    columns = [key for key in keys if key not in META.names]
    if REST.name in columns or len(set(columns)) != len(columns):
        raise ValueError(f"keys {list(keys)}: every key once, and {REST.name} holds what is not named")
    return columns


def _expand(lists: Any) -> tuple[_Ints, _Ints]:
    """For every element of a list array: which list it is in, and its place there."""
    offsets = np.asarray(lists.offsets)
    counts = np.diff(offsets)
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return owner, _places(counts)


def _places(counts: _Ints) -> _Ints:
    """0..n-1 for each n of `counts`, one after the other."""
    ends = np.cumsum(counts, dtype=np.int32)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int32) - np.repeat(ends - counts, counts).astype(np.int32)


def _rest(contents: _Pairs, tags: _Pairs, group: _Ints) -> Any:
    """The map column: a log's tags and contents that have no slot, each key once with its last value."""
    rows = len(group)
    pair = contents.unnamed()
    tag_row, tag = _tags_of_rows(tags, group)
    row = np.concatenate([tag_row, contents.owner[pair]])
    names = pa.concat_arrays([tags.names, contents.names]).dictionary_encode()
    name_of_code = np.asarray(names.indices)
    name = np.concatenate([name_of_code[tags.codes[tag]], name_of_code[len(tags.names) + contents.codes[pair]]])
    kept = _last_of_each(row.astype(np.int64) * len(names.dictionary) + name)
    order = kept[np.argsort(row[kept], kind="stable")]
    values = pa.concat_arrays([tags.values.take(pa.array(tag)), contents.values.take(pa.array(pair))])
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row[kept], minlength=rows), out=offsets[1:])
    return pa.MapArray.from_arrays(
        pa.array(offsets), names.dictionary.take(pa.array(name[order])), values.take(pa.array(order)), REST.type
    )


def _tags_of_rows(tags: _Pairs, group: _Ints) -> tuple[_Ints, _Ints]:
    """Every unnamed tag of every row's group: the row, and the tag's position."""
    unnamed = tags.unnamed()
    counts = np.bincount(tags.owner[unnamed], minlength=tags.owners)
    starts = np.cumsum(counts) - counts
    per_row = counts[group]
    row = np.repeat(np.arange(len(group), dtype=np.int32), per_row)
    return row, unnamed[np.repeat(starts[group], per_row) + _places(per_row)]


def _last_of_each(ids: _Ints) -> _Ints:
    """The positions, in order, of the last occurrence of each id."""
    ordered = np.sort(ids)
    if not (ordered[1:] == ordered[:-1]).any():
        return np.arange(len(ids))
    _, from_end = np.unique(ids[::-1], return_index=True)
    return np.sort(len(ids) - 1 - from_end)
