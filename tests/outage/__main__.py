"""`python -m tests.outage [--step commit] [--fault gone] [--every N]`: the store fails at every request of a step.

A batch stands before the step, with its table in an S3 store. One of the step's requests fails: it is refused, cut off,
its answer is lost, or from it on the store is gone or says nothing more until the step has ended. Then the store is
well again, and two runs later the table has to hold each log once. The last line is the figure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.context import Work
from tests.crash.cases import Step
from tests.crash.world import World
from tests.local.sdk import by_ip
from tests.outage.proxy import Fault, Proxy
from tests.scenarios import PROJECT
from tests.services import s3_store
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "outage"
STEPS: dict[Step, Callable[[Work, Transaction], object]] = {
    Step.OPEN: lambda work, batch: steps.open_instant(work, batch.id, batch.token),
    Step.APPEND: lambda work, batch: steps.append(work, batch.id, batch.token),
    Step.RECORD: lambda work, batch: steps.record(work, batch.id, batch.token),
    Step.COMMIT: lambda work, batch: steps.commit(work, batch.id, batch.token),
}
_CASES_OF_A_WORLD = 20
_IMPATIENT = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.retry.interval": "50ms",
    "fs.s3a.retry.throttle.limit": "2",
    "fs.s3a.retry.throttle.interval": "50ms",
}


@dataclass
class Outcome:
    """How the cases ended; `ended` counts steps that ended well in spite of it, and those that failed."""

    cases: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lost = sum("lost" in why for why in self.failed)
        doubled = sum("doubled" in why or "more than once" in why for why in self.failed)
        other = f", {len(self.failed)} failed" if self.failed else ""
        ends = ", ".join(f"{number} steps {how}" for how, number in sorted(self.ended.items()))
        return f"outage: {self.cases} requests failed ({ends}): {lost} lost, {doubled} doubled{other}"


class Outage:
    """Worlds on a store behind a proxy."""

    def __init__(self, folder: Path, spark: SparkSession, server: LocalSls, proxy: Proxy, upserts: bool) -> None:
        self._proxy = proxy
        self._worlds = self._made(folder, spark, server, upserts)

    @staticmethod
    def _made(folder: Path, spark: SparkSession, server: LocalSls, upserts: bool) -> Iterator[World]:
        """A world for each case; a line reads all logs of its world, so one of all cases would slow them down."""
        for number in count(1):
            world = World(folder / f"world-{number}", spark, server, f"outage-{number}", upserts, f"s3a://{BUCKET}")
            yield from repeat(world, _CASES_OF_A_WORLD)

    def requests(self, step: Step) -> list[str]:
        """The requests of a step that nothing happens to."""
        with next(self._worlds).line(f"{step.value}-well") as line:
            batch = line.before(step)
            assert batch is not None
            plan = self._proxy.heal()
            STEPS[step](line.work, batch)
            seen = [*plan.seen]
            line.ends_well()
            return seen

    def case(self, step: Step, fault: Fault, number: int) -> tuple[bool, str] | None:
        """Whether the step ended well and what was decided then; None if it had fewer requests.

        Raises:
            AssertionError: the table does not hold each log once.
        """
        with next(self._worlds).line(f"{step.value}-{fault.name.lower()}-{number}") as line:
            batch = line.before(step)
            assert batch is not None
            plan, is_well = self._proxy.arm(number, fault), True
            try:
                STEPS[step](line.work, batch)
            except Exception as error:
                is_well = False
                print(f"  {type(error).__name__}: {str(error)[:200]}", flush=True)
            finally:
                self._proxy.heal()
            decided = line.ends_well()
            told = plan.seen[number - 1] if plan.hit else ""
            return (is_well, f"{told}: {', '.join(decided) or 'nothing to decide'}") if plan.hit else None


@contextmanager
def outage(upserts: bool) -> Iterator[Outage]:
    """Everything started."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-outage-")))
        server = stack.enter_context(LocalSls(folder / "sls"))
        by_ip(server.connection()).create_project(PROJECT, "tests")
        store = stack.enter_context(s3_store(BUCKET))
        proxy = stack.enter_context(Proxy(store["AWS_ENDPOINT_URL"]).running())
        os.environ.update({**store, "AWS_ENDPOINT_URL": proxy.url})
        spark = start_spark(f"s3a://{BUCKET}")
        stack.callback(spark.stop)
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in _IMPATIENT.items():
            hadoop.set(name, value)
        yield Outage(folder, spark, server, proxy, upserts)


def main() -> int:
    """Runs it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [step.value for step in STEPS]
    parser.add_argument("--step", choices=names, action="append", help="default: commit")
    faults = [fault.name.lower() for fault in Fault]
    parser.add_argument("--fault", choices=faults, action="append", help="default: all of them")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th request (default: %(default)s)")
    parser.add_argument("--upserts", action="store_true", help="into a Merge-On-Read table")
    given = parser.parse_args()
    outcome, began = Outcome(), time.monotonic()
    with outage(given.upserts) as made:
        for step in (Step(name) for name in given.step or [Step.COMMIT.value]):
            requests = made.requests(step)
            print(f"{step.value}: {len(requests)} requests: {dict(Counter(item.split()[0] for item in requests))}")
            for fault in (Fault[name.upper()] for name in given.fault or faults):
                for number in range(1, len(requests) + 1, given.every):
                    run(made, outcome, step, fault, number)
    for why in outcome.failed:
        print(f"failed: {why}")
    print(f"{time.monotonic() - began:.0f} s")
    print(outcome)
    return 1 if outcome.failed or not outcome.cases else 0


def run(made: Outage, outcome: Outcome, step: Step, fault: Fault, number: int) -> None:
    """One case, told in one line."""
    began, name = time.monotonic(), f"{step.value}, request {number} {fault.value}"
    try:
        found = made.case(step, fault, number)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        outcome.cases += 1
        outcome.failed.append(f"{name}: {type(error).__name__}: {str(error)[:1000]}")
        said = f"FAILED  {outcome.failed[-1]}"
    else:
        if found is None:
            said = f"        {name}: there was none"
        else:
            outcome.cases += 1
            outcome.ended["ended well" if found[0] else "failed"] += 1
            said = f"ok      {name}: {'ended well' if found[0] else 'failed'}, {found[1]}"
    print(f"{outcome.cases:4} {time.monotonic() - began:6.1f} s  {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
