"""Hudi tables made by hand: base files and timeline files as Hudi's client and ours leave them, without a JVM."""

from __future__ import annotations

import io
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import FOLDER, PROPERTIES
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, arrow_schema, avro_schema
from airflow_provider_slshudi.rows.partitions import partition_path
from airflow_provider_slshudi.storage.files import Storage

Rows = Sequence[Mapping[str, Any]]
_TEXTS = {"type": "map", "values": "string"}
_STAT = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        *({"name": name, "type": ["null", "string"], "default": None} for name in ("fileId", "path", "prevCommit")),
        *({"name": name, "type": ["null", "long"], "default": None} for name in ("numWrites", "fileSizeInBytes")),
    ],
}
_COMMIT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "fields": [
            {
                "name": "partitionToWriteStats",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
            },
            {"name": "extraMetadata", "type": ["null", _TEXTS]},
            {
                "name": "partitionToReplaceFileIds",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
            },
        ],
    }
)
_ROLLBACK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRollbackMetadata",
        "fields": [{"name": "commitsRollback", "type": {"type": "array", "items": "string"}}],
    }
)


@dataclass
class HandMade:
    """A table; each method that changes it puts an instant on the timeline and returns its request time."""

    pipeline: Pipeline
    _times: Any = field(default_factory=lambda: count(20260101000000000))

    def __post_init__(self) -> None:
        self.storage = Storage(self.pipeline.table.path)
        self.storage.write(PROPERTIES, b"hoodie.table.name=made\n")
        self.storage.make_folder(FOLDER)

    def time(self) -> str:
        return str(next(self._times))

    def begin(self, action: str = "commit") -> str:
        """Puts an instant on the timeline that stays inflight."""
        time = self.time()
        self.storage.write(f"{FOLDER}/{time}.{action}.requested", b"")
        self.storage.write(f"{FOLDER}/{time}{'' if action == 'commit' else f'.{action}'}.inflight", b"")
        return time

    def write(
        self, instant: str, rows: Rows, group: str | None = None, schema: pa.Schema | None = None
    ) -> dict[str, Any]:
        """Writes one base file; returns its write stat. All rows are of the first one's partition."""
        columns = schema or arrow_schema(self.pipeline)
        partition, group = self.partition(rows), group or f"{uuid.uuid4()}-0"
        path = f"{partition}/" * bool(partition) + f"{group}_0-0-0_{instant}.parquet"
        given = {name: [row.get(name) for row in rows] for name in columns.names}
        table = pa.table({**dict.fromkeys(META_COLUMNS, [instant] * len(rows)), **given}, _with_meta(columns))
        return {
            "fileId": group,
            "path": path,
            "prevCommit": "null",
            "numWrites": len(rows),
            "fileSizeInBytes": self._put_rows(path, table),
        }

    def partition(self, rows: Rows) -> str:
        by = self.pipeline.table.partition
        if by is None:
            return ""
        value = rows[0].get(by.name)
        return partition_path(by.name, None if value is None else str(value))

    def complete(
        self,
        instant: str,
        stats: Sequence[Mapping[str, Any]],
        action: str = "commit",
        replaced: Sequence[Mapping[str, Any]] = (),
        **extra: str,
    ) -> str:
        """Completes an instant with these files; `replaced` are the stats of files whose groups go."""
        groups = {_folder(stat): [stat["fileId"]] for stat in replaced}
        for stat in replaced:
            groups[_folder(stat)] = [one["fileId"] for one in replaced if _folder(one) == _folder(stat)]
        record = {
            "partitionToWriteStats": {
                _folder(stat): [one for one in stats if _folder(one) == _folder(stat)] for stat in stats
            },
            "partitionToReplaceFileIds": groups,
            "extraMetadata": {"schema": avro_schema(self.pipeline), TRANSACTION_KEY: f"of-{instant}", **extra},
        }
        self._put(f"{instant}_{self.time()}.{action}", _COMMIT, record)
        return instant

    def append(self, *files: Rows) -> list[dict[str, Any]]:
        """Commits one base file for each of `files`; returns their stats."""
        instant = self.begin()
        stats = [self.write(instant, rows) for rows in files]
        self.complete(instant, stats)
        return stats

    def update(self, old: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
        """Commits the next version of a base file, as an upsert of a Copy-On-Write table does."""
        instant = self.begin()
        before = old["path"].rpartition("_")[2].removesuffix(".parquet")
        folder = _folder(old)
        stat = self.write(instant, rows, old["fileId"]) if rows else self._empty(instant, old)
        assert _folder(stat) == folder
        updated: dict[str, Any] = {**stat, "prevCommit": before}
        self.complete(instant, [updated])
        return updated

    def _empty(self, instant: str, old: Mapping[str, Any]) -> dict[str, Any]:
        path = f"{old['path'].rpartition('_')[0]}_{instant}.parquet"
        size = self._put_rows(path, _with_meta(arrow_schema(self.pipeline)).empty_table())
        return {**old, "path": path, "numWrites": 0, "fileSizeInBytes": size}

    def _put_rows(self, path: str, rows: pa.Table) -> int:
        """Writes a base file; returns its bytes."""
        content = io.BytesIO()
        pq.write_table(rows, content, store_schema=False)
        self.storage.write(path, content.getvalue())
        return len(content.getvalue())

    def cluster(self, old: Sequence[Mapping[str, Any]], rows: Rows) -> dict[str, Any]:
        """Replaces the file groups of `old` by one new file."""
        instant = self.begin("clustering")
        stat = self.write(instant, rows)
        self.complete(instant, [stat], "replacecommit", old)
        return stat

    def roll_back(self, instant: str, *files: str) -> str:
        """Takes an instant, completed or not, off the timeline, with these files of it."""
        rollback = self.time()
        self.storage.write(f"{FOLDER}/{rollback}.rollback.requested", b"")
        for name in self.storage.names(FOLDER) or []:
            if name.startswith((f"{instant}.", f"{instant}_")):
                self.storage.delete(f"{FOLDER}/{name}")
        self.storage.delete_files(files)
        self._put(f"{rollback}_{self.time()}.rollback", _ROLLBACK, {"commitsRollback": [instant]})
        return rollback

    def archive(self, keep: int) -> None:
        """Takes all but the newest completed writes off the active timeline, as archival does."""
        names = sorted(name for name in self.storage.names(FOLDER) or [] if name[0].isdigit())
        times = sorted({name[:17] for name in names if "_" in name})[:-keep]
        self.storage.delete_files([f"{FOLDER}/{name}" for name in names if name[:17] in times])

    def _put(self, name: str, schema: Any, record: Mapping[str, Any]) -> None:
        content = io.BytesIO()
        fastavro.writer(content, schema, [dict(record)])
        self.storage.write(f"{FOLDER}/{name}", content.getvalue())


def _with_meta(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *columns])


def _folder(stat: Mapping[str, Any]) -> str:
    return str(stat["path"].rpartition("/")[0])


def counted(rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Rows as a bag, whatever their order."""
    return Counter(repr(sorted((name, repr(value)) for name, value in row.items())) for row in rows)
