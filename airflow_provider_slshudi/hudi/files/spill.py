"""Rows that wait on the local disk, as Arrow streams (arrow.apache.org/docs/format/Columnar.html)."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from airflow_provider_slshudi.exceptions import TransientError

if TYPE_CHECKING:
    import pyarrow as pa


LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""Spark names its local directories to its Python workers by this, separated by commas."""


class Spill:
    """One file without a name, which holds pieces of rows as Arrow streams, lz4-compressed.

    It is below one of Spark's local directories, or in the system's temporary folder without Spark. Since it has no
    name, the system frees its space when it is closed or its process ends, however that happens.
    """

    def __init__(self) -> None:
        self._folder = random.choice(os.environ.get(LOCAL_DIRS, "").split(",")) or tempfile.gettempdir()  # noqa: S311
        self._file: IO[bytes] | None = None
        self._end = 0

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._end

    def append(self, rows: pa.Table) -> tuple[int, int]:
        """Puts rows on the disk; returns their place, for `read`.

        Raises:
            TransientError: the disk does not take them. Another attempt may run on another machine.
        """
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        # Without threads, here and below: handing small columns to them costs more than compressing them.
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_table(rows)
        content = sink.getvalue()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - closed by `close`
            self._file.seek(self._end)
            remainder = memoryview(content)
            while remainder:
                remainder = remainder[self._file.write(remainder) :]
        except OSError as error:
            raise self._failed(error) from error
        place = self._end, content.size
        self._end += content.size
        return place

    def read(self, place: tuple[int, int]) -> pa.Table:
        """The rows that `append` put there. Raises TransientError if the disk does not give them."""
        import pyarrow as pa

        assert self._file is not None  # noqa: S101 - a place is what `append` gave
        begin, size = place
        try:
            content = os.pread(self._file.fileno(), size, begin)
            return pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Gives the disk's space back."""
        if self._file is not None:
            self._file.close()

    def _failed(self, error: Exception) -> TransientError:
        return TransientError(
            f"the task has more rows than it holds in memory, so rows wait in {self._folder}, which failed"
            f" after {self._end} bytes: {error}. Give spark.local.dir (on a cluster the workers' {LOCAL_DIRS}) a "
            "folder with as much room as a task reads, or lower the pipeline's `batch.task_bytes`"
        )


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
