"""`python -m tests.model --examples 1000`: chance's schedules; `--pairs`: all pairs of stops of two deciders."""

from __future__ import annotations

import argparse
import logging
import random
import sys

from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.model.interleavings import cases
from tests.model.invariants import Broken
from tests.model.machine import InStore, Protocol, thorough


def main() -> int:
    """Run it; the exit code says whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40, help="rules in a schedule at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--stored", action="store_true", help="tables in an object store; --pairs have both")
    parser.add_argument("--pairs", action="store_true", help="all pairs of stops instead")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    return _pairs() if options.pairs else _search(options)


def _pairs() -> int:
    broken = count = steps = 0
    for case in cases():
        count += 1
        try:
            steps += case.run().actors.steps
        except Broken as error:
            broken += 1
            print(f"{case}: {error}", flush=True)
    print(f"model: {count} pairs of stops, {steps} steps, {broken} broken")
    return 1 if broken else 0


def _search(options: argparse.Namespace) -> int:
    print(f"seed {options.seed}", flush=True)
    machine = InStore if options.stored else Protocol
    try:
        run_state_machine_as_test(seed(options.seed)(machine), settings=thorough(options.examples, options.steps))
    finally:
        print(
            f"model: {machine.schedules} schedules, {machine.steps} steps, {len(machine.seen)} different stops, "
            f"seed {options.seed}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
