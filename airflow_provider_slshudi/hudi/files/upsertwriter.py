"""Writes a batch's changes, bucket by bucket: log files, or base files made anew (hudi.apache.org/docs/table_types).

A writer belongs to one Spark task attempt and owns its buckets' file groups. As with an append, it leaves a marker
before each file, asks before and after the file whether the order still stands, and deletes its files if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from airflow_provider_slshudi.hudi.files.filegroups import Completed, FileGroup, file_groups, new_file_id
from airflow_provider_slshudi.hudi.files.logfile import LogFile, delete_records
from airflow_provider_slshudi.hudi.files.marking import abandon, describe_partition, mark
from airflow_provider_slshudi.hudi.files.merge import MergeSpec, after_existing, deleted, fold, merge
from airflow_provider_slshudi.hudi.files.parquet import BaseFile, Encodings
from airflow_provider_slshudi.hudi.files.row_changes import Part
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, RECORD_KEY
from airflow_provider_slshudi.system.native import numbered

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.storage.files import Storage


@dataclass(frozen=True)
class UpsertSpec:
    """The facts that all writers of an instant share; plain data.

    Attributes:
        schema: the table's columns with Hudi's, as Avro's JSON.
        columns: the table's columns, as Arrow has them.
        with_logs: whether the table is merge-on-read.
        completed: the instants whose files count.
    """

    instant: str
    merge: MergeSpec
    schema: str
    columns: pa.Schema
    with_logs: bool
    completed: Completed


class UpsertWriter:
    """Writes the buckets of one task attempt.

    Args:
        storage: the table's file system.
        spec: the instant and its table.
        write_token: `{partition}-{stage}-{attempt}` of the Spark task, part of each file's name.
        still_wanted: raises ManifestError once another run decided about the instant.

    A context manager: if the block fails, it deletes the attempt's files.
    """

    def __init__(self, storage: Storage, spec: UpsertSpec, write_token: str, still_wanted: Callable[[], None]) -> None:
        self._storage, self._spec, self._token, self._still_wanted = storage, spec, write_token, still_wanted
        self._groups: dict[str, dict[int, FileGroup]] = {}
        self._files: list[BaseFile | LogFile] = []
        self._encodings = Encodings()
        self._rows = 0
        self.stats: list[dict[str, Any]] = []
        """One write stat per file, as Hudi's."""

    def __enter__(self) -> UpsertWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            abandon(self._files)

    def write(self, partition: str, bucket: int, parts: Iterator[Part]) -> None:
        """Writes all rows of the batch that belong to one bucket, deletes included.

        It holds one row per key, a part, and a base file that it makes anew.

        Args:
            partition: the folder within the table, empty where it has no partitions.
            bucket: the bucket's number.
            parts: the rows, as `Changes.buckets` gives them.

        Raises:
            ManifestError: another run decided about the instant.
            TableMismatch: the bucket has more than one file group.
        """
        if partition not in self._groups:
            self._groups[partition] = file_groups(self._storage, partition, self._spec.completed)
        group = self._groups[partition].get(bucket)
        if group is not None and self._spec.with_logs:
            self._log_file(partition, group, *self._folded(parts))
        else:
            self._base_file(partition, bucket, group, parts)

    def _folded(self, parts: Iterable[Part]) -> Part:
        """One row per key, with the table's columns only."""
        rows, keys = fold(parts, self._spec.merge)
        return rows.select(self._spec.columns.names).cast(self._spec.columns), keys

    def _log_file(self, partition: str, group: FileGroup, rows: pa.Table, keys: pa.Array) -> None:
        import pyarrow as pa

        file = LogFile(self._storage, self._spec.instant, self._token, partition, group.file_id)
        delete_mask = deleted(rows, self._spec.merge)
        mask = pa.array(delete_mask)
        ordering = self._spec.merge.ordering_field
        values = rows[ordering].filter(mask).combine_chunks() if ordering is not None else None
        deletes = delete_records(keys.filter(mask), partition, values)
        upsert_mask = pa.array(~delete_mask)
        # Hudi names the file group here, not the file.
        data = self._complete(rows.filter(upsert_mask), keys.filter(upsert_mask), partition, group.file_id)
        self._mark(file)
        file.write(self._spec.schema, data, self._encodings, deletes, int(delete_mask.sum()))
        self._close(file)

    def _base_file(self, partition: str, bucket: int, group: FileGroup | None, parts: Iterator[Part]) -> None:
        import pyarrow as pa

        instant, spec = self._spec.instant, self._spec
        file_id = group.file_id if group is not None else new_file_id(bucket)
        file = BaseFile(self._storage, instant, self._token, partition, self._encodings, file_id)
        existing_rows = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *spec.columns]).empty_table()
        if group is not None and group.base_file is not None:
            existing_rows = self._read(partition, group.base_file, existing_rows.schema)
        there_keys = existing_rows[RECORD_KEY].combine_chunks()
        if spec.merge.partial_update:
            parts = after_existing(parts, existing_rows, there_keys)
        rows, keys = self._folded(parts)
        data = self._complete(rows, keys, partition, file.name)
        merged = merge(existing_rows, there_keys, data, keys, spec.merge)
        if group is None and not merged.rows.num_rows:
            return  # deletes of keys that the table never had
        table = file.named(merged.rows)
        self._mark(file)
        file.open()
        file.write_complete(table, table.nbytes)
        stat = {
            "numInserts": merged.inserted,
            "numUpdateWrites": merged.updated,
            "numDeletes": merged.deleted,
            "prevCommit": (group.instant if group is not None else None) or "null",
            "prevBaseFile": group.base_file if group is not None else None,
        }
        self._close(file, stat)

    def _read(self, partition: str, name: str, schema: pa.Schema) -> pa.Table:
        """A base file's rows as `schema` has them; columns that it lacks are NULL."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = f"{partition}/{name}" if partition else name
        file_rows = pq.read_table(self._storage.full(path), filesystem=self._storage.filesystem, partitioning=None)
        columns = {
            field.name: file_rows[field.name].cast(field.type)
            if field.name in file_rows.column_names
            else pa.nulls(file_rows.num_rows, field.type)
            for field in schema
        }
        return pa.table(columns, schema=schema)

    def _complete(self, rows: pa.Table, keys: pa.Array, partition: str, file_name: str) -> pa.Table:
        """The rows with Hudi's columns."""
        import pyarrow as pa

        count, task = rows.num_rows, self._token.split("-")[0]
        numbers = pa.array(np.arange(self._rows, self._rows + count, dtype=np.int64))
        self._rows += count
        meta = [
            pa.repeat(self._spec.instant, count),
            numbered(f"{self._spec.instant}_{task}", "_", numbers),
            keys.cast(pa.string()),
            pa.repeat(partition, count),
            pa.repeat(file_name, count),
        ]
        return pa.table([*meta, *rows.columns], names=[*META_COLUMNS, *rows.column_names])

    def _mark(self, file: BaseFile | LogFile) -> None:
        """Leaves the marker of a file, and makes its folder a partition."""
        mark(self._storage, self._spec.instant, file.path, self._still_wanted)
        describe_partition(self._storage, self._spec.instant, file.partition)
        self._files.append(file)

    def _close(self, file: BaseFile | LogFile, more: dict[str, Any] | None = None) -> None:
        file.close()
        # Asked again: a rollback between the first answer and now may have looked before the file was there.
        self._still_wanted()
        self.stats.append({**file.stat(), **(more or {})})
