"""`python -m tests.chaos [--batches 200] [--fleet] [--seed N]`: pipelines under Airflow, and all around them dies.

Random processes are killed or stopped for a while, the log service fails, shards split and merge, backfills run beside
the tail. In the end the service's logs are compared with the table's rows, one by one, by readers that know nothing of
each other. A run that is not exact, or gets stuck, leaves its folder.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.chaos.place import Place, place
from tests.chaos.run import Stuck, disturb, listed, steps_again
from tests.pipelines import TABLE_VERSION


def main() -> int:
    """Prints the outcome; 1 where a log is lost or doubled, or something is left undecided."""
    parser = arguments(__doc__)
    parser.add_argument("--pipelines", type=int, default=3, help="side by side (default: %(default)s)")
    parser.add_argument("--fleet", action="store_true", help="one DAG reads all pipelines, and not one each")
    parser.add_argument("--mirrors", action="store_true", help="each pipeline has mirrors, and not the first one alone")
    parser.add_argument("--table-version", choices=("6", "8", "9"), help="Hudi's, of the tables (default: a new one's)")
    given = parser.parse_args()
    if given.table_version:
        os.environ[TABLE_VERSION] = given.table_version
    mirrored = given.pipelines if given.mirrors else 1
    made = partial(place, count=given.pipelines, fleet="fleet" if given.fleet else "", mirrored=mirrored)
    return run("chaos", made, given.batches, given.seed)


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What every such run is told."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200, help="end after so many commits (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of kills and faults; without it, another each time")
    return parser


def run(name: str, made: Callable[[Path], AbstractContextManager[Place]], batches: int, seed: int | None) -> int:
    """Disturbs what is `made` until so many batches are committed, and prints the outcome; gives the exit code."""
    seed = random.randrange(1 << 32) if seed is None else seed
    # Thousands of faults are meant to be.
    for logger in ("airflow_provider_slshudi", "aliyun"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    # Whoever ends the run ends all that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix=f"slshudi-{name}-"))
    print(f"seed {seed}; folder {home}", flush=True)
    started = time.monotonic()
    adopt_orphans()
    try:
        with made(home) as found:
            done, outcome = disturb(found, batches, seed)
            told = f"{done}; run again by a new scheduler: {listed(steps_again(found))}"
    except Stuck as stuck:
        print(f"{name}: stuck (seed {seed}); see {home}\n{stuck}")
        return 1
    for wrong in outcome.wrong:
        print(wrong)
    print(f"{told}; {time.monotonic() - started:.0f} s")
    if outcome.ok:
        shutil.rmtree(home, ignore_errors=True)
    else:
        print(f"see {home}")
    kills = sum(done.killer.kills.values())
    print(
        f"{name}: {done.committed} batches, {kills} kills (seed {seed}): {outcome.lost} lost, "
        f"{outcome.doubled} doubled, {len(done.living.living)} living ones fenced"
    )
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
