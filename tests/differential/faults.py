"""What readers get wrong by themselves, on tables that Hudi's own writer made, too; docs/operating.md tells users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.differential.filters import Among, Both, Compare, Filter, Not, Said
from tests.differential.readers import Asked
from tests.differential.tables import Table


def fault_of(asked: Asked, table: Table) -> str | None:
    """The reader's fault that an answer shows; None where it is none of the list."""
    return next((name for name, shows in FAULTS.items() if shows(asked, table)), None)


def _parts(found: Filter) -> list[Filter]:
    if isinstance(found, Not):
        return _parts(found.of)
    return [*_parts(found.one), *_parts(found.other)] if isinstance(found, Both) else [found]


def _literals(found: Filter) -> list[Any]:
    parts = _parts(found)
    return [part.value for part in parts if isinstance(part, Compare)] + [
        value for part in parts if isinstance(part, Among) for value in part.values
    ]


def _columns(found: Filter) -> set[str]:
    return {part.column for part in _parts(found) if not isinstance(part, (Not, Both))}


def _misses_only(asked: Asked) -> bool:
    return isinstance(asked.found, list) and isinstance(asked.expected, list) and set(asked.found) < set(asked.expected)


def _function_of_a_bounded_column(asked: Asked, table: Table) -> bool:
    """Hudi takes functions that turn or fold the order of values for ones that keep it, and leaves out files."""
    bounded = table.bounded()
    said = [part for part in _parts(asked.filter) if isinstance(part, Said) and part.column in bounded]
    return asked.reader.startswith("Spark") and " no " not in asked.view and bool(said) and _misses_only(asked)


def _negative_zero(asked: Asked, _: Table) -> bool:
    """Spark's reader of rows, by which tables with arrays, maps or structs are read, and hudi-rs compare bits."""
    zeros = [v for v in _literals(asked.filter) if isinstance(v, float) and v == 0 and math.copysign(1, v) < 0]
    return asked.reader.startswith(("Spark", "hudi-rs")) and bool(zeros)


def _null_among_partitions(asked: Asked, table: Table) -> bool:
    """Hudi compares the partition of rows without one, where the names of folders are escaped as those of texts are."""
    shape = table.shape
    at_text = shape.partition == "part" and shape.types["part"] == "string"
    stopped = isinstance(asked.found, str) and "NullPointerException" in asked.found
    return asked.reader.startswith("Spark") and at_text and stopped and "part" in _columns(asked.filter)


def _empty_partition(asked: Asked, table: Table) -> bool:
    """Hudi takes '' for the folder of rows that have no partition."""
    at = table.shape.partition_column
    empty = any(
        part.column == at and "" in ([part.value] if isinstance(part, Compare) else part.values)
        for part in _parts(asked.filter)
        if isinstance(part, (Compare, Among))
    )
    return asked.reader.startswith("Spark") and empty


def _wider_since(asked: Asked, table: Table) -> bool:
    """Hudi skips files of a table as it was by bounds of later files, which it takes for the older, narrower type."""
    stopped = isinstance(asked.found, str) and "NumberFormatException" in asked.found
    now, then = table.versions[-1].types, [version.types for version in table.versions]
    wider = any(types.get(name, now[name]) != now[name] for types in then for name in _columns(asked.filter) & set(now))
    return asked.reader.startswith("Spark") and asked.view == "as of" and stopped and wider


def _partial_updates(asked: Asked, table: Table) -> bool:
    """hudi-rs merges rows of files with other columns by the newest alone, NULLs included."""
    partial = table.shape.kind == "merge_on_read" and "partial_update" in (table.shape.upsert or {})
    return asked.reader == "hudi-rs" and partial and "columns" in table.acts and _misses_only(asked)


FAULTS: dict[str, Callable[[Asked, Table], bool]] = {
    "Hudi 1.2.0: a function of a column with bounds": _function_of_a_bounded_column,
    "Hudi 1.2.0: a table parted by texts, some of them NULL": _null_among_partitions,
    "Hudi 1.2.0: '' as a partition": _empty_partition,
    "Hudi 1.2.0: as of a time before an int became a bigint": _wider_since,
    "Spark 3.5 row by row, hudi-rs: the literal -0.0": _negative_zero,
    "hudi-rs 0.5.0: partial updates beside files with other columns": _partial_updates,
}
