"""`python -m tests.differential --tables 300`: random tables asked by Spark, hudi-rs, DuckDB and Polars.

With `--lies` lies are planted instead, and each has to be found in one of so many tables.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.differential.lies import LIES
from tests.differential.run import Outcome, asked, found


def _tables(pool: ProcessPoolExecutor, folder: Path, seed: int, count: int) -> bool:
    outcome, began = Outcome(), time.monotonic()
    for done in as_completed([pool.submit(asked, folder, seed + number) for number in range(count)]):
        outcome.join(done.result())
        for text in done.result().wrong:
            print(text, flush=True)
        print(f"{outcome.tables:4} tables, {outcome.queries} queries, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{outcome}; {time.monotonic() - began:.0f} s (seeds from {seed})")
    return not outcome.wrong


def _lies(pool: ProcessPoolExecutor, folder: Path, seed: int) -> bool:
    waiting = {pool.submit(found, folder, seed, lie): lie for lie in LIES}
    numbers = dict(_told(waiting))
    print(f"{sum(number is not None for number in numbers.values())} of {len(LIES)} lies found (seed {seed})")
    return None not in numbers.values()


def _told(waiting: dict[Future[int | None], str]) -> Iterator[tuple[str, int | None]]:
    for done in as_completed(waiting):
        number = done.result()
        print(f"{waiting[done]}: {f'found in table {number}' if number else 'NOT FOUND'}", flush=True)
        yield waiting[done], number


def main() -> int:
    """Run it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the first table")
    parser.add_argument("--jobs", type=int, default=2, help="so many processes, each with a Spark of its own")
    parser.add_argument("--lies", action="store_true")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="slshudi-differential-"))
    print(f"seeds from {arguments.seed}; folder {folder}", flush=True)
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        if arguments.lies:
            ok = _lies(pool, folder, arguments.seed)
        else:
            ok = _tables(pool, folder, arguments.seed, arguments.tables)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
