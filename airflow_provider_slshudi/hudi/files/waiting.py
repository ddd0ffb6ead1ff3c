"""Rows of one partition that wait to be written: on the local disk first, then in memory, in the order they came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.hudi.files.spill import Spill


@dataclass
class Waiting:
    """Rows that wait; sizes are bytes of Arrow memory, about."""

    buffered_bytes: int = 0
    spilled_bytes: int = 0
    _buffered: list[pa.Table] = field(default_factory=list)
    _spilled: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    _shared: bool = False

    @property
    def spilled(self) -> bool:
        """Whether rows are on the disk; all later rows have to come after them."""
        return bool(self._spilled)

    def add(self, rows: pa.Table, size: int, shared: bool) -> None:
        """Adds rows after the others.

        Args:
            rows: the rows.
            size: their share of the table that they are a slice of.
            shared: whether they are a slice, which keeps the whole table in memory.
        """
        self._buffered.append(rows)
        self.buffered_bytes += size
        self._shared = self._shared or shared

    def take(self) -> tuple[pa.Table, int]:
        """Removes the rows in memory; returns them and their size."""
        import pyarrow as pa

        rows, size = pa.concat_tables(self._buffered), self.buffered_bytes
        self._buffered, self.buffered_bytes, self._shared = [], 0, False
        return rows, size

    def own(self) -> None:
        """Copies the rows in memory if they are slices, which keep whole tables there."""
        import pyarrow as pa

        if not self._shared:
            return
        rows, size = self.take()
        # With an empty one, because a single chunk would be kept as it is.
        self._buffered = [pa.concat_tables([rows, rows.slice(0, 0)]).combine_chunks()]
        self.buffered_bytes = size

    def spill(self, disk: Spill) -> None:
        """Moves the rows in memory to the disk. Raises TransientError if the disk does not take them."""
        rows, size = self.take()
        self._spilled.append((disk.append(rows.combine_chunks()), size))
        self.spilled_bytes += size

    def row_groups(self, disk: Spill, least: int) -> Iterator[tuple[pa.Table, int]]:
        """All rows, in tables of at least `least` bytes but for the last one, with their sizes."""
        import pyarrow as pa

        group: list[pa.Table] = []
        group_bytes = 0
        for place, size in self._spilled:
            group.append(disk.read(place))
            group_bytes += size
            self.spilled_bytes -= size
            if group_bytes >= least:
                yield pa.concat_tables(group), group_bytes
                group, group_bytes = [], 0
        self._spilled = []
        if self._buffered:
            rows, size = self.take()
            group.append(rows)
            group_bytes += size
        if group:
            yield pa.concat_tables(group), group_bytes
