"""`python -m tests.chaos --batches 200 [--seed N]`: pipelines under Airflow while everything around them dies.

Random processes are killed or stopped for a while, the log service fails, shards split and merge, backfills run beside
the tail. In the end the service's logs are compared with the table's rows, one by one, by readers that know nothing of
each other. A run that is not exact, or gets stuck, leaves its folder.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import Stuck, chaos, listed, steps_again


def main() -> int:
    """Prints the outcome; 1 where a log is lost or doubled, or something is left undecided."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200, help="end after so many commits (default: %(default)s)")
    parser.add_argument("--pipelines", type=int, default=3, help="side by side (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of kills and faults; without it, another each time")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    # Thousands of faults are meant to be.
    for name in ("airflow_provider_slshudi", "aliyun"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Whoever ends the run ends all that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix="slshudi-chaos-"))
    print(f"seed {seed}; folder {home}", flush=True)
    started = time.monotonic()
    try:
        run, outcome = chaos(home, given.batches, given.pipelines, seed)
    except Stuck as stuck:
        print(f"chaos: stuck (seed {seed}); see {home}\n{stuck}")
        return 1
    for wrong in outcome.wrong:
        print(wrong)
    print(f"{run}; run again by a new scheduler: {listed(steps_again(run.place))}; {time.monotonic() - started:.0f} s")
    if outcome.ok:
        shutil.rmtree(home, ignore_errors=True)
    else:
        print(f"see {home}")
    kills = sum(run.killer.kills.values())
    print(
        f"chaos: {run.committed} batches, {kills} kills (seed {seed}): {outcome.lost} lost, {outcome.doubled} doubled, "
        f"{len(run.living.living)} living ones fenced"
    )
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
