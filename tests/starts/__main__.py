"""`python -m tests.starts [--every MS] [--cases N]`: what is left where a worker dies as its task begins or ends.

Under a real Airflow with LocalExecutor, as it comes, the task of a step is killed, its worker or both, so many
milliseconds after the worker took it, or after its step was over; it measures how long the batch stays undecided. In
the end the service's logs are compared with the tables' rows.
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
from collections import defaultdict
from pathlib import Path

from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.starts.cases import STEPS, Found, Moment, Victim, drawn
from tests.starts.place import place
from tests.starts.run import Runs


def main() -> int:
    """Prints the outcome; 1 where a log is lost or doubled, or a batch was left undecided."""
    parser = argparse.ArgumentParser(prog="python -m tests.starts", description=__doc__)
    parser.add_argument("--every", type=int, default=50, metavar="MS", help="between two kills (default: %(default)s)")
    parser.add_argument("--until", type=int, default=3000, metavar="MS", help="after a task was taken (%(default)s)")
    parser.add_argument("--ends", type=int, default=300, metavar="MS", help="after a step was over (%(default)s)")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--victims", nargs="+", choices=[victim.value for victim in Victim], default=["both", "worker"])
    parser.add_argument("--cases", type=int, default=120, help="at most so many, drawn (default: %(default)s)")
    parser.add_argument("--pipelines", type=int, default=8, help="cases at a time (default: %(default)s)")
    parser.add_argument("--longest", type=float, default=240, metavar="SECONDS", help="then it is left undecided")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    victims = [Victim(name) for name in given.victims]
    cases = drawn(given.steps, victims, given.every, given.until, given.ends, given.cases, seed)
    for logger in ("airflow_provider_slshudi", "aliyun"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix="slshudi-starts-"))
    print(f"{len(cases)} kills, seed {seed}; folder {home}", flush=True)
    began = time.monotonic()
    adopt_orphans()
    with place(home, min(given.pipelines, len(cases))) as found:
        runs = Runs(found, given.longest)
        outcome = runs.carry_out(cases)
    print(table(runs.found))
    for wrong in outcome.wrong:
        print(wrong)
    undecided = sum(item.is_left_open for item in runs.found)
    if outcome.ok and not undecided:
        shutil.rmtree(home, ignore_errors=True)
    print(
        f"starts: {len(runs.found)} kills in {time.monotonic() - began:.0f} s: {outcome.lost} lost, {outcome.doubled} "
        f"doubled, {undecided} left open"
    )
    return 0 if outcome.ok and not undecided else 1


def table(found: list[Found]) -> str:
    """Each step, victim and moment: how many kills, within which milliseconds, and the seconds until decisions."""
    rows = defaultdict(list)
    for item in found:
        case = item.case
        rows[case.step, case.victim.value, item.moment.value, case.since.value].append(item)
    lines = ["step    victim  moment    kills  ms after              seconds until decided"]
    for key in sorted(rows, key=lambda key: (STEPS.index(key[0]), *key[1:])):
        items, (step, victim, moment, since) = rows[key], key
        after = [item.case.after for item in items]
        seconds = sorted(item.seconds for item in items if item.seconds is not None)
        never = sum(item.is_left_open for item in items)
        told = f"{seconds[0]:.0f} to {seconds[-1]:.0f}" if seconds else ""
        told += f" never: {never}" if never else ""
        span = f"{since} {min(after)} to {max(after)}"
        lines.append(f"{step:<8}{victim:<8}{moment:<10}{len(items):>5}  {span:<22}{told}".rstrip())
    for shown in Moment:
        decided = [item for item in found if item.moment is shown and item.seconds is not None]
        if decided:
            worst = max(decided, key=lambda item: item.seconds or 0)
            lines.append(f"worst of {shown.value!r}: {worst.seconds:.0f} s ({worst.case})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
