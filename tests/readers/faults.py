"""What readers get wrong by themselves: each with the difference by which it shows, its reason and its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.readers.cells import Cell, Difference


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


FAULTS: tuple[Fault, ...] = ()


def fault_of(cell: Cell, difference: Difference) -> Fault | None:
    """The fault that a difference shows; None: it is of no known fault."""
    return next((one for one in FAULTS if cell.reader.startswith(one.reader) and one.shows(cell, difference)), None)


def unexplained(cell: Cell) -> list[Difference]:
    """The differences of a cell that no known fault of its reader explains."""
    return [difference for difference in cell.differences if fault_of(cell, difference) is None]
