"""Which rows a completed change of the table took: its files before and after it, compared by key and writing instant.

Hudi keeps a row's key and commit time (`_hoodie_commit_time`) when it writes a file anew, and gives a row that it adds
or changes its own instant (hudi.apache.org/docs/file_layouts). So a change that took rows away, and did nothing else,
leaves no pair of the two that was not there before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.exceptions import ForeignWrite, TableError
from airflow_provider_slshudi.handover.erasures import KEY, WRITTEN
from airflow_provider_slshudi.hudi.evolution import SCHEMA_KEY, TableSchema, shows
from airflow_provider_slshudi.hudi.layout import Instant
from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage

if TYPE_CHECKING:
    import pyarrow as pa

_BASE_FILE = ".parquet"
_COLUMNS_CHANGED = "ALTER_SCHEMA"
_COLUMNS = {RECORD_KEY: KEY, "_hoodie_commit_time": WRITTEN}


@dataclass(frozen=True)
class Change:
    """A completed change of a table, and the stats of its commit."""

    storage: Storage
    timeline: Timeline
    instant: Instant

    @property
    def operation(self) -> str:
        """Hudi's name of it."""
        return self.timeline.operation(self.instant)

    def require_columns_kept(self) -> None:
        """Raises ForeignWrite for a change of the columns: rows that stay may lose values by it."""
        if self.operation == _COLUMNS_CHANGED or not self._has_all_columns():
            raise ForeignWrite(
                f"{self.storage.uri}: instant {self.instant.time} ({self.operation}) changed the table's columns, so "
                "it is no erasure. Run `slshudi ledger rebuild`, which takes the table as it is, or restore the table "
                "to before it",
                table=self.storage.uri,
                instant=self.instant.time,
                operation=self.operation,
            )

    def _has_all_columns(self) -> bool:
        """Whether the schema that the change's commit carries, if any, has what the commit before it had."""
        now = self.timeline.extra_metadata(self.instant).get(SCHEMA_KEY)
        older = (item for item in reversed(self.timeline.completed(*CHANGES)) if item.time < self.instant.time)
        before = next(filter(None, (self.timeline.extra_metadata(item).get(SCHEMA_KEY) for item in older)), None)
        return not now or before is None or shows(TableSchema(json.loads(now), self.instant.time), before)

    def deleted(self) -> int | None:
        """How many rows a change of a Merge-On-Read table deleted, by its own stats, since the rows lie in log files.

        None if it dropped whole file groups, whose rows no commit counts.

        Raises:
            ForeignWrite: it added or changed rows.
        """
        record = self.timeline.record(self.instant)
        stats = [stat for stats in (record.get("partitionToWriteStats") or {}).values() for stat in stats]
        if more := sum(int(stat["numInserts"]) + int(stat["numUpdateWrites"]) for stat in stats):
            raise self._refuse(more)
        dropped = any((record.get("partitionToReplaceFileIds") or {}).values())
        return None if dropped else sum(int(stat["numDeletes"]) for stat in stats)

    def taken(self) -> Iterator[tuple[int, pa.Table]]:
        """Of each file group, the number of rows that it took, and key and writing instant of those that are gone.

        A row that its batch had written twice, and that is there once now, was taken and is not gone.

        Raises:
            ForeignWrite: it added or changed rows.
            TableError: a file as it was before is gone.
        """
        for before, after in self._files():
            if after is None:
                yield from ((rows.num_rows, rows) for rows in self._row_groups(before))
            else:
                yield self._less(before, after)

    def _files(self) -> Iterator[tuple[str | None, str | None]]:
        """Each file group's base file before and after the change; None where it had, or has, none."""
        record = self.timeline.record(self.instant)
        written: Mapping[str, Any] = record.get("partitionToWriteStats") or {}
        replaced: Mapping[str, Any] = record.get("partitionToReplaceFileIds") or {}
        for partition in {**written, **replaced}:
            older = self._older(partition)
            for stat in written.get(partition) or ():
                new = stat.get("prevCommit") in (None, "", "null")
                yield None if new else self._before(older, stat["fileId"]), stat["path"]
            for group in replaced.get(partition) or ():
                yield self._before(older, group), None

    def _older(self, partition: str) -> dict[str, tuple[str, str]]:
        """By file group, instant and path of its newest base file in a partition that is older than the change."""
        pending = {item.time for item in self.timeline.pending()}
        newest_files: dict[str, tuple[str, str]] = {}
        for name in self.storage.names(partition) or ():
            group, _, rest = name.removesuffix(_BASE_FILE).partition("_")
            time = rest.rpartition("_")[2]
            if name.endswith(_BASE_FILE) and time < self.instant.time and time not in pending:
                path = f"{partition}/{name}" if partition else name
                newest_files[group] = max(newest_files.get(group, ("", "")), (time, path))
        return newest_files

    def _before(self, older: Mapping[str, tuple[str, str]], group: str) -> str:
        if group not in older:
            raise TableError(
                f"{self.storage.uri}: instant {self.instant.time} ({self.operation}) replaced file group {group}, "
                "whose file as it was before is gone: a clean deleted it. So which rows the change took cannot be "
                "told. Restore that file, or the table to before the change",
                table=self.storage.uri,
                instant=self.instant.time,
            )
        return older[group][1]

    def _row_groups(self, path: str | None) -> Iterator[pa.Table]:
        """Key and writing instant of the rows of a base file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if path is None:
            return
        try:
            with pq.ParquetFile(self.storage.filesystem.open_input_file(self.storage.full(path))) as file:
                for number in range(file.num_row_groups):
                    rows = file.read_row_group(number, list(_COLUMNS))
                    yield rows.select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values()))
        except (OSError, pa.ArrowInvalid) as error:
            raise TableError(
                # Its folder, which the error names as well, may be a value of a log.
                f"{self.storage.uri}: {path.rpartition('/')[2]} could not be read ({type(error).__name__})",
                table=self.storage.uri,
                instant=self.instant.time,
            ) from None

    def _less(self, before: str | None, after: str) -> tuple[int, pa.Table]:
        """How many rows are there no more, and the pairs of which none is.

        Raises:
            ForeignWrite: a pair is there more often than before.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        def counted(path: str | None, was: int) -> Iterator[pa.Table]:
            for rows in self._row_groups(path):
                each = rows.append_column("was", pa.repeat(pa.scalar(was, pa.int8()), rows.num_rows))
                yield each.append_column("now", pa.repeat(pa.scalar(1 - was, pa.int8()), rows.num_rows))

        row_groups = [*counted(before, 1), *counted(after, 0)]
        if not row_groups:
            return 0, pa.table({KEY: pa.array([], pa.string()), WRITTEN: pa.array([], pa.string())})
        # Each thread would have a table of pairs of its own.
        grouped = pa.concat_tables(row_groups).group_by([KEY, WRITTEN], use_threads=False)
        pairs = grouped.aggregate([("was", "sum"), ("now", "sum")])
        was, now = pairs["was_sum"], pairs["now_sum"]
        if more := pc.sum(pc.greater(now, was)).as_py():
            raise self._refuse(more)
        return pc.sum(pc.subtract(was, now)).as_py(), pairs.select([KEY, WRITTEN]).filter(pc.equal(now, 0))

    def _refuse(self, more: int) -> ForeignWrite:
        return ForeignWrite(
            f"{self.storage.uri}: instant {self.instant.time} ({self.operation}), which this pipeline did not write, "
            f"added or changed {more} rows. Only a change that took rows away, and did nothing else, is accepted as an "
            "erasure. Restore the table to before it; or run `slshudi ledger rebuild`, which takes the table as it is, "
            "and `slshudi verify` goes on to name the rows",
            table=self.storage.uri,
            instant=self.instant.time,
            operation=self.operation,
        )
