"""Logs that change rows, and what a table has to hold after them, in plain Python."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.config import PROTOCOL_OPTIONS, Pipeline, Upsert
from airflow_provider_slshudi.hudi.commit import upsert_options
from tests.crash.counts import as_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Key = tuple[str, str]
"""Partition and record key."""

_DATA_FILE = re.compile(r"\.?(?P<id>\d{8}-[^_]+)_.*")


@dataclass(frozen=True)
class Change:
    """One log of the pipeline `tests.pipelines.customers`."""

    id: str
    updated_at: int
    region: str
    number: int | None = None
    name: str | None = None
    score: float | None = None
    is_deleted: bool = False

    @property
    def key(self) -> Key:
        return self.region, self.id

    @property
    def row(self) -> dict[str, Any]:
        """As the table has it."""
        return {**vars(self), "is_deleted": True if self.is_deleted else None}

    def log(self) -> list[tuple[str, str]]:
        """As the log has it: no key for NULL."""
        return [(name, str(value)) for name, value in self.row.items() if value is not None]


def put(client: LogClient, pipeline: Pipeline, changes: Iterable[Change], at: int = 1_700_000_000) -> None:
    """Puts the changes, in their order, each group of 50 in one log group."""
    items = [LogItem(at, contents=change.log()) for change in changes]
    source = pipeline.source
    for first in range(0, len(items), 50):
        group = items[first : first + 50]
        client.put_logs(PutLogsRequest(source.project, source.logstore, "customers", "10.0.0.1", group))


class Model:
    """What the table has to hold, batch by batch."""

    def __init__(self, upsert: Upsert) -> None:
        self._upsert = upsert
        self.rows: dict[Key, dict[str, Any]] = {}

    def batch(self, changes: Iterable[Change]) -> None:
        """Merges a batch in: first its own rows of each key, then with what is there."""
        reduced: dict[Key, Change] = {}
        for change in changes:
            before = reduced.get(change.key)
            reduced[change.key] = change if before is None else self._later(before, change)
        for key, change in reduced.items():
            self._merge(key, change)

    def _later(self, before: Change, after: Change) -> Change:
        by_time = self._upsert.mode == "event_time"
        loser, winner = (before, after) if not by_time or after.updated_at >= before.updated_at else (after, before)
        return Change(**_filled(vars(winner), vars(loser))) if self._upsert.partial_update else winner

    def _merge(self, key: Key, change: Change) -> None:
        there = self.rows.get(key)
        older = self._upsert.mode == "event_time" and there is not None and change.updated_at < there["updated_at"]
        if self._upsert.partial_update and there is not None:
            winner, loser = (there, change.row) if older else (change.row, there)
            self.rows[key] = _filled(winner, loser)
        elif not older and change.is_deleted and self._upsert.delete_marker is not None:
            self.rows.pop(key, None)
        elif not older:
            self.rows[key] = change.row

    def table(self) -> list[tuple[Any, ...]]:
        """The rows in an order of their own."""
        return sorted_rows(self.rows.values())


def _filled(winner: Mapping[str, Any], loser: Mapping[str, Any]) -> dict[str, Any]:
    return {name: loser[name] if value is None else value for name, value in winner.items()}


def sorted_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows as tuples that two tables can be compared by."""
    names = ("region", "id", "updated_at", "number", "name", "score", "is_deleted")
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda row: row[:2])


def rows_by_spark(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return sorted_rows(row.asDict() for row in spark.read.format("hudi").load(path).collect())


def rows_by_rust(path: str) -> list[tuple[Any, ...]]:
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(as_url(path)).build().read()
    return sorted_rows(row for batch in batches for row in batch.to_pylist())


def write_by_data_source(spark: SparkSession, pipeline: Pipeline, changes: list[Change], **options: str) -> None:
    """Upserts rows with Hudi's own Spark data source (hudi.apache.org/docs/writing_data), as a user of it would."""
    table = pipeline.table
    assert table.upsert is not None and table.partition is not None
    compacts = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    given = {
        **PROTOCOL_OPTIONS,
        **upsert_options(table.upsert),
        **(compacts if table.type == "merge_on_read" else {}),
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": table.type.upper(),
        "hoodie.datasource.write.partitionpath.field": table.partition.name,
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        **options,
    }
    schema = ", ".join(f"{column.name} {column.type}" for column in pipeline.columns)
    rows = [tuple(change.row[column.name] for column in pipeline.columns) for change in changes]
    frame = spark.createDataFrame(rows, schema)
    frame.write.format("hudi").options(**given).mode("append").save(table.path)


def file_groups_of(table: Path) -> dict[str, set[str]]:
    """The file groups of each partition folder, by the names of its files."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in table.rglob("*"):
        place = file.relative_to(table)
        match = _DATA_FILE.fullmatch(file.name)
        if match and ".hoodie" not in place.parts and not file.name.endswith(".crc"):
            found[str(place.parent)].add(match["id"])
    return found
