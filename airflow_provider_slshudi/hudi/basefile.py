"""Base files of an append, written straight from Arrow (hudi.apache.org/docs/file_layouts, parquet.apache.org/docs).

A writer belongs to one Spark task attempt. Before a file there is a marker: a rollback deletes what the markers
name, and a commit deletes marked files that no write status lists, which is how a failed attempt leaves no trace.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.points import Point, reach

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_slshudi.hudi.storage import Storage

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# What Hudi escapes in a partition path (PartitionPathEncodeUtils).
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(1, 32)))

ROW_GROUP_BYTES = 32 * 1024 * 1024
OPEN_FILES = 8
_SAMPLE_ROWS = 20_000
_DISTINCT_SHARE = 0.5


def partition_path(name: str, value: str | None) -> str:
    """The folder of a partition value, Hive style."""
    text = NULL_PARTITION if not value else "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in value)
    return f"{name}={text}"


@dataclass
class _OpenFile:
    path: str
    file_id: str
    partition: str
    sink: Any
    writer: pq.ParquetWriter | None = None
    buffered: list[pa.Table] = field(default_factory=list)
    buffered_bytes: int = 0
    rows: int = 0


class BaseFileWriter:
    """Writes the rows of one task attempt into base files of one instant.

    Args:
        storage: the table's file system.
        instant: the instant that the files belong to.
        write_token: `{partition}-{stage}-{attempt}` of the Spark task, part of each file's name.
        target_bytes: a file that has reached this size is closed.
        still_wanted: raises ManifestError once somebody else decided about the instant.

    At most `OPEN_FILES` files are open and each buffers at most a row group, whatever the number of partitions.
    """

    def __init__(
        self, storage: Storage, instant: str, write_token: str, target_bytes: int, still_wanted: Callable[[], None]
    ) -> None:
        self._storage, self._instant, self._still_wanted = storage, instant, still_wanted
        self._token, self._target = write_token, target_bytes
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._stats: list[dict[str, Any]] = []
        self._rows = 0

    def write(self, rows: pa.Table, keys: pa.Array, partition_name: str | None, partitions: pa.Array | None) -> None:
        """Appends rows.

        Args:
            rows: the table's data columns.
            keys: the row keys, one per row.
            partition_name: the partition column, None for a table without partitions.
            partitions: the partition value of each row, dictionary-encoded strings.
        """
        if not rows.num_rows:
            return
        sequence = _numbers(self._rows, rows.num_rows)
        self._rows += rows.num_rows
        rows = rows.append_column("_sequence", sequence).append_column("_key", keys)
        if partition_name is None or partitions is None:
            self._append("", rows)
            return
        for value, part in _split(rows, partitions):
            self._append(partition_path(partition_name, value), part)

    def close(self) -> list[dict[str, Any]]:
        """Finishes every file; gives one write stat per file, as Hudi's HoodieWriteStat."""
        while self._open:
            self._finish(next(iter(self._open)))
        return self._stats

    def _append(self, partition: str, rows: pa.Table) -> None:
        file = self._open.get(partition)
        if file is None:
            if len(self._open) >= OPEN_FILES:
                self._finish(next(iter(self._open)))
            file = self._open[partition] = self._start(partition)
        self._open.move_to_end(partition)
        file.buffered.append(rows)
        file.buffered_bytes += rows.nbytes
        if file.buffered_bytes >= ROW_GROUP_BYTES:
            self._flush(file)
            if file.sink.tell() >= self._target:
                self._finish(partition)

    def _start(self, partition: str) -> _OpenFile:
        file_id = f"{uuid.uuid4()}-0"
        name = f"{file_id}_{self._token}_{self._instant}.parquet"
        path = f"{partition}/{name}" if partition else name
        self._still_wanted()
        self._storage.write(f".hoodie/.temp/{self._instant}/{path}.marker.CREATE", b"")
        reach(Point.APPEND_TASK_MARKED)
        metadata = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
        if not self._storage.exists(metadata):
            depth = 1 if partition else 0
            text = f"#partition metadata\ncommitTime={self._instant}\npartitionDepth={depth}\n"
            self._storage.write(metadata, text.encode())
        return _OpenFile(path=path, file_id=file_id, partition=partition, sink=self._storage.create(path))

    def _flush(self, file: _OpenFile) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not file.buffered:
            return
        rows = pa.concat_tables(file.buffered)
        file.buffered, file.buffered_bytes = [], 0
        table = self._with_meta_columns(file, rows)
        if file.writer is None:
            file.writer = pq.ParquetWriter(
                file.sink,
                table.schema,
                compression="zstd",
                compression_level=1,
                store_schema=False,
                use_deprecated_int96_timestamps=False,
                **_encodings(table),
            )
        file.writer.write_table(table, row_group_size=table.num_rows)
        file.rows += table.num_rows

    def _with_meta_columns(self, file: _OpenFile, rows: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        count = rows.num_rows
        task = self._token.split("-")[0]
        sequence = pc.binary_join_element_wise(
            pa.scalar(f"{self._instant}_{task}"), rows["_sequence"].cast(pa.string()), "_"
        )
        meta = [
            _constant(self._instant, count),
            sequence,
            rows["_key"],
            _constant(file.partition, count),
            _constant(file.path.rpartition("/")[2], count),
        ]
        data = rows.drop_columns(["_sequence", "_key"])
        return pa.table([*meta, *data.columns], names=[*META_COLUMNS, *data.column_names])

    def _finish(self, partition: str) -> None:
        file = self._open.pop(partition)
        self._flush(file)
        if file.writer is not None:
            file.writer.close()
        file.sink.close()
        try:
            # Asked again: a rollback between the first answer and now may have looked before the file was there.
            self._still_wanted()
        except ManifestError:
            self._storage.delete(file.path)
            raise
        size = self._storage.size(file.path)
        self._stats.append(
            {
                "fileId": file.file_id,
                "path": file.path,
                "partitionPath": file.partition,
                "prevCommit": "null",
                "numWrites": file.rows,
                "numInserts": file.rows,
                "numDeletes": 0,
                "numUpdateWrites": 0,
                "totalWriteBytes": size,
                "fileSizeInBytes": size,
                "totalWriteErrors": 0,
            }
        )


def _numbers(first: int, count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _constant(value: str, count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


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


def _encodings(table: pa.Table) -> dict[str, Any]:
    """Dictionaries where values repeat; DELTA encodings where a dictionary would only be hashed for nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encodings = {"_hoodie_commit_seqno": "DELTA_BYTE_ARRAY", "_hoodie_record_key": "DELTA_BYTE_ARRAY"}
    dictionaries: list[str] = []
    for field_ in table.schema:
        name, type_ = field_.name, field_.type
        if name in encodings:
            continue
        if pa.types.is_nested(type_):
            dictionaries.extend(f"{name}.key_value.{part}" for part in ("key", "value"))
            continue
        if pa.types.is_string(type_) or pa.types.is_binary(type_):
            sample = table[name].slice(0, _SAMPLE_ROWS)
            if pc.count_distinct(sample).as_py() > _DISTINCT_SHARE * len(sample):
                encodings[name] = "DELTA_LENGTH_BYTE_ARRAY"
                continue
        dictionaries.append(name)
    return {"use_dictionary": dictionaries, "column_encoding": encodings}
