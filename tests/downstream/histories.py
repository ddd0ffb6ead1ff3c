"""`python -m tests.downstream.histories --count 500 --served 20 [--seed 7]`: histories in which partitions complete.

Logs come late, shards are split and merged, producers die, machines have clocks of their own, looks fail, batches are
given up or told late, logs are lost. Each history is planned by the package's own code into its own ledger. A partition
must never be complete while a log of it that the service had received in time is not committed, nor in a gap that is
told; and it must be complete with the first batch or look after which it could be. Some go through the local server.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.downstream.history import History
from tests.downstream.planted import PLANTED
from tests.downstream.served import ServedHistory
from tests.exact.world import log_service
from tests.ledgers import in_memory


def drawn(seed: int, planted: str | None = None) -> History:
    """The history of a seed, which has been run, with a planted fault or without."""
    with tempfile.TemporaryDirectory(prefix="slshudi-history-", dir=in_memory()) as folder:
        history = History(seed, Path(folder), None if planted is None else PLANTED[planted])
        history.run()
    return history


def main() -> int:
    """Runs them; the exit code says whether all is well, or the planted fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.downstream.histories", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="the first history's seed")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="plant a fault, to see that histories find it")
    parser.add_argument("--served", type=int, default=0, help="so many more through the local server, in real time")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first = random.randrange(1 << 32) if options.seed is None else options.seed
    wrong, figures, began = list[int](), Counter[str](), time.monotonic()
    for seed in range(first, first + options.count):
        history = drawn(seed, options.planted)
        figures += history.figures
        if history.faults:
            wrong.append(seed)
            print(f"seed {seed}:", *history.faults[:3], sep="\n  ", flush=True)
            if options.planted:
                print(f"planted {options.planted}: found in history {seed - first + 1} from seed {first}")
                return 0
    with tempfile.TemporaryDirectory(prefix="slshudi-served-") as home, log_service(Path(home)) as server:
        for seed in range(first, first + options.served):
            (folder := Path(home, f"history-{seed}")).mkdir()
            served = ServedHistory(seed, folder, server)
            if faults := served.run():
                wrong.append(seed)
                print(f"served, seed {seed}:", *faults[:3], sep="\n  ", flush=True)
            figures += Counter({f"served {name}": count for name, count in served.figures.items()})
    told = ", ".join(f"{count} {name}" for name, count in sorted(figures.items()))
    of = f"{options.count} from seed {first} in {time.monotonic() - began:.0f} s"
    print(f"histories: {of}: {told}; {len(wrong)} wrong")
    if options.planted:
        print(f"planted {options.planted}: NOT found")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
