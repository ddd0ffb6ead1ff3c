"""`python -m tests.readers` makes the tables, asks the readers, prints the matrix and writes docs/engines.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.readers import hostile, page, run, twins
from tests.readers.cells import Cell
from tests.readers.faults import fault_of, unexplained
from tests.readers.place import place
from tests.readers.readers import READERS
from tests.readers.tables import HUDI, KINDS, VERSIONS

FEWEST_READERS = 12
"""So many readers have to read an appended table in at least one form, if all are asked."""


def described(cell: Cell) -> dict[str, Any]:
    """A cell as JSON can have it."""
    faults = {str(one): fault.key if (fault := fault_of(cell, one)) else None for one in cell.differences}
    table = cell.table
    return {
        "reader": cell.reader,
        "table": table.kind,
        "version": table.version,
        "form": table.form,
        "cell": cell.kind,
        "refused": dict(cell.refused),
        "differences": faults,
        "seconds": cell.seconds,
    }


def main() -> int:
    """Run it; the exit code is 1 if a reader is wrong without a known fault of its own, or too few read the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.readers", description=__doc__)
    parser.add_argument("--readers", default="", metavar="NAME,..", help=", ".join(one.key for one in READERS))
    parser.add_argument("--tables", default="", metavar="NAME,..", help=", ".join(KINDS))
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="print the cells as JSON, or write them there"
    )
    parser.add_argument("--no-maintenance", action="store_true", help="leave out other engines' clean-ups of mirrors")
    arguments = parser.parse_args()
    chosen = arguments.readers.split(",") if arguments.readers else [one.key for one in READERS]
    kinds = arguments.tables.split(",") if arguments.tables else list(KINDS)
    if unknown := {*chosen, *kinds} - {one.key for one in READERS} - KINDS.keys():
        parser.error(f"no readers or tables are called {', '.join(sorted(unknown))}")
    started = time.monotonic()
    readers = [one for one in READERS if one.key in chosen]
    outcomes: list[hostile.Outcome] = []
    with place(readers, kinds) as here:
        cells = list(run.asked(readers, here.made.tables, here.services))
        faulty = {cell.reader for cell in cells if cell.table.form == HUDI and cell.differences}
        on_twins = list(run.asked([one for one in readers if one.key in faulty], here.made.twins, here.services))
        if here.services.trino and hostile.KIND in kinds and not arguments.no_maintenance:
            print("maintenance of mirrors by other engines:", flush=True)
            outcomes = hostile.run(here)
    missing = sum(table.form in one.forms for one in readers for table in here.made.tables) - len(cells)
    is_whole = len(readers) == len(READERS) and len(kinds) == len(KINDS)
    as_json = json.dumps([described(cell) for cell in cells], indent=1)
    if arguments.json == "-":
        print(as_json)
    elif arguments.json:
        Path(arguments.json).write_text(as_json, encoding="utf-8")
    if is_whole and outcomes:
        page.write(cells, twins.shown(cells, on_twins), outcomes, VERSIONS)
    print(page.matrix(cells, readers, VERSIONS, notes := page.Notes()), *notes.lines(), sep="\n")
    for line in twins.shown(cells, on_twins):
        print(f"on a table by Hudi's own writer: {line}")
    print(f"{time.monotonic() - started:.0f} s")
    unknown_damage = [outcome for outcome in outcomes if not outcome.is_as_known]
    for outcome in unknown_damage:
        print(f"not as known: {outcome}")
    return verdict(cells, missing, FEWEST_READERS if is_whole else 0) or int(bool(unknown_damage))


def verdict(cells: Sequence[Cell], missing: int, fewest: int) -> int:
    """Prints what has to be looked into, and the counts as the last line; returns the exit code."""
    wrong = [
        f"{cell.reader}, {cell.table.form}, {cell.table.name}: {one}" for cell in cells for one in unexplained(cell)
    ]
    for line in wrong:
        print(f"without a known fault: {line}")
    readable = page.readers_of_appends(cells)
    if len(readable) < fewest:
        print(f"only {len(readable)} readers read appended tables, at least {fewest} have to")
    print(page.counts(cells, missing))
    return 1 if wrong or len(readable) < fewest else 0


if __name__ == "__main__":
    sys.exit(main())
