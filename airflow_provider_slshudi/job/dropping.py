"""Takes rows out of the table that another commit has already: writes the base files that hold them anew.

The instant that wrote a row and its key's shard and cursor identify it, wherever a clustering has put it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.actions import action
from airflow_provider_slshudi.hudi.client import instants, quarantine
from airflow_provider_slshudi.hudi.client.basefiles import committed_files
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files import slices
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.quarantine import table_of
from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.job.tasks import each, leave
from airflow_provider_slshudi.notes.handover import BatchOrder, Claim, Manifest, Spent
from airflow_provider_slshudi.rows.maker import flat
from airflow_provider_slshudi.storage import Storage

if TYPE_CHECKING:
    from pyspark import SparkContext

Parts = Mapping[str, Sequence[tuple[int, int, int, bool]]]
"""Instant -> the parts of its ranges: shard, begin, end, and whether the part's rows go."""
_WRITTEN_BY = "_hoodie_commit_time"


@dataclass(frozen=True)
class DropResult:
    """One task's write stats, the row count of the files before it wrote them anew, and the rows of each part."""

    stats: list[dict[str, Any]]
    taken: int
    found: dict[str, list[int]]


@dataclass(frozen=True)
class DropTask:
    """The work of every task but for its files; travels to the executors."""

    claim: Claim
    table: Storage
    parts: Parts

    def __call__(self, files: Sequence[Slice], write_token: str) -> DropResult:
        """Writes each file that holds rows that go anew, without these."""
        stats, taken, instant, wanted = [], 0, self.claim.instant, self.claim.require
        found = {writer: [0] * len(parts) for writer, parts in self.parts.items()}
        for file in files:
            with pq.ParquetFile(self.table.filesystem.open_input_file(self.table.full(file.name))) as parquet:
                columns = [_WRITTEN_BY, RECORD_KEY]
                stay = [self._stay(rows, found) for rows in _row_groups(parquet, columns)]
                if all(kept.all() for kept in stay):
                    continue
                kept_rows = (rows.filter(pa.array(kept)) for rows, kept in zip(_row_groups(parquet), stay, strict=True))
                stats.append(slices.rewrite(self.table, instant, write_token, file, kept_rows, wanted))
                taken += parquet.metadata.num_rows
        return DropResult(stats, taken, found)

    def _stay(self, rows: pa.Table, found: dict[str, list[int]]) -> NDArray[Any]:
        """Which rows stay; adds each part's rows to the counts in `found`."""
        stay = np.ones(rows.num_rows, np.bool_)
        for instant, parts in self.parts.items():
            places = np.nonzero(pc.equal(flat(rows[_WRITTEN_BY]), instant).to_numpy(zero_copy_only=False))[0]
            if not len(places):
                continue
            keys = pc.split_pattern(flat(rows[RECORD_KEY]).take(pa.array(places)), "-", max_splits=2)
            shards, cursors = (pc.cast(pc.list_element(keys, at), pa.int64()).to_numpy() for at in (0, 1))
            for number, (shard, begin, end, goes) in enumerate(parts):
                inside = (shards == shard) & (cursors >= begin) & (cursors < end)
                found[instant][number] += int(inside.sum())
                if goes:
                    stay[places[inside]] = False
        return stay


def drop(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, parts: Parts) -> Manifest:
    """Carries out the order of a repair and leaves its manifest.

    A table with upserts keeps all rows: it merges rows by their keys, so rows that are read again are merged again.
    """
    started = time.monotonic()
    pipeline = Pipeline.model_validate(order.pipeline)
    instants.to_inflight(gateway, storage.uri, order.instant, action(pipeline.table))
    done, aside, opened, cpu = list[DropResult](), list[DropResult](), False, 0.0
    if pipeline.table.upsert is None:
        run = partial(_in_table, spark, gateway, storage, order, parts)
        done, cpu = run(pipeline)
        table = table_of(pipeline)
        if opened := Storage(table.table.path).exists(".hoodie/hoodie.properties"):
            quarantine.open_instant(gateway, pipeline, order.instant)
            aside, more = run(table)
            cpu += more
    found = {instant: [0] * len(items) for instant, items in parts.items()}
    for result in (*done, *aside):
        for instant, counts in result.found.items():
            found[instant] = [before + count for before, count in zip(found[instant], counts, strict=True)]
    return leave(
        gateway,
        storage,
        pipeline,
        Manifest(
            order.transaction,
            order.token,
            order.instant,
            [stat for result in done for stat in result.stats],
            [],
            seconds=time.monotonic() - started,
            quarantine=[stat for result in aside for stat in result.stats] if opened else None,
            taken=sum(result.taken for result in (*done, *aside)),
            found=found,
            spent=Spent(0, gateway.cpu_seconds(), cpu),
        ),
    )


def _in_table(
    spark: SparkContext, gateway: Gateway, main: Storage, order: BatchOrder, parts: Parts, table: Pipeline
) -> tuple[list[DropResult], float]:
    # A file that is older than an instant holds no row of it.
    oldest = min(parts)
    files = [file for file in committed_files(gateway, table) if file.instant >= oldest]
    task = DropTask(order.claim(main), Storage(table.table.path), parts)
    tasks = min(len(files), spark.defaultParallelism)
    return each(spark, task, [files[number::tasks] for number in range(tasks)])


def _row_groups(parquet: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    for number in range(parquet.num_row_groups):
        yield parquet.read_row_group(number, columns=columns)
