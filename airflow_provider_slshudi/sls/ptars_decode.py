"""The decoder that is always there: ptars parses, numpy and pyarrow pivot.

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

from airflow_provider_slshudi.sls import wire
from airflow_provider_slshudi.sls.columns import LARGEST_TABLE, REST, TAG, Wide, checked, malformed, names, schema

_HANDLER = HandlerPool([wire.FILE]).get_for_message(wire.LOG_GROUP_LIST)
_Ints = NDArray[Any]


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
    parsed = _parse(pull_body, shard, first)
    checked(len(parsed), groups, shard, first)
    if _copied(parsed) > min(most, LARGEST_TABLE - len(pull_body)):
        raise Wide(shard, first, "more copies of topics, sources and tags than there may be")
    logs_of_group = parsed.field("Logs")
    logs = logs_of_group.flatten()
    group, index = _expand(logs_of_group)
    of_row = pa.array(group)
    named = pa.array([key.encode() for key in names(keys)], pa.binary())
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
    for content, tag in zip(contents.columns(), tags.columns(), strict=True):
        if tag is None:
            columns.append(pa.nulls(len(group), pa.binary()) if content is None else content)
        else:
            tag = tag.take(of_row)
            columns.append(tag if content is None else pc.coalesce(content, tag))
    columns.append(_rest(contents, tags, group))
    return pa.Table.from_arrays(columns, schema=schema(keys))


class _Pairs:
    """The key-value pairs of some owners (logs, or log groups): which key has a slot, and where its last value is."""

    def __init__(self, lists: Any, named: Any, prefix: bytes = b"") -> None:
        pairs = lists.flatten()
        self.codes, names = _encoded(pairs.field("Key").fill_null(b""), np.diff(np.asarray(lists.offsets)))
        self.names = pc.binary_join_element_wise(pa.scalar(prefix), names, pa.scalar(b"")) if prefix else names
        self.values = _with_empty(pairs.field("Value").fill_null(b""))
        self.owners, self._slots = len(lists), len(named)
        self.owner = _expand(lists)[0]
        slots = pc.index_in(self.names, value_set=named).fill_null(len(named)).to_numpy(zero_copy_only=False)
        self._is_named = slots < len(named)
        # Assigning through repeated indices keeps the last one, which is what a repeated key means.
        last = np.full((len(named) + 1) * self.owners, len(self.codes), np.int32)
        last[(slots.astype(np.int64) * self.owners)[self.codes] + self.owner] = np.arange(
            len(self.codes), dtype=np.int32
        )
        self._last = last[: len(named) * self.owners]

    def columns(self) -> list[Any]:
        """For each slot, the value of its key, one per owner, NULL where it has none; None where no owner has any."""
        # One take for all columns, with no NULL among the values, costs least.
        taken = pc.take(self.values, pa.array(self._last), boundscheck=False)
        presence = self._last != len(self.codes)
        columns = []
        for start in range(0, len(self._last), self.owners or 1):
            column, valid = taken.slice(start, self.owners), presence[start : start + self.owners]
            if not valid.all():
                column = _masked(column, valid) if valid.any() else None
            columns.append(column)
        return columns or [None] * self._slots

    def unnamed(self) -> _Ints:
        """The positions of the pairs whose key has no slot."""
        places: _Ints = np.flatnonzero(~self._is_named[self.codes])
        return places


def _encoded(keys: Any, counts: _Ints) -> tuple[_Ints, Any]:
    """Each key's place in a dictionary, and the dictionary.

    Logs mostly have the same keys in the same order; then it is enough to look up those of the first log.
    """
    if len(counts) > 1 and counts[0] and (counts == counts[0]).all():
        offsets = _offsets(keys)
        lengths = np.diff(offsets)
        data = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        period = offsets[counts[0]] - offsets[0]
        same = np.array_equal(lengths[counts[0] :], lengths[: -counts[0]])
        if same and period and np.array_equal(data[period:], data[:-period]):
            first = keys.slice(0, counts[0]).dictionary_encode()
            return np.tile(np.asarray(first.indices), len(counts)), first.dictionary
    encoded = keys.dictionary_encode()
    return np.asarray(encoded.indices), encoded.dictionary


def _offsets(values: Any) -> _Ints:
    """Where in its data each element of a binary array begins, and where the last one ends."""
    return np.asarray(pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], 0, values.offset))


def _with_empty(values: Any) -> Any:
    """`values`, which holds no NULL, and an empty one after the last."""
    offsets = _offsets(values)
    longer = np.append(offsets, offsets[-1])
    return pa.Array.from_buffers(values.type, len(values) + 1, [None, pa.py_buffer(longer), values.buffers()[2]], 0)


def _masked(values: Any, valid: NDArray[np.bool_]) -> Any:
    """`values`, which holds no NULL, with NULL where not `valid`."""
    _, offsets, data = values.buffers()
    bits = np.packbits(np.concatenate([np.zeros(values.offset % 8, bool), valid]), bitorder="little")
    start = values.offset % 8
    moved = offsets.slice((values.offset - start) * 4)
    return pa.Array.from_buffers(values.type, len(values), [pa.py_buffer(bits), moved, data], -1, start)


def _copied(groups: Any) -> int:
    """How many bytes the logs' copies of what their log groups have once take: topic, source and tags."""
    tags = groups.field("LogTags")
    pairs = tags.flatten()
    ends = np.cumsum(len(TAG) + _lengths(pairs.field("Key")) + _lengths(pairs.field("Value")))
    before, offsets = np.append(0, ends), np.asarray(tags.offsets)
    shared = before[offsets[1:] - offsets[0]] - before[offsets[:-1] - offsets[0]]
    shared = shared + _lengths(groups.field("Topic")) + _lengths(groups.field("Source"))
    return int(shared @ np.diff(np.asarray(groups.field("Logs").offsets)).astype(np.int64))


def _lengths(values: Any) -> _Ints:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).cast(pa.int64()))


def _parse(body: bytes, shard: int, first: int) -> Any:
    try:
        return _HANDLER.list_to_record_batch([body]).column(0).flatten()
    except BaseException as error:
        # At a length near 2**64 ptars panics, and a panic is no Exception.
        if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
            raise malformed(body, str(error), shard, first) from error
        raise


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
    last_indices = _last_of_each(row.astype(np.int64) * len(names.dictionary) + name)
    order = last_indices[np.argsort(row[last_indices], kind="stable")]
    values = pa.concat_arrays([tags.values.take(pa.array(tag)), contents.values.take(pa.array(pair))])
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row[last_indices], minlength=rows), out=offsets[1:])
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
