"""A replay: quarantined logs that fit the pipeline's columns by now become rows of the main table.

Those rows go to the main table and leave the quarantine in one transaction, as a batch comes to both. So a log is in
one of the tables before and after, and a second replay finds in the quarantine only what is still there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover.batch_files import Attempt, BatchOrder, Manifest, Selection, Spent
from airflow_provider_slshudi.hudi.beside import Beside
from airflow_provider_slshudi.hudi.client import beside, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files import slices
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.schema import RECORD_KEY
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.shaping.inputs import flat
from airflow_provider_slshudi.spark.driver.append import by_table, each, leave, open_routes, written_files
from airflow_provider_slshudi.spark.driver.checks import BatchChecks
from airflow_provider_slshudi.spark.driver.misfit_rows import logs_of
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach

if TYPE_CHECKING:
    from pyspark import SparkContext


FILTERED = "where filtered"
"""How a replay counts logs that the pipeline's condition leaves out by now; they stay in the quarantine."""


@dataclass(frozen=True)
class ReplayResult:
    """One task's write stats of the main table and each route's, those of the quarantine, the row count of the files
    before it wrote them anew, and per column and reason (`column reason`) the selected logs that still do not fit."""

    stats: list[list[dict[str, Any]]]
    slices: list[dict[str, Any]]
    taken: int
    left: dict[str, int]


@dataclass(frozen=True)
class ReplayTask:
    """The work of every task but for its files; travels to the executors."""

    attempt: Attempt
    aside: Storage
    rows: RowSpec
    partition_name: str | None
    target_bytes: int
    selection: Selection
    routes: tuple[Storage, ...] = ()

    def __call__(self, files: Sequence[Slice], write_token: str) -> ReplayResult:
        """Moves the logs that fit; a file without such logs stays as it is."""
        reach(Point.APPEND_TASK_STARTED)
        attempt, maker, unfit_counts = self.attempt, RowMaker(self.rows), Counter[str]()
        written, taken = [], 0
        with BaseFileWriter(
            attempt.storage, attempt.instant, write_token, self.target_bytes, attempt.require_wanted, self.routes
        ) as writer:
            for file in files:
                with pq.ParquetFile(self.aside.filesystem.open_input_file(self.aside.full(file.name))) as parquet:
                    stay = [self._move(rows, maker, writer, unfit_counts) for rows in _row_groups(parquet)]
                    if all(mask.all() for mask in stay):
                        continue
                    kept_rows = (
                        rows.filter(pa.array(mask)) for rows, mask in zip(_row_groups(parquet), stay, strict=True)
                    )
                    written.append(
                        slices.rewrite(
                            self.aside, attempt.instant, write_token, file, kept_rows, attempt.require_wanted
                        )
                    )
                    taken += parquet.metadata.num_rows
            stats = writer.close_all()
        reach(Point.APPEND_TASK_WRITTEN)
        return ReplayResult(stats, written, taken, dict(unfit_counts))

    def _move(self, rows: pa.Table, maker: RowMaker, writer: BaseFileWriter, left: Counter[str]) -> NDArray[Any]:
        """Writes the selected rows that fit into the main table; returns a mask of the rows that stay."""
        places = np.nonzero(_selected(rows, self.selection))[0]
        stay = np.ones(rows.num_rows, np.bool_)
        if not len(places):
            return stay
        chosen = rows.take(pa.array(places)).combine_chunks()
        planned = chosen["planned"].combine_chunks().cast(pa.timestamp("us", "UTC"))
        new_rows = maker.made(logs_of(chosen, self.rows.keys), flat(chosen[RECORD_KEY]), planned)
        for table, data, keys, partitions in new_rows.parts():
            writer.write(data, keys, self.partition_name, partitions, table=table)
        fits = np.ones(len(places), np.bool_)
        if new_rows.of is not None:
            fits = new_rows.of.to_numpy(zero_copy_only=False)
        if new_rows.filtered:
            left[FILTERED] += new_rows.filtered
        if new_rows.unfit is not None:
            why = new_rows.unfit.why
            left.update(map(" ".join, zip(why["column_name"].to_pylist(), why["reason"].to_pylist(), strict=True)))
        stay[places[fits]] = False
        return stay


def replay(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder) -> Manifest:
    """Carries out the order of a replay and leaves its manifest; raises as `append.append`.

    Args:
        spark: the driver's context.
        gateway: to its JVM.
        storage: the main table's.
        order: the batch's, with its `replay`.
    """
    started = time.monotonic()
    pipeline = order.described
    checks = BatchChecks(spark, pipeline)
    aside = Beside.quarantine(pipeline)
    instants.to_inflight(gateway, storage.uri, order.instant)
    reach(Point.APPEND_INFLIGHT)
    attempt = order.attempt(storage)
    attempt.require_wanted()
    routes = open_routes(gateway, pipeline, order.instant)
    beside.open_instant(gateway, aside, order.instant)
    files = beside.files(gateway, aside)
    partition = pipeline.table.partition
    task = ReplayTask(
        attempt,
        aside.storage,
        _by_rule(RowSpec.of(pipeline)),
        partition.name if partition else None,
        pipeline.batch.target_file_bytes,
        Selection(**(order.replay or {})),
        tuple(routes.values()),
    )
    tasks = min(len(files), spark.defaultParallelism)
    results: list[ReplayResult]
    results, cpu = each(spark, task, [files[number::tasks] for number in range(tasks)])
    unfit_counts: Counter[str] = Counter()
    for result in results:
        unfit_counts.update(result.left)
    tables = by_table([result.stats for result in results], 1 + len(routes))
    manifest = Manifest(
        order.transaction,
        order.token,
        order.instant,
        tables[0],
        [],
        seconds=time.monotonic() - started,
        checks=checks.results(written_files((storage, *routes.values()), tables)),
        quarantine=[stat for result in results for stat in result.slices],
        taken=sum(result.taken for result in results),
        left=dict(unfit_counts),
        spent=Spent(0, gateway.cpu_seconds(), cpu),
        routed=dict(zip(routes, tables[1:], strict=True)),
    )
    return leave(gateway, storage, pipeline, manifest)


def count(gateway: Gateway, pipeline: Pipeline) -> list[dict[str, Any]]:
    """Counts the quarantine's logs per column, type and reason, with first and last log time (unix seconds)."""
    aside = Beside.quarantine(pipeline)
    names = ["column_name", "type_wanted", "reason"]
    parts = []
    for file in beside.files(gateway, aside):
        with pq.ParquetFile(aside.storage.filesystem.open_input_file(aside.storage.full(file.name))) as parquet:
            for rows in _row_groups(parquet, [*names, "log_time"]):
                times = pc.divide(flat(rows["log_time"]).cast(pa.int64()), 1_000_000)
                rows = rows.set_column(rows.schema.get_field_index("log_time"), "log_time", times)
                figures = [("log_time", "count"), ("log_time", "min"), ("log_time", "max")]
                parts.append(rows.group_by(names).aggregate(figures))
    if not parts:
        return []
    sums = [("log_time_count", "sum"), ("log_time_min", "min"), ("log_time_max", "max")]
    groups = pa.concat_tables(parts).group_by(names).aggregate(sums).to_pylist()
    counted = [
        {
            "column": row["column_name"],
            "type": row["type_wanted"],
            "reason": row["reason"],
            "logs": row["log_time_count_sum"],
            "first_time": row["log_time_min_min"],
            "last_time": row["log_time_max_max"],
        }
        for row in groups
    ]
    return sorted(counted, key=lambda row: (-row["logs"], row["column"], row["reason"]))


def _by_rule(spec: RowSpec) -> RowSpec:
    """The spec of a replay: a log that does not fit stays in the quarantine and fails nothing."""
    stays = {"fail": "quarantine"}
    bounds = spec.bounds and replace(spec.bounds, rule=stays.get(spec.bounds.rule, spec.bounds.rule))
    return replace(spec, misfits=stays.get(spec.misfits, spec.misfits), bounds=bounds)


def _selected(rows: pa.Table, selection: Selection) -> NDArray[Any]:
    chosen = np.ones(rows.num_rows, np.bool_)
    filters = asdict(selection)
    for column, name in (("transaction_id", "transaction"), ("column_name", "column"), ("reason", "reason")):
        if filters[name] is not None:
            chosen &= pc.equal(rows[column], filters[name]).to_numpy(zero_copy_only=False)
    times = pc.divide(flat(rows["log_time"]).cast(pa.int64()), 1_000_000).to_numpy()
    if selection.since is not None:
        chosen &= times >= selection.since
    if selection.until is not None:
        chosen &= times < selection.until
    return chosen


def _row_groups(parquet: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    for number in range(parquet.num_row_groups):
        yield parquet.read_row_group(number, columns=columns)
