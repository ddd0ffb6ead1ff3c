"""Tables of the same rows by Hudi's own writer: a fault of a reader shows there, too."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential import twin
from tests.readers.cells import Cell
from tests.readers.faults import fault_of
from tests.readers.tables import HUDI, VERSIONS, ReaderTable, WrittenTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("append", "mor")
"""The kinds of tables whose twins are made; what Hudi's writer cannot be told to leave, such as a pending batch, is in
none."""
SUFFIX = "_twin"


def make(session: SparkSession, written: WrittenTable, tables: Sequence[ReaderTable]) -> list[ReaderTable]:
    """The twin of a table in Hudi's form, beside it; none for other kinds and versions."""
    mine = next(table for table in tables if table.form == HUDI)
    if mine.kind not in KINDS or mine.version != VERSIONS[-1]:
        return []
    place = Path(f"{mine.hudi_path.rstrip('/')}{SUFFIX}")
    with twin.written(session, written) as made:
        copy = place.with_name(f"{place.name}_copy")
        shutil.copytree(made.storage.full(""), copy)
    # The twin is gone with the block.
    copy.rename(place)
    return [replace(mine, suffix=SUFFIX, hudi_path=str(place))]


def faults(cell: Cell) -> set[str]:
    """The known faults that a cell shows."""
    return {fault.key for one in cell.differences if (fault := fault_of(cell, one)) is not None}


def shown(cells: Sequence[Cell], on_twins: Sequence[Cell]) -> list[str]:
    """One line for each cell on a twin: which of the faults on the package's own table it shows, too."""
    own = {
        (cell.reader, cell.table.kind, cell.table.version): faults(cell) for cell in cells if cell.table.form == HUDI
    }
    lines = []
    for cell in on_twins:
        there = own.get((cell.reader, cell.table.kind, cell.table.version), set())
        listed = ", ".join(f"{key}: {'there, too' if key in faults(cell) else 'NOT there'}" for key in sorted(there))
        lines.append(f"{cell.reader}, {cell.table.name}: {listed or 'no fault'}")
    return lines
