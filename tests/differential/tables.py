"""A random table: its columns, its history written by this package, and what it has to hold after each commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi import statistics
from airflow_provider_slshudi.hudi.client import commit, instants, rewriting, services
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files import slices
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.hudi.files.merge import PLACE
from airflow_provider_slshudi.hudi.files.upsertwriter import UpsertWriter
from airflow_provider_slshudi.hudi.instant_metadata import COMPACTION
from airflow_provider_slshudi.hudi.instant_metadata import action as action_of
from airflow_provider_slshudi.hudi.layout import CLUSTERING, Phase
from airflow_provider_slshudi.hudi.schema import arrow_schema
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.rows.keys import bucket_ids, record_keys
from airflow_provider_slshudi.rows.partitions import has_folder, partition_path
from airflow_provider_slshudi.spark.driver.upsert import upsert_spec
from airflow_provider_slshudi.storage.files import Storage
from tests.differential.values import SCALARS, TYPES, value

Row = dict[str, Any]
TOUCHED = " touched"
"""How many versions there were before a row's last batch; no column."""
KEYS = ["a", "b", "c", "d", "x" * 5000, "😀", "\uffee", "__null__", "a:b", "c,d"]
BUCKETS = 3
NUMBERS = [-7, 0, 1, 2, 3, 2**31 - 1]
_WIDER = {"int": "bigint", "decimal(9,2)": "decimal(38,10)", "decimal(18,0)": "decimal(38,10)"}


@dataclass(frozen=True)
class Version:
    """What the table holds after a commit; `base` is what a read-optimised query sees."""

    completion: str
    types: dict[str, str]
    rows: list[Row]
    base: list[Row]


@dataclass
class Shape:
    """How a table is; `kind` is append, copy_on_write or merge_on_read; `partition` a column, `at` for days.

    `version` is Hudi's of the table, None that of a new one.
    """

    kind: str
    types: dict[str, str]
    partition: str | None
    upsert: dict[str, Any] | None = None
    sort: list[str] = field(default_factory=list)
    zorder: bool = False
    options: dict[str, str] = field(default_factory=dict)
    version: int | None = None

    @property
    def partition_column(self) -> str | None:
        """The column that folders are named by."""
        return "event_day" if self.partition == "at" else self.partition

    def columns(self) -> dict[str, str]:
        """The types of all columns."""
        return self.types | ({"event_day": "string"} if self.partition == "at" else {})

    def pipeline(self, folder: Path) -> Pipeline:
        """The pipeline's description."""
        table: dict[str, Any] = {"path": f"file://{folder}", "name": "drawn", "options": self.options}
        table["version"] = self.version
        if self.partition == "at":
            table["partition"] = {"by": "event_time", "column": "happened", "name": "event_day"}
        elif self.partition is not None:
            table["partition"] = {"by": "field", "column": self.partition}
        if self.upsert is not None:
            table |= {"type": self.kind, "upsert": self.upsert}
        cluster = {"small_file": "1MiB", "sort": self.sort, "order": "zorder" if self.zorder else "linear"}
        columns = [
            {"name": name, "type": type_, **({"format": "millis"} if type_ == "timestamp" else {})}
            for name, type_ in self.types.items()
        ]
        return Pipeline.model_validate(
            {
                "name": "drawn",
                "source": {"project": "p", "logstore": "l"},
                "table": table,
                "columns": columns,
                "maintenance": {
                    "clustering": cluster,
                    "compact_after": 1,
                    "keep": {"commits": 20},
                    "min_commits": 30,
                    "max_commits": 40,
                },
            }
        )


def draw(rng: random.Random) -> Shape:
    """A random shape; every table has `n`, a number of each row."""
    kind = rng.choice(["append", "append", "copy_on_write", "merge_on_read"])
    types = {"n": "bigint"} | {f"c{at}": rng.choice(TYPES) for at in range(rng.randrange(3, 7))}
    if rng.random() < 0.7:
        types["s"] = "string"
        types["d"] = "double"
    partition = rng.choice([None, "at", "part", "part"])
    if partition == "at":
        types["happened"] = "timestamp"
    if partition == "part":
        types["part"] = rng.choice(["string", "int", "bigint", "date"])
    shape = Shape(kind, types, partition)
    if kind == "append":
        able = [name for name, type_ in types.items() if type_ in SCALARS and type_ != "binary"]
        shape.sort = rng.sample(able, rng.randrange(min(3, len(able)) + 1))
        shape.zorder = len(shape.sort) > 1 and rng.random() < 0.5
        if rng.random() < 0.3:
            shape.options = {"hoodie.metadata.index.column.stats.enable": "true"}
    else:
        shape = _with_keys(shape, rng)
    if not (shape.upsert or {}).get("partial_update"):
        shape.version = 8 if len(shape.types) % 2 else None
    return shape


def _with_keys(shape: Shape, rng: random.Random) -> Shape:
    """The same as a table whose rows have keys."""
    types, kind = shape.types, shape.kind
    types |= {"k": rng.choice(["string", "string", "int"]), "o": "bigint", "gone": "boolean"}
    key: list[str] = ["k"]
    if rng.random() < 0.4:
        types["k2"] = rng.choice(["string", "int"])
        key.append("k2")
    shape.upsert = {"record_key": key, "buckets": BUCKETS}
    if rng.random() < 0.6:
        shape.upsert["ordering_field"] = "o"
    if rng.random() < 0.3:
        shape.upsert["partial_update"] = True
    elif rng.random() < 0.8:
        shape.upsert["delete_marker"] = "gone"
    has_texts = "string" in (types[name] for name in key)
    if not has_texts and not (kind == "merge_on_read" and "partial_update" in shape.upsert):
        shape.options = {"hoodie.metadata.index.column.stats.enable": "true"}
    return shape


class Table:
    """A table on disk and its model; every act leaves a `Version`.

    `batches` are the rows that were given; of an upsert those that win in their batch.
    """

    def __init__(self, gateway: Gateway, folder: Path, shape: Shape, rng: random.Random) -> None:
        self.gateway, self.folder, self.shape, self._rng = gateway, folder, shape, rng
        self.pipeline = shape.pipeline(folder)
        self.storage = Storage(self.pipeline.table.path)
        self.versions: list[Version] = []
        self.acts: list[str] = []
        self.batches: list[list[Row]] = []
        self._rows: dict[Any, Row] = {}
        self._base: dict[Any, Row] = {}
        self._numbers = self._tasks = 0
        self._orders: dict[Any, int] = {}
        self._known: set[tuple[str, int]] = set()
        self._few = {
            name: rng.sample(SCALARS[type_], min(2, len(SCALARS[type_])))
            for name, type_ in shape.types.items()
            if type_ in SCALARS
        }
        instants.create_table(gateway, self.pipeline)

    def batch(self) -> None:
        """Some rows more, in one commit."""
        # Each batch has favourites of its own, so that files differ.
        for name, type_ in self.shape.types.items():
            if type_ in SCALARS and self._rng.random() < 0.6:
                self._few[name] = self._rng.sample(SCALARS[type_], min(2, len(SCALARS[type_])))
        rows = [self._row() for _ in range(self._rng.randrange(1, 16))]
        if self.shape.kind == "append":
            self._append(rows)
        else:
            self._upsert(rows)

    def add_columns(self) -> None:
        """A column more, and of those that may become wider one that does."""
        types = self.shape.types
        types[f"c{len(types)}"] = self._rng.choice(TYPES)
        narrow = [name for name, type_ in types.items() if type_ in _WIDER and name not in ("k2", "part")]
        if narrow and self.shape.kind == "append" and self._rng.random() < 0.6:
            name = self._rng.choice(narrow)
            types[name] = _WIDER[types[name]]
        self.pipeline = self.shape.pipeline(self.folder)
        self.acts.append("columns")
        self._few = {name: self._few.get(name) or SCALARS[type_] for name, type_ in types.items() if type_ in SCALARS}

    def drop_some(self) -> None:
        """What a replay does to the quarantine: some files made anew without some of their rows."""
        there = committed_files(self.gateway, self.pipeline)
        if not there:
            return
        instant = self._opened()
        stats, gone = [], set[int]()
        for number, old in enumerate(self._rng.sample(there, min(2, len(there)))):
            import pyarrow.parquet as pq

            table = pq.read_table(self.storage.full(old.name), partitioning=None)
            stays = [self._rng.random() < 0.7 for _ in range(table.num_rows)]
            gone |= {n for n, keep in zip(table["n"].to_pylist(), stays, strict=True) if not keep}
            kept = table.filter(pa.array(stays, pa.bool_()))
            stats.append(slices.rewrite(self.storage, instant, f"{number}-9-9", old, [kept], lambda: None))
        commit.commit(self.gateway, self.pipeline, instant, stats, {})
        self._rows = {key: row for key, row in self._rows.items() if row["n"] not in gone}
        self._done("rewrite", instant)

    def cluster(self) -> None:
        """Small files made larger, sorted."""
        self._serve(CLUSTERING, rewriting.plan_clustering, rewriting.cluster, rewriting.complete_clustering)

    def compact(self) -> None:
        """Log files made base files."""
        if self._serve(COMPACTION, rewriting.plan_compaction, rewriting.compact, rewriting.complete_compaction):
            self._base = dict(self._rows)
            self._replace_last()

    def clean(self) -> None:
        """What was replaced is kept, as there are not so many commits; the plan is made all the same."""
        services.plan_clean(self.gateway, self.pipeline)

    def arrow(self, rows: list[Row]) -> pa.Table:
        """Rows as the newest schema has them."""
        schema = arrow_schema(self.pipeline)
        return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)

    def bounded(self) -> set[str]:
        """The columns of which Hudi keeps bounds."""
        return set(statistics.Indexes.of(self.storage).bounded)

    def _row(self) -> Row:
        self._numbers += 1
        row: Row = {"n": self._numbers, TOUCHED: len(self.versions)}
        for name, type_ in self.shape.types.items():
            if name in ("n", "k", "k2", "o", "gone"):
                continue
            row[name] = value(self._rng, type_, self._few.get(name))
            if name == "part" and type_ == "string" and not has_folder(name, row[name] or ""):
                row[name] = None
        if self.shape.partition == "at":
            at = row["happened"]
            row["event_day"] = None if at is None else f"{at.year:04}-{at.month:02}-{at.day:02}"
        return row

    def _append(self, rows: list[Row]) -> None:
        instant, stats = self._write_files(rows)
        commit.commit(self.gateway, self.pipeline, instant, stats, {})
        self._rows |= {row["n"]: row for row in rows}
        self.batches.append(rows)
        self._done("append", instant)

    def _write_files(self, rows: list[Row]) -> tuple[str, list[Any]]:
        """Writes rows into base files of a new instant, which stays inflight; returns it and the files' stats."""
        instant, stats = self._opened(), []
        for part in self._cut(rows):
            self._tasks += 1
            with BaseFileWriter(self.storage, instant, f"{self._tasks}-0-0", 1 << 20, lambda: None) as writer:
                keys = pa.array([f"0-{row['n']}-0" for row in part])
                name = self.shape.partition_column
                paths = None if name is None else pa.array([_text(row[name]) for row in part], pa.string())
                coded = None if paths is None else paths.dictionary_encode()
                writer.write(self.arrow(part), keys, name, coded)
                stats += writer.close()
        return instant, stats

    def _cut(self, rows: list[Row]) -> list[list[Row]]:
        at = self._rng.randrange(len(rows) + 1)
        return [part for part in (rows[:at], rows[at:]) if part]

    def _upsert(self, rows: list[Row]) -> None:
        upsert = self.pipeline.table.upsert
        assert upsert is not None
        for row in rows:
            row["k"] = self._rng.choice(KEYS if self.shape.types["k"] == "string" else NUMBERS)
            if "k2" in self.shape.types:
                row["k2"] = self._rng.choice(
                    ["__null__", "__empty__", "x"] if self.shape.types["k2"] == "string" else [1, 2]
                )
            self._order(row, upsert.partial_update)
        table = self.arrow(rows)
        columns = [table[name].combine_chunks() for name in upsert.record_key]
        keys = record_keys(upsert.record_key, columns)
        buckets = bucket_ids(upsert.record_key, columns, keys, BUCKETS)
        for at, name in enumerate(PLACE):
            table = table.append_column(name, pa.array(places_of(rows) if at == 1 else np.zeros(len(rows), int)))
        column = self.shape.partition_column
        folders = ["" if column is None else partition_path(column, _text(row[column])) for row in rows]
        instant = self._opened()
        spec = upsert_spec(self.pipeline, instant, Completed.of(Timeline.load(self.storage)))
        self._tasks += 1
        places = list(zip(folders, buckets.tolist(), strict=True))
        with UpsertWriter(self.storage, spec, f"{self._tasks}-0-0", lambda: None) as writer:
            for folder, bucket in dict.fromkeys(places):
                mine = pa.array([place == (folder, bucket) for place in places])
                writer.write(folder, bucket, iter([(table.filter(mine), keys.filter(mine))]))
        commit.commit(self.gateway, self.pipeline, instant, writer.stats, {})
        self._merge(rows, places, keys.to_pylist(), instant)

    def _order(self, row: Row, partial: bool) -> None:
        """Ordering values: after a delete later ones, and for partial updates none that is late beside log files."""
        at = tuple(row.get(name) for name in (self.shape.partition_column, "k", "k2") if name)
        newest = self._orders.get(at, 0)
        late = 0 if partial and self.shape.kind == "merge_on_read" else self._rng.randrange(3)
        row["o"] = max(0, newest + self._rng.randrange(3) - late)
        row["gone"] = self._rng.random() < 0.2 or None
        if row["gone"] and "delete_marker" in (self.shape.upsert or {}):
            row["o"] = newest + 1
            newest += 2
        self._orders[at] = max(newest, row["o"])

    def _merge(self, rows: list[Row], places: list[tuple[str, int]], keys: list[str], instant: str) -> None:
        upsert = self.pipeline.table.upsert
        assert upsert is not None
        with_logs = self.shape.kind == "merge_on_read"
        batch: dict[Any, Row] = {}
        for row, (folder, bucket), key in zip(rows, places, keys, strict=True):
            at = folder, bucket, key
            if upsert.partial_update:
                self._rows[at] = self._filled(self._rows.get(at), row)
                batch[at] = self._rows[at]
            elif at not in batch or not self._is_older(row, batch[at]):
                batch[at] = row
        for at, row in batch.items():
            there = self._rows.get(at)
            if upsert.partial_update or (there is not None and self._is_older(row, there)):
                pass
            elif row["gone"] and upsert.delete_marker is not None:
                self._rows.pop(at, None)
            else:
                self._rows[at] = row
            if not with_logs or at[:2] not in self._known:
                self._base.pop(at, None)
                if at in self._rows:
                    self._base[at] = self._rows[at]
        self.batches.append(list(batch.values()))
        # Deletes of what was never there leave no file.
        self._known |= {at[:2] for at in batch if at in self._rows or at[:2] in self._known}
        self._done("upsert", instant)

    def _filled(self, there: Row | None, row: Row) -> Row:
        if there is None:
            return row
        winner, loser = (there, row) if self._is_older(row, there) else (row, there)
        filled = {name: loser.get(name) if winner.get(name) is None else winner[name] for name in {**loser, **winner}}
        # A late one, too, makes the row one of its batch.
        return {**filled, TOUCHED: row[TOUCHED]}

    def _is_older(self, row: Row, there: Row) -> bool:
        assert self.pipeline.table.upsert is not None
        return self.pipeline.table.upsert.mode == "event_time" and row["o"] < there["o"]

    def _opened(self) -> str:
        action = action_of(self.pipeline.table)
        instant = instants.new_instant_time(self.gateway, self.storage.uri)
        instants.request(self.gateway, self.storage.uri, instant, action)
        instants.to_inflight(self.gateway, self.storage.uri, instant, action)
        return instant

    def _serve(
        self, action: str, plan: Callable[..., None], write: Callable[..., Any], complete: Callable[..., None]
    ) -> bool:
        before = {instant.time for instant in Timeline.load(self.storage)}
        plan(self.gateway, self.pipeline)
        new = [item for item in Timeline.load(self.storage) if item.time not in before and item.action == action]
        if not new:
            return False
        written = write(self.gateway, self.pipeline, new[0].time, lambda: None)
        complete(self.gateway, self.pipeline, new[0].time, written.metadata, lambda: None)
        self.acts.append(action)
        return True

    def _done(self, act: str, instant: str) -> None:
        found = next(item for item in Timeline.load(self.storage).completed(*CHANGES) if item.time == instant)
        assert found.phase is Phase.COMPLETED
        self.acts.append(act)
        rows = list(self._rows.values())
        base = rows if self.shape.kind != "merge_on_read" else list(self._base.values())
        self.versions.append(Version(str(found.completion), self.shape.columns(), rows, base))

    def _replace_last(self) -> None:
        last = self.versions[-1]
        self.versions[-1] = replace(last, base=last.rows)


def history(table: Table, rng: random.Random, acts: int) -> None:
    """Random acts, a batch first."""
    table.batch()
    for _ in range(acts):
        drawn = rng.random()
        if drawn < 0.1:
            table.add_columns()
        elif drawn < 0.2 and table.shape.kind == "append":
            table.drop_some()
        elif drawn < 0.4 and table.shape.kind == "append":
            table.cluster()
        elif drawn < 0.4 and table.shape.kind == "merge_on_read":
            table.compact()
        elif drawn < 0.45:
            table.clean()
        else:
            table.batch()
    if table.versions[-1].types != table.shape.columns():
        # No service adds a column.
        table.batch()


def places_of(rows: list[Row]) -> Any:
    """Where each row came from within its batch."""
    return np.arange(len(rows))


def _text(found: Any) -> str | None:
    return None if found is None else str(found)
