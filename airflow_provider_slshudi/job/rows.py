"""One pull's logs as rows of the table: typed columns, row keys, partition values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config import EventTimePartition, Pipeline
from airflow_provider_slshudi.job.convert import ColumnSpec, convert, convert_map, misfits, refuse_misfit
from airflow_provider_slshudi.job.documents import at_path
from airflow_provider_slshudi.job.times import UTC
from airflow_provider_slshudi.numbered import numbered

_PARTITION_FORMAT = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


@dataclass(frozen=True)
class PartitionSpec:
    """How a row finds its partition: by a column's value, or by the hour, day or month of a timestamp column."""

    name: str
    column: str
    every: str | None = None
    timezone: str = "UTC"


@dataclass(frozen=True)
class RowSpec:
    """What a task has to know of a pipeline to make rows; plain data, so that executors need no pydantic."""

    columns: tuple[ColumnSpec, ...]
    rest_column: str | None
    partition: PartitionSpec | None
    fail_on_misfit: bool

    @classmethod
    def of(cls, pipeline: Pipeline) -> RowSpec:
        """The part of a pipeline that makes rows."""
        columns = tuple(
            ColumnSpec(c.name, c.type, c.source_key, c.format, c.timezone or UTC, c.path, tuple(c.renamed_from))
            for c in pipeline.columns
        )
        partition = None
        found = pipeline.table.partition
        if isinstance(found, EventTimePartition):
            partition = PartitionSpec(found.name, found.column, found.every, found.timezone)
        elif found is not None:
            partition = PartitionSpec(found.name, found.column)
        return cls(columns, pipeline.rest_column, partition, pipeline.misfits == "fail")

    @property
    def keys(self) -> tuple[str, ...]:
        """The log keys that the columns need, each once."""
        return tuple(dict.fromkeys(column.key for column in self.columns))


@dataclass(frozen=True)
class Rows:
    """Rows of the table: its data columns, their row keys, and their partition values where it has partitions."""

    data: pa.Table
    keys: pa.Array
    partitions: pa.DictionaryArray | None


class RowMaker:
    """Makes rows and counts, per column, the values that did not fit."""

    def __init__(self, spec: RowSpec) -> None:
        self._spec = spec
        self.misfits: Counter[str] = Counter()

    def rows(self, logs: pa.Table, shard: int) -> Rows:
        """The rows of decoded logs (see `sls.decode`).

        Raises:
            ValueMisfit: a value does not fit and the pipeline says that this fails the batch.
        """
        keys = row_keys(shard, _flat(logs["__cursor__"]), _flat(logs["__index__"]))
        data: dict[str, pa.Array] = {}
        for spec in self._spec.columns:
            before = _as_binary(_flat(logs[spec.key]))
            given = before
            if spec.path is not None:
                given, before = at_path(before, spec.path)
            after = convert(given, spec)
            self._count(spec.name, misfits(before, after))
            if self._spec.fail_on_misfit and misfits(before, after):
                refuse_misfit(before, after, spec, keys)
            data[spec.name] = after
        for spec in self._spec.columns:
            data |= dict.fromkeys(spec.renamed_from, data[spec.name])
        if self._spec.rest_column is not None:
            data[self._spec.rest_column], lost = convert_map(_flat(logs["__rest__"]))
            self._count(self._spec.rest_column, lost)
        partitions = None
        if self._spec.partition is not None:
            partitions = _partitions(data[self._spec.partition.column], self._spec.partition)
            if self._spec.partition.every is not None:
                data[self._spec.partition.name] = partitions
        return Rows(pa.table(data), keys, partitions)

    def _count(self, column: str, lost: int) -> None:
        if lost:
            self.misfits[column] += lost


def row_keys(shard: int, cursors: pa.Array, indexes: pa.Array) -> pa.Array:
    """`{shard}-{cursor}-{index}`: where a row came from, unique and the same however often it is read."""
    return numbered(str(shard), "-", cursors, indexes)


def _partitions(values: pa.Array, spec: PartitionSpec) -> pa.DictionaryArray:
    if spec.every is None:
        coded = values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))
    zone = pa.timestamp("us", tz=spec.timezone)
    bounds = pc.min_max(values)
    ends = pa.array([bounds["min"].as_py(), bounds["max"].as_py()], values.type).cast(zone)
    first, last = pc.floor_temporal(ends, unit=spec.every)
    if not values.null_count and first.equals(last):
        # Mostly so: all of a pull in one partition.
        codes = pa.array(np.zeros(len(values), np.int32))
        coded = pa.DictionaryArray.from_arrays(codes, pa.array([first.as_py()], zone))
    else:
        coded = pc.floor_temporal(values.cast(zone), unit=spec.every).dictionary_encode()
    # One text per hour, day or month, not per row.
    texts = pc.strftime(coded.dictionary.cast(pa.timestamp("s", tz=spec.timezone)), _PARTITION_FORMAT[spec.every])
    return pa.DictionaryArray.from_arrays(coded.indices, texts)


def _as_binary(values: pa.Array) -> pa.Array:
    """A log's own time comes as a number; columns are made from text."""
    return values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
