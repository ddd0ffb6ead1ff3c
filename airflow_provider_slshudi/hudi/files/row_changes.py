"""The rows that a writing task has to merge into its buckets, in bounded memory (hudi.apache.org/docs/indexes)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from airflow_provider_slshudi.hudi.files.merge import PLACE, MergeSpec, reduce_rows
from airflow_provider_slshudi.hudi.files.spill import Spill
from airflow_provider_slshudi.hudi.schema import RECORD_KEY

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION, BUCKET = " partition", " bucket"
"""Columns beside the table's: the folder and the bucket that a row belongs to."""

BUFFER_BYTES = 128 * 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
"""Rows on the disk are read back in pieces of about this size."""
WINDOW_BYTES = 16 * 1024 * 1024
"""Partial updates are merged in steps of about this size."""

_SAMPLE_ROWS = 65_536

Part = tuple["pa.Table", "pa.Array"]
"""Rows with the table's columns and `PLACE`, and their record keys."""


@dataclass(frozen=True)
class _Piece:
    """Rows on the disk: the smallest of their places in the source, and their place on the disk."""

    first: tuple[int, ...]
    at: tuple[int, int]


class Changes:
    """The changes of one task attempt; a context manager.

    It holds `BUFFER_BYTES` of rows, and as many again while it puts them in order. When they are full it keeps one row
    per key: then a key that changes often takes no memory. Rows that are still too many wait on the local disk, by
    bucket. So do partial updates, of which only all rows of a key in their order make the right one.

    Attributes:
        count: the rows that came.
    """

    def __init__(self, spec: MergeSpec) -> None:
        self._spec = spec
        self._held: list[pa.Table] = []
        self._held_bytes = self.count = 0
        self._spill = Spill()
        self._pieces: dict[tuple[str, int], list[_Piece]] = defaultdict(list)

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *error: object) -> None:
        self._spill.close()

    def add(self, rows: pa.Table) -> None:
        """Adds rows, in any order; they have the table's columns, `PLACE`, RECORD_KEY, `PARTITION` and `BUCKET`.

        Raises:
            TransientError: the local disk does not take the rows that wait.
        """
        self.count += rows.num_rows
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= BUFFER_BYTES:
            self._make_room()

    def buckets(self) -> Iterator[tuple[str, int, Iterator[Part]]]:
        """Each partition and bucket with its rows in parts; parts of partial updates come in the order of `PLACE`.

        The rows of one bucket have to be taken before those of the next. Raises as `add`.
        """
        if self._pieces and self._held:
            self._move_to_disk(self._take())
        if self._pieces:
            for (partition, bucket), pieces in self._pieces.items():
                yield partition, bucket, map(_part, self._read(pieces))
        elif self._held:
            # Parts of partial updates are merged one after the other, which takes less memory than all at once.
            size = WINDOW_BYTES if self._spec.partial_update else 2 * BUFFER_BYTES
            cut = _by_bucket(self._take(), self._spec, size)
            for (partition, bucket), parts in groupby(cut, key=lambda piece: piece[:2]):
                yield partition, bucket, (_part(rows) for _, _, rows in parts)

    def _take(self) -> pa.Table:
        import pyarrow as pa

        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        return rows

    def _make_room(self) -> None:
        rows = self._take()
        if not self._spec.partial_update and _has_repeated_keys(rows):
            partitions = rows[PARTITION].combine_chunks().dictionary_encode().indices.to_numpy()
            rows, _ = reduce_rows(rows, rows[RECORD_KEY].combine_chunks(), self._spec, partitions)
            if rows.nbytes <= BUFFER_BYTES // 2:
                self._held, self._held_bytes = [rows], rows.nbytes
                return
        self._move_to_disk(rows)

    def _move_to_disk(self, rows: pa.Table) -> None:
        # Not all at once: putting rows in order copies them.
        for some in _cut(rows, BUFFER_BYTES // 4):
            for partition, bucket, piece in _by_bucket(some, self._spec, PIECE_BYTES):
                first = tuple(piece[name][0].as_py() for name in PLACE)
                self._pieces[partition, bucket].append(_Piece(first, self._spill.append(piece)))

    def _read(self, pieces: list[_Piece]) -> Iterator[pa.Table]:
        """The rows of some pieces; those of partial updates in the order of `PLACE`, a window after the other."""
        import pyarrow as pa

        if not self._spec.partial_update:
            yield from (self._spill.read(piece.at) for piece in pieces)
            return
        pieces = sorted(pieces, key=lambda piece: piece.first)
        waiting = self._spill.read(pieces[0].at)
        for piece in pieces[1:]:
            if waiting.nbytes >= WINDOW_BYTES:
                # Each further piece begins where this one does or later.
                is_before = pa.array(_before(waiting, piece.first))
                yield waiting.filter(is_before)
                waiting = waiting.filter(_inverted(is_before))
            waiting = pa.concat_tables([waiting, self._spill.read(piece.at)])
        yield waiting


def _part(rows: pa.Table) -> Part:
    return rows.drop_columns([RECORD_KEY]), rows[RECORD_KEY].combine_chunks()


def _has_repeated_keys(rows: pa.Table) -> bool:
    """Whether half of a sample's keys are there more than once, so that one row per key saves memory."""
    import pyarrow.compute as pc

    keys = rows[RECORD_KEY].slice(0, _SAMPLE_ROWS)
    return bool(pc.count_distinct(keys).as_py() <= len(keys) / 2)


def _cut(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """The rows in pieces of about `size` bytes."""
    step = max(1, rows.num_rows * size // max(1, rows.nbytes))
    return (rows.slice(begin, step) for begin in range(0, rows.num_rows, step))


def _by_bucket(rows: pa.Table, spec: MergeSpec, size: int) -> Iterator[tuple[str, int, pa.Table]]:
    """The rows of each partition and bucket, in pieces of about `size` bytes; one sort, no pass per bucket.

    Partial updates are in the order of `PLACE`.
    """
    partitions = rows[PARTITION].combine_chunks().dictionary_encode()
    buckets, codes = rows[BUCKET].to_numpy(), partitions.indices.to_numpy()
    places = [rows[name].to_numpy() for name in reversed(PLACE)] if spec.partial_update else []
    order = np.lexsort((*places, buckets, codes))
    rows, codes, buckets = rows.drop_columns([PARTITION, BUCKET]).take(order), codes[order], buckets[order]
    starts = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(buckets, prepend=-1) != 0))
    for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
        partition = partitions.dictionary[int(codes[begin])].as_py()
        for piece in _cut(rows.slice(begin, end - begin), size):
            yield partition, int(buckets[begin]), piece


def _before(rows: pa.Table, place: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Which rows come before a place."""
    is_before = np.zeros(rows.num_rows, bool)
    for name, bound in reversed(list(zip(PLACE, place, strict=True))):
        values = rows[name].to_numpy()
        is_before = (values < bound) | ((values == bound) & is_before)
    return is_before


def _inverted(mask: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.invert(mask)
