"""Base files of an append, written straight from Arrow (hudi.apache.org/docs/file_layouts).

A writer belongs to one Spark task attempt. It leaves a marker before each file: a rollback deletes the files that
markers name, and a commit deletes marked files that no write status lists. So a failed attempt leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import MOST_FILES
from airflow_provider_slshudi.exceptions import TooManyFiles
from airflow_provider_slshudi.hudi.files.marking import abandon, describe_partition, mark
from airflow_provider_slshudi.hudi.files.parquet import KEY, SEQUENCE, BaseFile, Encodings
from airflow_provider_slshudi.hudi.files.spill import Spill, Waiting
from airflow_provider_slshudi.rows.partitions import partition_path

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.storage.files import Storage


ROW_GROUP_BYTES = 32 * 1024 * 1024
LEAST_ROW_GROUP_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 96 * 1024 * 1024
OPEN_FILES = 8
MOST_OF_TARGET = 1.4
"""A file may grow to this multiple of the target if a further file would be small."""


@dataclass
class _Partition:
    table: int
    path: str
    waiting: Waiting = field(default_factory=Waiting)
    file: BaseFile | None = None
    seen_bytes: int = 0


class BaseFileWriter:
    """Writes the rows of one task attempt into base files of one instant, of one table or several.

    Args:
        storage: the table's file system.
        instant: the instant that the files belong to.
        write_token: `{partition}-{stage}-{attempt}` of the Spark task, part of each file's name.
        target_bytes: the intended size of a file.
        still_wanted: raises ManifestError once another run decided about the instant.
        beside: the file systems of further tables, whose rows share the memory with the table's.

    It holds `BUFFER_BYTES` of rows in memory, and half as many again while it puts them in order. It writes a row group
    once a partition has `ROW_GROUP_BYTES` of rows, and keeps at most `OPEN_FILES` files open. When memory is full and a
    partition has no file, its rows wait on the local disk until `close` if they are too few for a row group, or if no
    further file may be opened. So a partition has one file, or more if the target size asks for it.

    A context manager: if the block fails, it deletes the attempt's files.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        write_token: str,
        target_bytes: int,
        still_wanted: Callable[[], None],
        beside: Sequence[Storage] = (),
    ) -> None:
        self._storages, self._instant, self._still_wanted = [storage, *beside], instant, still_wanted
        self._token, self._target = write_token, target_bytes
        self._row_group = min(ROW_GROUP_BYTES, max(1, target_bytes // 2))
        self._partitions: dict[tuple[int, str], _Partition] = {}
        self._open = 0
        self._held = 0  # bytes that the buffered rows keep in memory
        self._spill = Spill()
        self._encodings = Encodings()
        self._files: list[BaseFile] = []
        self._stats: list[list[dict[str, Any]]] = [[] for _ in self._storages]
        self._rows = 0
        self._done: float | None = None

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spill.close()
        if error is not None:
            abandon(self._files)

    def write(
        self,
        rows: pa.Table,
        keys: pa.Array,
        partition_name: str | None,
        partitions: pa.Array | None,
        done: float | None = None,
        table: int = 0,
    ) -> None:
        """Appends rows.

        Args:
            rows: the table's data columns.
            keys: the row keys, one per row.
            partition_name: the partition column, None for a table without partitions.
            partitions: the partition value of each row, dictionary-encoded strings.
            done: the share of the task's work that is done with these rows, 0 to 1. The writer foresees the sizes of
                its open files from it. None if unknown.
            table: whose rows they are: 0, or the number of a table beside, counted from 1.

        Raises:
            ManifestError: another run decided about the instant.
            TooManyFiles: the rows have more partitions than a commit takes.
            TransientError: the local disk does not take the rows that wait.
        """
        if not rows.num_rows:
            return
        if not self._rows:
            self._still_wanted()
        self._done = done
        rows = rows.append_column(SEQUENCE, _numbers(self._rows, rows.num_rows)).append_column(KEY, keys)
        self._rows += rows.num_rows
        size = rows.nbytes
        self._held += size
        # Rows of several tables are cut out of the same memory.
        several = len(self._storages) > 1
        if partition_name is None or partitions is None:
            self._append(table, "", rows, size, shared=several)
        else:
            each, parts = size / rows.num_rows, _split(rows, partitions)
            for value, part in parts:
                path = partition_path(partition_name, value)
                self._append(table, path, part, math.ceil(part.num_rows * each), shared=several or len(parts) > 1)
        if self._held >= BUFFER_BYTES:
            self._make_room()

    def close(self) -> list[dict[str, Any]]:
        """Finishes every file; returns one write stat per file of the first table. Raises as `write`."""
        return self.close_all()[0]

    def close_all(self) -> list[list[dict[str, Any]]]:
        """Finishes every file; returns for each table one write stat per file, as Hudi's HoodieWriteStat."""
        self._done = 1.0
        # Open files and rows in memory first: reading spilled rows back takes memory again.
        for partition in sorted(self._partitions.values(), key=lambda item: (item.waiting.spilled, item.file is None)):
            self._complete(partition)
        return self._stats

    def _append(self, table: int, path: str, rows: pa.Table, size: int, shared: bool) -> None:
        partition = self._partitions.get((table, path))
        if partition is None:
            if len(self._partitions) == MOST_FILES:
                # Raised here, before the task writes more that no commit takes.
                raise TooManyFiles(self._instant, MOST_FILES + 1, MOST_FILES, path.partition("=")[0])
            partition = self._partitions[table, path] = _Partition(table, path)
        partition.waiting.add(rows, size, shared)
        partition.seen_bytes += size
        if partition.waiting.buffered_bytes >= self._row_group and self._may_write(partition):
            self._write_rows(partition, *partition.waiting.take())

    def _may_write(self, partition: _Partition) -> bool:
        """Whether the partition's rows may go into its file now: no file too many, no row group too small."""
        if partition.file is not None:
            return True
        least = min(LEAST_ROW_GROUP_BYTES, self._row_group)
        waiting = partition.waiting
        return not waiting.spilled and self._open < OPEN_FILES and waiting.buffered_bytes >= least

    def _make_room(self) -> None:
        """Writes or spills the largest partitions until half of the memory is free, and copies the others together."""
        buffered_bytes = sum(partition.waiting.buffered_bytes for partition in self._partitions.values())
        for partition in sorted(self._partitions.values(), key=lambda item: -item.waiting.buffered_bytes):
            waiting = partition.waiting
            if buffered_bytes <= BUFFER_BYTES // 2:
                waiting.own()
                continue
            buffered_bytes -= waiting.buffered_bytes
            if self._may_write(partition):
                self._write_rows(partition, *waiting.take())
            else:
                waiting.spill(self._spill)
        self._held = buffered_bytes

    def _write_rows(self, partition: _Partition, rows: pa.Table, size: int) -> None:
        """Adds a row group to the partition's file, and completes the file if it is long enough."""
        file = partition.file
        if file is None:
            file = partition.file = self._start(partition.table, partition.path)
        file.write(rows, size)
        remaining_bytes = partition.waiting.buffered_bytes + partition.waiting.spilled_bytes + self._to_come(partition)
        ratio = file.written / max(1, file.arrow_bytes)
        # A file ends with the row group that brings it nearest to its size.
        if self._is_full(file.written + self._row_group * ratio / 2, file.written, remaining_bytes * ratio):
            self._finish(partition)

    def _to_come(self, partition: _Partition) -> float:
        """Bytes that the partition will still get if the task's rows go on as they were."""
        if self._done is None or self._done <= 0:
            return math.inf
        return partition.seen_bytes * (1 - self._done) / self._done

    def _is_full(self, about: float, written: int, left: float) -> bool:
        """Whether a file of `written` bytes ends here; `about` has half a row group more, `left` bytes are to come."""
        if math.isinf(left):
            return about >= self._target
        whole = written + left
        if left <= 0 or whole <= MOST_OF_TARGET * self._target:
            return False
        return about >= whole / max(2, round(whole / self._target))

    def _complete(self, partition: _Partition) -> None:
        for rows, size in partition.waiting.row_groups(self._spill, self._row_group):
            self._write_rows(partition, rows, size)
        if partition.file is not None:
            self._finish(partition)

    def _start(self, table: int, partition: str) -> BaseFile:
        storage = self._storages[table]
        file = BaseFile(storage, self._instant, self._token, partition, self._encodings)
        mark(storage, self._instant, file.path, self._still_wanted)
        describe_partition(storage, self._instant, partition)
        self._files.append(file)
        file.open()
        self._open += 1
        return file

    def _finish(self, partition: _Partition) -> None:
        file, partition.file = partition.file, None
        assert file is not None  # noqa: S101
        self._open -= 1
        file.close()
        # Asked again: a rollback between the first answer and now may have looked before the file was there.
        self._still_wanted()
        self._stats[partition.table].append(file.stat())


def _numbers(first: int, count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _split(rows: pa.Table, partitions: pa.Array) -> list[tuple[str | None, pa.Table]]:
    """The rows of each partition value; one sort by the value's code, no pass per value."""
    import numpy as np
    import pyarrow.compute as pc

    values = partitions.dictionary
    codes = pc.fill_null(partitions.indices, len(values)).to_numpy(zero_copy_only=False)
    counts = np.bincount(codes, minlength=len(values) + 1)
    present = np.nonzero(counts)[0]
    if len(present) > 1:
        rows = rows.take(np.argsort(codes, kind="stable"))
    parts, begin = [], 0
    for code in present:
        value = values[int(code)].as_py() if code < len(values) else None
        parts.append((value, rows.slice(begin, int(counts[code]))))
        begin += int(counts[code])
    return parts
