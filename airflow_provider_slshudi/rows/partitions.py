"""Partitions: the partition of a row, and the folder of a partition (hudi.apache.org/docs/key_generation)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


# The letters that Hudi escapes in a partition path (PartitionPathEncodeUtils).
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(32)))


_MARKER = ".marker"


_NAME_BYTES = 255


def partition_path(name: str, value: str | None) -> str:
    """The folder of a partition value, Hive style."""
    text = NULL_PARTITION if not value else "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in value)
    return f"{name}={text}"


def has_folder(name: str, value: str) -> bool:
    """Whether Hudi and its readers find a value's folder again, and read the value back from its name.

    Hudi cuts the path of a marker at the first `.marker`, Spark reads NULL for Hive's default partition, and file
    systems end names at 255 bytes. Hudi's metadata table sorts letters beyond U+FFFF in one way and looks them up in
    another: beside letters from U+E000 on, queries fail. Runs showed that all other values come back.
    """
    if not value or value == NULL_PARTITION or _MARKER in value or max(value) > "\uffff":
        return False
    return len(partition_path(name, value).encode()) <= _NAME_BYTES


@dataclass(frozen=True)
class PartitionSpec:
    """How a row finds its partition: by a column's value, or by the hour, day or month of a timestamp column."""

    name: str
    column: str
    every: str | None = None
    timezone: str = "UTC"


def without_folder(values: pa.Array, spec: PartitionSpec) -> pa.Array | None:
    """Which values no folder can hold; None if there is no such value."""
    if spec.every is not None:
        first, last = pc.assume_timezone(_YEARS, spec.timezone).cast(values.type)
        return pc.or_(pc.less(values, first), pc.greater(values, last))
    if not pa.types.is_string(values.type):
        return None
    distinct_values = values.dictionary_encode().dictionary.to_pylist()
    outside = [value for value in distinct_values if not has_folder(spec.name, value)]
    return pc.is_in(values, pa.array(outside, values.type)) if outside else None


def partitions_of(values: pa.Array, spec: PartitionSpec) -> pa.DictionaryArray:
    """The partition of each row as dictionary-encoded text, from the values of the spec's column."""
    if spec.every is None:
        coded = values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))
    if not len(values):
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string()))
    bounds = pc.min_max(values)
    # Not as Python's times: these end while a time of another zone may still be in the year 9999.
    ends = pa.array([bounds["min"].value, bounds["max"].value], pa.int64()).cast(values.type)
    local_ends = _local(ends, spec)
    floors = pc.floor_temporal(local_ends, unit=spec.every)
    first, last = floors
    # Where clocks are set back in between, there may be other partitions than those of the ends.
    if not values.null_count and first.equals(last) and _span(ends) == _span(local_ends):
        # The usual case: all logs of a pull are in one partition.
        codes = pa.array(np.zeros(len(values), np.int32))
        coded = pa.DictionaryArray.from_arrays(codes, floors[:1])
    else:
        coded = pc.floor_temporal(_local(values, spec), unit=spec.every).dictionary_encode()
    # One text per hour, day or month, not per row.
    texts = pc.strftime(coded.dictionary.cast(pa.timestamp("s")), _PARTITION_FORMAT[spec.every])
    return pa.DictionaryArray.from_arrays(coded.indices, texts)


def _local(times: pa.Array, spec: PartitionSpec) -> pa.Array:
    """What the zone's clocks show: of these, an hour that comes twice and a midnight that is skipped are no errors."""
    return pc.local_timestamp(times.cast(pa.timestamp("us", tz=spec.timezone)))


def _span(ends: pa.Array) -> int:
    first, last = ends
    return int(last.value) - int(first.value)


def beyond(partitions: pa.DictionaryArray, spec: PartitionSpec, kept: frozenset[str]) -> NDArray[Any]:
    """A mask of the rows that have a partition, and none whose path is one of `kept`."""
    paths = [partition_path(spec.name, value) for value in partitions.dictionary.to_pylist()]
    outside = pa.array([path not in kept for path in paths], pa.bool_())
    mask = pc.fill_null(outside.take(partitions.indices), False) if len(paths) else pa.array([False] * len(partitions))
    row_mask: NDArray[Any] = mask.to_numpy(zero_copy_only=False)
    return row_mask


_PARTITION_FORMAT = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


# Other years have more than four digits or a sign, and far beyond Arrow begins to count anew.
_YEARS = pa.array([datetime.min, datetime.max], pa.timestamp("us"))
