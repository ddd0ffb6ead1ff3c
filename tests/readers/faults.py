"""What readers get wrong by themselves: each with the difference by which it shows, its reason and its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.readers.cells import Cell, Difference
from tests.readers.tables import DELTA, HUDI

_UNCOMMITTED = ("pending", "clustered", "archived", "mor")


@dataclass(frozen=True)
class Fault:
    """A reader's own fault.

    Attributes:
        key: its name in cells and in the page.
        reader: how keys of readers that have it begin.
        reason: one sentence on what the reader does, with its source.
        shows: whether a difference on a table is this fault.
    """

    key: str
    reader: str
    reason: str
    shows: Callable[[Cell, Difference], bool]


def _null_nested(_: Cell, difference: Difference) -> bool:
    """All values that are wrong are empty ones in place of NULL."""
    is_nested = difference.type.startswith(("array", "map", "struct"))
    empty = ("[]", "[null, null, null]")
    return is_nested and bool(difference.values) and all(value in empty for value in difference.values)


def _no_timeline(cell: Cell, _: Difference) -> bool:
    return cell.table.form == HUDI and cell.table.kind in _UNCOMMITTED


def _milliseconds(cell: Cell, difference: Difference) -> bool:
    """All times that are wrong are whole milliseconds."""
    is_time = difference.type == "timestamp"
    is_rounded = all(value is not None and int(value) % 1000 == 0 for value in difference.values)
    return cell.table.form in (DELTA, HUDI) and is_time and bool(difference.values) and is_rounded


def _null_partition(cell: Cell, difference: Difference) -> bool:
    """All partitions that are wrong are Hive's mark of NULL in text files."""
    return cell.table.form == HUDI and bool(difference.values) and all(value == "\\N" for value in difference.values)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "milliseconds of a timestamp",
        "hive-1.2.0-timestamp",
        "Hudi 1.2.0's input formats give Hive a timestamp in whole milliseconds "
        "(hudi.apache.org/docs/querying_data/#hive)",
        _milliseconds,
    ),
    Fault(
        "NULL as an empty value",
        "clickhouse",
        "ClickHouse has no NULL for arrays, maps and tuples, and gives an empty one "
        "(clickhouse.com/docs/sql-reference/data-types/nullable)",
        _null_nested,
    ),
    Fault(
        "no timeline",
        "clickhouse",
        "ClickHouse's `hudi()` reads no timeline: it takes the newest base file of each file id, so it counts batches "
        "that are not committed, files that a clustering replaced and files of the archive, and no log files "
        "(clickhouse.com/docs/engines/table-engines/integrations/hudi)",
        _no_timeline,
    ),
    Fault(
        "NULL as a partition",
        "trino-hudi",
        "Trino's Hudi connector gives the text `\\N` for the partition of rows without one "
        "(trino.io/docs/476/connector/hudi.html)",
        _null_partition,
    ),
    Fault(
        "milliseconds",
        "trino-delta",
        "Trino's Delta connector reads times as `timestamp(3) with time zone`, rounded to milliseconds "
        "(trino.io/docs/476/connector/delta-lake.html)",
        _milliseconds,
    ),
)


def fault_of(cell: Cell, difference: Difference) -> Fault | None:
    """The fault that a difference shows; None: it is of no known fault."""
    return next((one for one in FAULTS if cell.reader.startswith(one.reader) and one.shows(cell, difference)), None)


def unexplained(cell: Cell) -> list[Difference]:
    """The differences of a cell that no known fault of its reader explains."""
    return [difference for difference in cell.differences if fault_of(cell, difference) is None]
