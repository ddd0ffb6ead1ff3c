"""Decides which of several rows of a key stays, in Arrow (hudi.apache.org/docs/record_merger).

Of a Merge-On-Read table only the rows of one batch meet here, and those of a bucket's first base file: Hudi's readers
and compaction merge log files with what is in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

PLACE = (" shard", " cursor", " index")
"""Columns beside the table's: where a row came from. They order rows of a key that are equal otherwise.

No column of a pipeline can have such a name.
"""


FOLD_BYTES = 32 * 1024 * 1024
"""Parts of a bucket's rows are merged once they have more bytes than this, and than twice what the last merge left."""


@dataclass(frozen=True)
class MergeSpec:
    """A pipeline's `upsert` for tasks; plain data, so that executors need no pydantic."""

    record_key: tuple[str, ...]
    ordering_field: str | None
    delete_marker: str | None
    partial_update: bool
    buckets: int


@dataclass(frozen=True)
class Merged:
    """A file's rows after a merge, and how many were inserted, updated, deleted."""

    rows: pa.Table
    inserted: int
    updated: int
    deleted: int


def fold(parts: Iterable[tuple[pa.Table, pa.Array]], spec: MergeSpec) -> tuple[pa.Table, pa.Array]:
    """One row per key of all parts, with the keys, as `reduce_rows` of them all would make it.

    Args:
        parts: one at least, each with rows and their keys. Those of partial updates come in the order of `PLACE`.
        spec: how rows are merged.
    """
    held: list[tuple[pa.Table, pa.Array]] = []
    least = 0
    for part in parts:
        held.append(part)
        if len(held) > 1 and sum(rows.nbytes for rows, _ in held) > max(least, FOLD_BYTES):
            rows, keys = _joined(held)
            held = [_carried(rows, keys, spec) if spec.partial_update else reduce_rows(rows, keys, spec)]
            # So often that all of it takes about as long as once.
            least = 2 * held[0][0].nbytes
    return reduce_rows(*_joined(held), spec)


def _joined(parts: list[tuple[pa.Table, pa.Array]]) -> tuple[pa.Table, pa.Array]:
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables([rows for rows, _ in parts]), pa.concat_arrays([keys for _, keys in parts])


def reduce_rows(
    rows: pa.Table, keys: pa.Array, spec: MergeSpec, partitions: np.ndarray[Any, Any] | None = None
) -> tuple[pa.Table, pa.Array]:
    """One row per key, with the keys: the row with the greatest ordering value, of equal ones the one that came last.

    Shards are not ordered among each other; rows of a child shard come after those of its parents, whose ids are
    smaller. For partial updates see `_folded`.

    Args:
        rows: the rows, with `PLACE`.
        keys: their record keys.
        spec: how rows are merged.
        partitions: the number of the partition of each row, if they have several.
    """
    coded = keys.dictionary_encode()
    if len(coded.dictionary) == len(keys):
        return rows, keys
    codes = coded.indices.to_numpy(zero_copy_only=False)
    if partitions is not None:
        codes = codes + partitions.astype(np.int64) * len(coded.dictionary)
    by = [_numbers(rows[name]) for name in reversed(PLACE)]
    if spec.ordering_field is not None and not spec.partial_update:
        by.append(_numbers(rows[spec.ordering_field]))
    order = np.lexsort([*by, codes])
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    last = np.append(starts[1:], len(order)) - 1
    reduced_rows = _folded(rows.take(order), starts, spec) if spec.partial_update else rows.take(order[last])
    return reduced_rows, keys.take(_array(order[last]))


def _carried(rows: pa.Table, keys: pa.Array, spec: MergeSpec) -> tuple[pa.Table, pa.Array]:
    """Up to two rows per key, which in front of later rows stand for all of `rows`; and the keys.

    The first one has the values of the rows that were the newest when they came, the second one those of the others.
    """
    import pyarrow as pa

    coded = keys.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort([*(_numbers(rows[name]) for name in reversed(PLACE)), codes])
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rows, keys = rows.take(order), keys.take(_array(order[starts]))
    newest = _newest(rows, starts, spec)
    has_others = ~np.logical_and.reduceat(newest, starts)
    tables = []
    for number, choose in enumerate((_last, _first)):
        columns = [
            pa.repeat(pa.scalar(number if name == PLACE[-1] else -1, values.type), len(starts))
            if name in PLACE
            else _chosen(values, choose(values, newest, starts))
            for name, values in zip(rows.column_names, rows.columns, strict=True)
        ]
        tables.append(pa.table(columns, schema=rows.schema))
    others = _array(has_others)
    return pa.concat_tables([tables[0], tables[1].filter(others)]), pa.concat_arrays([keys, keys.filter(others)])


def after_existing(
    parts: Iterable[tuple[pa.Table, pa.Array]], there: pa.Table, there_keys: pa.Array
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """The parts, each with `after` for the keys that were in no part before it."""
    import pyarrow.compute as pc

    before = None
    for rows, keys in parts:
        if before is not None:
            is_left = pc.invert(pc.is_in(there_keys, value_set=before))
            there, there_keys = there.filter(is_left), there_keys.filter(is_left)
        before = keys
        yield after(there, there_keys, rows, keys)


def after(there: pa.Table, there_keys: pa.Array, rows: pa.Table, keys: pa.Array) -> tuple[pa.Table, pa.Array]:
    """The rows of `there` whose keys `rows` have too, then `rows`; and the keys of all these.

    Args:
        there: the file's rows.
        there_keys: the record key of each of them, strings.
        rows: the batch's rows, with the same columns.
        keys: the record key of each of `rows`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    shared_mask = pc.is_in(there_keys, value_set=keys)
    before = there.filter(shared_mask).select([name for name in rows.column_names if name not in PLACE])
    for name in PLACE:
        before = before.append_column(name, pa.repeat(pa.scalar(-1, rows.schema.field(name).type), before.num_rows))
    before = before.select(rows.column_names).cast(rows.schema)
    return pa.concat_tables([before, rows]), pa.concat_arrays([there_keys.filter(shared_mask).cast(keys.type), keys])


def merge(there: pa.Table, there_keys: pa.Array, rows: pa.Table, keys: pa.Array, spec: MergeSpec) -> Merged:
    """Merges `rows` into `there`, the rows of a file; both have Hudi's columns, and the keys of `rows` are distinct.

    Args:
        there: the file's rows.
        there_keys: the record key of each of them, strings.
        rows: the batch's rows, one of each key.
        keys: the record key of each of `rows`.
        spec: how two rows of a key become one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    positions = pc.index_in(keys, value_set=there_keys)
    is_new = pc.is_null(positions).to_numpy(zero_copy_only=False)
    matching = pc.is_in(there_keys, value_set=keys).to_numpy(zero_copy_only=False)
    if matching.sum() > (~is_new).sum():
        single = _array(_single(there, there_keys, matching, spec))
        return merge(there.filter(single), there_keys.filter(single), rows, keys, spec)
    indices = pc.fill_null(positions, 0).to_numpy(zero_copy_only=False)
    older = np.zeros(len(keys), bool)
    if spec.ordering_field is not None and there.num_rows:
        theirs = there[spec.ordering_field].take(_array(indices))
        older = pc.fill_null(pc.less(rows[spec.ordering_field], theirs), False).to_numpy() & ~is_new
    deletes = deleted(rows, spec)
    if spec.partial_update:
        matched = ~is_new
        filled = _filled(rows, there, matched, indices, older)
        removal_mask, written = matched, filled
        counts = (int(is_new.sum()), int(matched.sum()), 0)
    else:
        removal_mask = ~is_new & ~older
        written = rows.filter(_array(~older & ~deletes))
        counts = (
            int((is_new & ~deletes).sum()),
            int((removal_mask & ~deletes).sum()),
            int((removal_mask & deletes).sum()),
        )
    keep = np.ones(there.num_rows, bool)
    keep[indices[removal_mask]] = False
    return Merged(pa.concat_tables([there.filter(_array(keep)), written]), *counts)


def _single(
    there: pa.Table, there_keys: pa.Array, matching: np.ndarray[Any, Any], spec: MergeSpec
) -> np.ndarray[Any, Any]:
    """Which rows stay if `matching` ones share a key, as after another writer's INSERT: of these the newest per key."""
    codes = there_keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    by = [np.arange(len(codes))]
    if spec.ordering_field is not None:
        by.append(_numbers(there[spec.ordering_field]))
    order = np.lexsort([*by, codes])
    last = np.append(np.flatnonzero(np.diff(codes[order])), len(order) - 1)
    stays = ~matching
    stays[order[last]] = True
    return stays


def deleted(rows: pa.Table, spec: MergeSpec) -> np.ndarray[Any, Any]:
    """Which rows delete the row of their key."""
    import pyarrow.compute as pc

    if spec.delete_marker is None:
        return np.zeros(rows.num_rows, bool)
    delete_mask: np.ndarray[Any, Any] = pc.fill_null(rows[spec.delete_marker], False).to_numpy()
    return delete_mask


def _filled(
    rows: pa.Table,
    there: pa.Table,
    matched: np.ndarray[Any, Any],
    found: np.ndarray[Any, Any],
    older: np.ndarray[Any, Any],
) -> pa.Table:
    """`rows`, each with the existing row's values where it has none, or where the existing row is newer and has one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not there.num_rows:
        return rows
    other = there.take(pa.array(found, mask=~matched))
    columns = []
    for name in rows.column_names:
        ours, theirs = rows[name].combine_chunks(), other[name].combine_chunks()
        if name.startswith("_hoodie_"):
            columns.append(ours)
            continue
        has_ours, has_theirs = (pc.is_valid(values).to_numpy(zero_copy_only=False) for values in (ours, theirs))
        takes_theirs = np.where(older, has_theirs, ~has_ours)
        places = np.arange(len(ours)) + takes_theirs * len(ours)
        columns.append(pa.concat_arrays([ours, theirs]).take(_array(places)))
    return pa.table(columns, schema=rows.schema)


def _folded(rows: pa.Table, starts: np.ndarray[Any, Any], spec: MergeSpec) -> pa.Table:
    """The row that each key's partial updates make, merged one by one in the order of `rows`, in which they came.

    The result does not depend on how batches are cut. A row's values replace existing values; a row that comes after a
    newer one only fills NULLs. So a column has the last value of the rows that were the newest when they came, or, if
    these have none, the first value of the others.
    """
    import pyarrow as pa

    newest = _newest(rows, starts, spec)
    columns = []
    for values in rows.columns:
        last = _last(values, newest, starts)
        columns.append(_chosen(values, np.where(last >= 0, last, _first(values, newest, starts))))
    return pa.table(columns, schema=rows.schema)


def _newest(rows: pa.Table, starts: np.ndarray[Any, Any], spec: MergeSpec) -> np.ndarray[Any, Any]:
    """Which rows were the newest of their key when they came; a key's rows begin at one of `starts`."""
    count = rows.num_rows
    if spec.ordering_field is None:
        return np.ones(count, bool)
    _, ranks = np.unique(_numbers(rows[spec.ordering_field]), return_inverse=True)
    groups = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
    heights = groups * count + ranks
    newest_mask: np.ndarray[Any, Any] = heights == np.maximum.accumulate(heights)
    return newest_mask


def _last(values: pa.ChunkedArray, newest: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each key the place of the last value of the newest rows; -1 if they have none."""
    has_value = values.is_valid().to_numpy() & newest
    places: np.ndarray[Any, Any] = np.maximum.reduceat(np.where(has_value, np.arange(len(values)), -1), starts)
    return places


def _first(values: pa.ChunkedArray, newest: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each key the place of the first value of the other rows; -1 if they have none."""
    count = len(values)
    has_value = values.is_valid().to_numpy() & ~newest
    first_places = np.minimum.reduceat(np.where(has_value, np.arange(count), count), starts)
    return np.where(first_places == count, -1, first_places)


def _chosen(values: pa.ChunkedArray, places: np.ndarray[Any, Any]) -> pa.ChunkedArray:
    """The values at some places; NULL where a place is -1."""
    import pyarrow as pa

    return values.take(pa.array(np.maximum(places, 0), mask=places < 0))


def _numbers(values: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    import pyarrow as pa

    numbers: np.ndarray[Any, Any] = values.cast(pa.int64()).to_numpy()
    return numbers


def _array(values: np.ndarray[Any, Any] | Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)
