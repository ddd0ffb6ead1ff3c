"""Has readers answer the tables, a few of them at once, and tells what became of each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from airflow_provider_slshudi.exceptions import RuntimeMissing
from tests.readers.ask import ask
from tests.readers.cells import NOT_RUN, RIGHT, Cell, compare
from tests.readers.faults import unexplained
from tests.readers.readers import Reader, Services
from tests.readers.tables import ReaderTable

_LONGEST_LINE = 240
_AT_ONCE = 3
"""Most readers use one processor at a time."""


def asked(readers: Sequence[Reader], tables: Sequence[ReaderTable], services: Services) -> Iterator[Cell]:
    """The cells of all readers on the tables of their forms, in this order; prints each once it is there."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from chain.from_iterable(pool.map(lambda reader: _asked(reader, tables, services), readers))


def _asked(reader: Reader, tables: Sequence[ReaderTable], services: Services) -> list[Cell]:
    mine, cells = [table for table in tables if table.form in reader.forms], list[Cell]()
    started = time.monotonic()
    try:
        for table, answer in ask(reader, mine, services):
            cell = compare(reader.key, table, answer)
            print(f"  {reader.key}, {table.form}, {table.name}: {told(cell)}", flush=True)
            cells.append(cell)
    except RuntimeMissing as error:
        print(f"  {reader.key}: {NOT_RUN}: {error}", flush=True)
    print(f"{time.monotonic() - started:5.0f} s  asked {reader.title}", flush=True)
    return cells


def told(cell: Cell) -> str:
    """One line on a cell."""
    if cell.kind == RIGHT:
        return f"{RIGHT} ({cell.seconds} s)"
    new = unexplained(cell)
    words = [f"{'WRONG' if one in new else 'wrong'} {one}" for one in sorted(cell.differences, key=new.__contains__)]
    words += [f"refused {query}: {said}" for query, said in cell.refused.items()]
    more = f"; {len(words) - 1} more" if len(words) > 1 else ""
    return f"{words[-1 if new else 0][:_LONGEST_LINE]}{more}"
