"""Logs that change rows, and what a table has to hold after them, in plain Python."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.config.options import PROTOCOL_OPTIONS
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import Upsert
from airflow_provider_slshudi.hudi.client.writer import upsert_options
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.rows.keys import bucket_ids
from airflow_provider_slshudi.storage.files import Storage
from tests.exact.counts import as_url
from tests.exact.outcome import Outcome

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


def put(
    client: LogClient,
    pipeline: Pipeline,
    changes: Iterable[Change],
    at: int = 1_700_000_000,
    hash_key: str | None = None,
) -> None:
    """Puts the changes, in their order, each group of 50 in one log group.

    Args:
        client: the log service as producers reach it.
        pipeline: names project and logstore.
        changes: what is put.
        at: the time of all logs, in unix seconds.
        hash_key: the shard that holds this key, of 32 hexadecimal digits, gets all of them; None is any shard.
    """
    items = [LogItem(at, contents=change.log()) for change in changes]
    source = pipeline.source
    for first in range(0, len(items), 50):
        group = items[first : first + 50]
        client.put_logs(PutLogsRequest(source.project, source.logstore, "customers", "10.0.0.1", group, hash_key))


class Model:
    """What the table has to hold, batch by batch; `with_logs` where it is Merge-On-Read, and was not compacted."""

    def __init__(self, upsert: Upsert, with_logs: bool = False) -> None:
        self._upsert, self._with_logs = upsert, with_logs
        self.rows: dict[Key, dict[str, Any]] = {}
        self._base: dict[Key, dict[str, Any]] = {}
        self._logs: dict[Key, dict[str, Any]] = {}
        self._known: set[tuple[str, int]] = set()

    def batch(self, changes: Iterable[Change]) -> None:
        """Merges a batch in."""
        changes = list(changes)
        if self._upsert.partial_update:
            self._fold(changes)
            return
        reduced: dict[Key, Change] = {}
        for change in changes:
            before = reduced.get(change.key)
            if before is None or not self._is_older(change.row, before.row):
                reduced[change.key] = change
        for key, change in reduced.items():
            self._merge(key, change)

    def follow(self, ledger: Ledger, pipeline: str, merged: set[str], waiting: list[Change]) -> list[Change]:
        """Merges what was committed, where batches read changes in the order in which they were put.

        Args:
            ledger: has the committed batches, and how many changes each has read.
            pipeline: the pipeline's name.
            merged: the ids of batches that the model knows; gets those that it did not.
            waiting: the changes that no known batch has read, in their order.

        Returns:
            those that are still waiting.
        """
        committed = [batch for batch in ledger.last(pipeline, 20, State.COMMITTED) if batch.id not in merged]
        for batch in sorted(committed, key=lambda batch: str(batch.instant)):
            merged.add(batch.id)
            count = int(batch.rows or 0)
            self.batch(waiting[:count])
            waiting = waiting[count:]
        return waiting

    def _merge(self, key: Key, change: Change) -> None:
        there = self.rows.get(key)
        if there is not None and self._is_older(change.row, there):
            return
        if change.is_deleted and self._upsert.delete_marker is not None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = change.row

    def _fold(self, changes: list[Change]) -> None:
        """Each row as if it came alone; readers of log files merge these first, and then with the base file."""
        buckets = {change.key: (change.region, self._bucket(change.id)) for change in changes}
        for change in changes:
            rows = self._logs if self._with_logs and buckets[change.key] in self._known else self._base
            rows[change.key] = self._later(rows.get(change.key), change.row)
            base, logs = self._base.get(change.key), self._logs.get(change.key)
            self.rows[change.key] = self._later(base, logs) if logs is not None else dict(base or {})
        self._known |= set(buckets.values())

    def _later(self, there: dict[str, Any] | None, row: dict[str, Any]) -> dict[str, Any]:
        if there is None:
            return row
        winner, loser = (there, row) if self._is_older(row, there) else (row, there)
        return {name: loser[name] if value is None else value for name, value in winner.items()}

    def _is_older(self, row: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
        return self._upsert.mode == "event_time" and bool(row["updated_at"] < there["updated_at"])

    def _bucket(self, id_: str) -> int:
        keys = pa.array([id_])
        return int(bucket_ids(self._upsert.record_key, [keys], keys, self._upsert.buckets)[0])

    def table(self) -> list[tuple[Any, ...]]:
        """The rows in an order of their own."""
        return sorted_rows(self.rows.values())


def sorted_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows as tuples that two tables can be compared by."""
    names = ("region", "id", "updated_at", "number", "name", "score", "is_deleted")
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda row: row[:2])


def count_rows(expected: list[tuple[Any, ...]], changes: int, table: Storage, spark: SparkSession) -> Outcome:
    """Compares a table with its model, as hudi-rs and as Spark show it.

    Args:
        expected: the rows of the model, in its order.
        changes: how many logs were put.
        table: the table's folder.
        spark: reads the table.
    """
    outcome = Outcome(changes)
    readers: dict[str, list[tuple[Any, ...]]] = {
        "hudi-rs": rows_by_rust(table.uri),
        "Spark": rows_by_spark(spark, table.full("")),
    }
    for reader, rows in readers.items():
        if rows != expected:
            wrong = sorted(set(rows) ^ set(expected), key=repr)
            doubled = len(rows) - len({row[:2] for row in rows})
            lost = len({row[:2] for row in wrong})
            said = f"{doubled} doubled, {lost} with lost updates; {len(rows)} rows, the model has {len(expected)}"
            outcome.match(Outcome(lost=lost, doubled=doubled, differences=[f"{reader}: {said}; differ: {wrong[:4]}"]))
    return outcome


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
