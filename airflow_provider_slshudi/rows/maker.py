"""One pull's logs as rows of the table: typed columns, row keys, partition values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import EventTimePartition
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert_map
from airflow_provider_slshudi.rows.keys import lacking, row_keys, unusable
from airflow_provider_slshudi.rows.misfits import (
    EXAMPLES,
    BoundsSpec,
    Misfits,
    Reason,
    Unfit,
    beyond,
    judged,
    of_rest,
    of_times,
    of_values,
    unfit_logs,
    without,
)
from airflow_provider_slshudi.rows.partitions import PartitionSpec, partitions_of, without_folder
from airflow_provider_slshudi.rows.partitions import beyond as beyond_kept
from airflow_provider_slshudi.shaping.conditions import Condition, route_numbers
from airflow_provider_slshudi.shaping.inputs import Input, Inputs, as_binary, flat
from airflow_provider_slshudi.shaping.masks import Masks, MaskSpec

_SECOND = 1_000_000


@dataclass(frozen=True)
class RowSpec:
    """The part of a pipeline that a task needs to make rows; plain data, so that executors need no pydantic.

    `planned` is when the batch was planned, in unix seconds; it decides which logs are late or from the future. A log
    without a value for one of the columns `needed` is left out. `record_key` are the key columns of a table with
    upserts. `not_zero` are its ordering field and delete marker, if Hudi would misread a delete with ordering value 0.
    `kept` are the paths of partitions that rows may have, None for any: rows of others have no partition.
    `shows`: whether messages may have values of logs. `where` is the condition that logs must meet to become rows, and
    `named` are the keys of logs that it, expressions and `routes` name, which say into which table a row goes.
    """

    columns: tuple[ColumnSpec, ...]
    rest_column: str | None
    partition: PartitionSpec | None
    misfits: str
    bounds: BoundsSpec | None = None
    planned: int = 0
    needed: tuple[str, ...] = ()
    record_key: tuple[str, ...] = ()
    not_zero: tuple[str, str] | None = None
    kept: frozenset[str] | None = None
    shows: bool = False
    where: Condition | None = None
    masks: tuple[MaskSpec, ...] = ()
    named: tuple[str, ...] = ()
    routes: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, pipeline: Pipeline, planned: int = 0) -> RowSpec:
        """The part of a pipeline that makes rows."""
        columns = tuple(ColumnSpec.of(pipeline, column) for column in pipeline.columns)
        partition = bounds = None
        partition_config = pipeline.table.partition
        if isinstance(partition_config, EventTimePartition):
            partition = PartitionSpec(
                partition_config.name, partition_config.column, partition_config.every, partition_config.timezone
            )
            if partition_config.bounds is not None:
                bounds = BoundsSpec(*partition_config.bounds.seconds, partition_config.bounds.rule or pipeline.misfits)
        elif partition_config is not None:
            partition = PartitionSpec(partition_config.name, partition_config.column)
        upsert = pipeline.table.upsert
        needed = upsert.needed if upsert is not None and upsert.missing_key == "drop" else ()
        keys = tuple(upsert.record_key) if upsert is not None else ()
        return cls(
            columns,
            pipeline.rest_column,
            partition,
            pipeline.misfits,
            bounds,
            planned,
            needed,
            keys,
            _not_zero(pipeline),
            shows=pipeline.keep_values is not None,
            where=Condition.of(pipeline),
            masks=tuple(map(MaskSpec.of, pipeline.masks)),
            named=tuple(pipeline.expression_keys),
            routes=Condition.of_routes(pipeline),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The log keys that columns and expressions need, each once."""
        return tuple(dict.fromkeys([*(column.key for column in self.columns), *self.named]))


@dataclass(frozen=True)
class Rows:
    """Rows of the table: its data columns, their row keys, and their partition values if it has partitions.

    `unfit` are the logs that go to the quarantine instead, None if there are none. `of` masks the logs that became
    rows, None if all did. `filtered` are the logs that the pipeline's condition leaves out. `tables` has the
    number of each row's table, 0 for the main one; None if all are the main table's.
    """

    data: pa.Table
    keys: pa.Array
    partitions: pa.DictionaryArray | None
    unfit: Unfit | None = None
    of: pa.Array | None = None
    filtered: int = 0
    tables: NDArray[np.uint8] | None = None

    def parts(self) -> Iterator[tuple[int, pa.Table, pa.Array, pa.DictionaryArray | None]]:
        """The rows of each table that has some: its number, data, keys and partitions."""
        if self.tables is None:
            yield 0, self.data, self.keys, self.partitions
            return
        counts = np.bincount(self.tables)
        order = pa.array(np.argsort(self.tables, kind="stable"))
        data, keys = self.data.take(order), self.keys.take(order)
        partitions = None if self.partitions is None else self.partitions.take(order)
        begin = 0
        for number, count in enumerate(counts.tolist()):
            if count:
                of_table = None if partitions is None else partitions.slice(begin, count)
                yield number, data.slice(begin, count), keys.slice(begin, count), of_table
            begin += count


class RowMaker:
    """Makes rows.

    Args:
        spec: which.
        masks: applied to the logs that become rows, of which those of the quarantine are masked already.

    Attributes:
        misfits: per column, the values that did not fit.
        unfit: the logs that did not fit, each once.
        examples: the first few misfits, as text.
        dropped: the logs that neither become rows nor go to the quarantine.
    """

    def __init__(self, spec: RowSpec, masks: Masks | None = None) -> None:
        self._spec, self._masks = spec, masks
        self.misfits: Counter[str] = Counter()
        self.unfit = self.dropped = 0
        self.examples: list[str] = []

    def rows(self, logs: pa.Table, shard: int) -> Rows:
        """The rows of decoded logs (see `sls.decode`); raises as `made`."""
        planned = pa.scalar(self._spec.planned * _SECOND, pa.timestamp("us", "UTC"))

        def make(logs: pa.Table, _: pa.Array | None) -> Rows:
            logs = logs if self._masks is None else self._masks.masked(logs)
            return self._made(logs, row_keys(shard, flat(logs["__cursor__"]), flat(logs["__index__"])), planned)

        return self._of_kept(logs, make)

    def made(self, logs: pa.Table, keys: pa.Array, planned: pa.Array) -> Rows:
        """The rows of decoded logs with row keys `keys`; `planned` is the planning time of each one's batch.

        Raises:
            ValueMisfit: a log does not fit and the pipeline says that this fails the batch.
        """

        def make(logs: pa.Table, kept: pa.Array | None) -> Rows:
            if kept is None:
                return self._made(logs, keys, planned)
            return self._made(logs, keys.filter(kept), planned.filter(kept))

        return self._of_kept(logs, make)

    def _of_kept(self, logs: pa.Table, make: Callable[[pa.Table, pa.Array | None], Rows]) -> Rows:
        """The rows that are made of the logs that the pipeline's condition keeps; their places are those in `logs`."""
        keeps = None if self._spec.where is None else self._spec.where.kept(logs)
        if keeps is None:
            return self._sorted(logs, make(logs, None))
        mask = pa.array(keeps)
        kept_logs, places = logs.filter(mask), np.nonzero(keeps)[0]
        rows, row_mask = self._sorted(kept_logs, make(kept_logs, mask)), mask
        if rows.of is not None:
            became_rows = np.zeros(len(keeps), np.bool_)
            became_rows[places[rows.of.to_numpy(zero_copy_only=False)]] = True
            row_mask = pa.array(became_rows)
        unfit = None if rows.unfit is None else replace(rows.unfit, rows=places[rows.unfit.rows])
        return replace(rows, unfit=unfit, of=row_mask, filtered=len(keeps) - len(places))

    def _sorted(self, logs: pa.Table, rows: Rows) -> Rows:
        """The rows, which were made of these logs, with the numbers of their tables."""
        if not self._spec.routes:
            return rows
        numbers = route_numbers(self._spec.routes, logs)
        if rows.of is not None:
            numbers = numbers[rows.of.to_numpy(zero_copy_only=False)]
        return replace(rows, tables=numbers) if numbers.any() else rows

    def _made(self, logs: pa.Table, keys: pa.Array, planned: Any) -> Rows:
        """The rows of logs that the pipeline's condition keeps."""
        data: dict[str, pa.Array] = {}
        misfits: list[Misfits] = []
        inputs = Inputs(self._spec.columns, logs)
        for spec in self._spec.columns:
            item = inputs.of(spec.name)
            data[spec.name] = item.after
            if not item.fits or (spec.required and item.after.null_count):
                data[spec.name], unfit = judged(item.before, item.after, spec, self._spec.misfits, item.failed)
                misfits += unfit
            if self._spec.partition is not None and spec.name == self._spec.partition.column:
                data[spec.name] = self._within_bounds(data[spec.name], item, spec, planned, misfits)
                data[spec.name] = self._within_folders(data[spec.name], item, spec, misfits)
                data[spec.name] = self._within_kept(data[spec.name], item, spec, misfits)
        self._within_keys(data, logs, misfits)
        for spec in self._spec.columns:
            data |= dict.fromkeys(spec.renamed_from, data[spec.name])
        if self._spec.rest_column is not None:
            rest = flat(logs["__rest__"])
            data[self._spec.rest_column], lost = convert_map(rest)
            if lost:
                misfits.append(of_rest(self._spec.rest_column, rest, data[self._spec.rest_column], self._spec.misfits))
        table = pa.table(data)
        dropped = self._dropped(table, logs, misfits)
        aside = self._take(misfits, keys) if misfits else None
        fit_mask = None
        if aside is not None or len(dropped):
            fits = np.ones(len(keys), np.bool_)
            fits[dropped if aside is None else np.union1d(aside.rows, dropped)] = False
            fit_mask = pa.array(fits)
            table, keys = table.filter(fit_mask), keys.filter(fit_mask)
        table, partitions = self._partitioned(table)
        return Rows(table, keys, partitions, aside, fit_mask)

    def _partitioned(self, table: pa.Table) -> tuple[pa.Table, pa.DictionaryArray | None]:
        """The table with the partition's own column, if it has one, and each row's partition."""
        partition, kept_paths = self._spec.partition, self._spec.kept
        if partition is None:
            return table, None
        partitions = partitions_of(flat(table[partition.column]), partition)
        if kept_paths is not None:
            outside = beyond_kept(partitions, partition, kept_paths)
            partitions = pa.DictionaryArray.from_arrays(without(partitions.indices, outside), partitions.dictionary)
        if partition.every is not None:
            table = table.append_column(partition.name, partitions)
        return table, partitions

    def _within_folders(self, values: pa.Array, item: Input, spec: ColumnSpec, found: list[Misfits]) -> pa.Array:
        """Replaces partition values that no folder can hold by NULL, and adds them to `found`."""
        assert self._spec.partition is not None  # noqa: S101
        outside = without_folder(values, self._spec.partition)
        if outside is None or not pc.any(outside).as_py():
            return values
        mask = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
        found.append(of_values(spec, item.before, mask, self._spec.misfits, Reason.PARTITION))
        return without(values, mask)

    def _within_kept(self, values: pa.Array, item: Input, spec: ColumnSpec, found: list[Misfits]) -> pa.Array:
        """Adds values of partitions that are not kept to `found`; replaces them by NULL where they name the folder.

        A time keeps its value under each rule: only its row's partition is none.
        """
        partition, kept_paths = self._spec.partition, self._spec.kept
        if partition is None or kept_paths is None:
            return values
        mask = beyond_kept(partitions_of(values, partition), partition, kept_paths)
        if not mask.any():
            return values
        is_time = partition.every is not None
        found.append(of_values(spec, item.before, mask, "nullify" if is_time else self._spec.misfits, Reason.SPREAD))
        return values if is_time else without(values, mask)

    def _within_keys(self, data: dict[str, pa.Array], logs: pa.Table, found: list[Misfits]) -> None:
        """Replaces key and ordering values that Hudi would misread by NULL in `data`, and adds them to `found`."""
        names = self._spec.record_key
        if names:
            mask = unusable(names, [data[name] for name in names])
            self._without_values(names[0], mask, Reason.KEY, data, logs, found)
        if self._spec.not_zero is not None:
            ordering, marker = self._spec.not_zero
            zero = pc.and_(pc.equal(data[ordering], 0), data[marker])
            mask = pc.fill_null(zero, False).to_numpy(zero_copy_only=False)
            self._without_values(ordering, mask, Reason.ORDERING, data, logs, found)

    def _without_values(
        self,
        name: str,
        mask: NDArray[Any],
        reason: Reason,
        data: dict[str, pa.Array],
        logs: pa.Table,
        found: list[Misfits],
    ) -> None:
        if not mask.any():
            return
        spec = next(spec for spec in self._spec.columns if spec.name == name)
        rule = "drop" if self._spec.needed else "fail"
        found.append(of_values(spec, as_binary(logs[spec.key]), mask, rule, reason))
        data[name] = without(data[name], mask)

    def _within_bounds(
        self, times: pa.Array, item: Input, spec: ColumnSpec, planned: Any, found: list[Misfits]
    ) -> pa.Array:
        """Replaces event times beyond the bounds by NULL, and adds them to `found`."""
        bounds = self._spec.bounds
        outside = beyond(times, planned, bounds) if bounds is not None else []
        if bounds is None or not outside:
            return times
        found.append(of_times(spec, item.before, outside, bounds.rule))
        for _, mask in outside:
            times = without(times, mask)
        return times

    def _dropped(self, table: pa.Table, logs: pa.Table, found: list[Misfits]) -> NDArray[Any]:
        """The places of logs that lack a needed value; adds them to `found` if they are not there yet."""
        all_rows = np.array([], np.int64)
        for spec in self._spec.columns:
            if spec.name not in self._spec.needed:
                continue
            rows = np.nonzero(lacking(table[spec.name]).to_numpy())[0]
            reported_rows = [item.rows for item in found if item.column == spec.name]
            new = np.setdiff1d(rows, np.concatenate(reported_rows)) if reported_rows else rows
            if len(new):
                values = as_binary(logs[spec.key]).take(pa.array(new))
                reasons = pa.array([Reason.MISSING.value] * len(new), pa.string())
                found.append(Misfits(spec.name, spec.type, "drop", new, reasons, values))
            all_rows = np.union1d(all_rows, rows)
        self.dropped += len(all_rows)
        return all_rows

    def _take(self, found: list[Misfits], keys: pa.Array) -> Unfit | None:
        """Counts the misfits, and returns the logs that go to the quarantine."""
        for item in found:
            if item.rule == "fail":
                item.refuse(keys)
            self.misfits[item.column] += len(item.rows)
            self.examples += item.examples(keys, self._spec.shows)[: EXAMPLES - len(self.examples)]
        self.unfit += len(np.unique(np.concatenate([item.rows for item in found])))
        aside = [item for item in found if item.rule == "quarantine"]
        return unfit_logs(aside) if aside else None


def _not_zero(pipeline: Pipeline) -> tuple[str, str] | None:
    """The ordering field and the delete marker, if Hudi takes a delete's 0 for no value, and so for the newest.

    It does so in log files, and only for the type `int` (OrderingValues.isDefault, read in 1.2.0).
    """
    upsert = pipeline.table.upsert
    if upsert is None or upsert.ordering_field is None or upsert.delete_marker is None:
        return None
    types = {column.name: column.type for column in pipeline.columns}
    with_logs = pipeline.table.type == "merge_on_read"
    return (
        (upsert.ordering_field, upsert.delete_marker) if with_logs and types[upsert.ordering_field] == "int" else None
    )
