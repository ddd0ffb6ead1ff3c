"""The object store fails at a request."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_slshudi.local.process import LocalSls
from tests.crash.cases import BATCH, Step
from tests.crash.world import World
from tests.exact.outcome import Outcome, attempt
from tests.exact.step import STEPS
from tests.exact.trouble import Trouble, chosen
from tests.exact.world import log_service
from tests.outage.proxy import Fault, Proxy
from tests.services import s3_store
from tests.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Case:
    """A step whose requests fail, each once."""

    step: Step
    fault: Fault

    def __str__(self) -> str:
        return f"{self.step.value}, each request {self.fault.value}"


BUCKET = "outage"
_CASES_OF_A_WORLD = 20
_IMPATIENT = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.retry.interval": "50ms",
    "fs.s3a.retry.throttle.limit": "2",
    "fs.s3a.retry.throttle.interval": "50ms",
}


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
            STEPS[step](line.work, batch.id, batch.token)
            seen = [*plan.seen]
            line.ends_well()
            return seen

    def fail_request(self, step: Step, fault: Fault, number: int, outcome: Outcome) -> None:
        """Carries a step out of which one request fails; notes how it ended and what was decided then.

        Raises:
            AssertionError: the table does not hold each log once.
        """
        with next(self._worlds).line(f"{step.value}-{fault.name.lower()}-{number}") as line:
            batch = line.before(step)
            assert batch is not None
            plan, how = self._proxy.arm(number, fault), "steps ended well"
            try:
                STEPS[step](line.work, batch.id, batch.token)
            except Exception as error:
                how = "steps failed"
                outcome.notes.append(f"{type(error).__name__}: {str(error)[:200]}")
            finally:
                self._proxy.heal()
            decided = line.ends_well()
            outcome.logs = line.world.logs
            if not plan.hit:
                outcome.missed = "there was no such request"
                return
            outcome.figures[how] += 1
            outcome.notes.append(f"{plan.seen[number - 1]}: {', '.join(decided) or 'nothing to decide'}")


@contextmanager
def outage(folder: Path, upserts: bool) -> Iterator[Outage]:
    """Everything started."""
    with (
        log_service(folder) as server,
        s3_store(BUCKET) as store,
        Proxy(store["AWS_ENDPOINT_URL"]).running() as proxy,
    ):
        os.environ.update({**store, "AWS_ENDPOINT_URL": proxy.url})
        spark = start_spark(f"s3a://{BUCKET}")
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in _IMPATIENT.items():
            hadoop.set(name, value)
        yield Outage(folder, spark, server, proxy, upserts)
        spark.stop()


class Outages(Trouble[Case]):
    """The store fails at every request of a step.

    A batch stands before the step, with its table in an S3 store. One of the step's requests fails: it is refused, cut
    off, its answer is lost, or from it on the store is gone or says nothing more until the step has ended. Then the
    store is well again, and two runs later the table has to hold each log once.
    """

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--step", choices=[step.value for step in BATCH[2:]], action="append", help="default: commit"
        )
        parser.add_argument("--fault", choices=[fault.name.lower() for fault in Fault], action="append")
        parser.add_argument("--every", type=int, default=1, help="only each so many-th request (default: %(default)s)")
        parser.add_argument("--upserts", action="store_true", help="into a Merge-On-Read table")

    def cases(self, options: Namespace) -> Sequence[Case]:
        faults = [fault for fault in Fault if chosen(options, fault=fault.name.lower())]
        return [Case(Step(step), fault) for step in options.step or [Step.COMMIT.value] for fault in faults]

    def run(self, cases: Sequence[Case], options: Namespace, folder: Path) -> Iterator[Outcome]:
        with outage(folder, options.upserts) as store:
            requests: dict[Step, list[str]] = {}
            for step, fault in ((case.step, case.fault) for case in cases):
                if step not in requests:
                    requests[step] = store.requests(step)
                    kinds = Counter(request.split()[0] for request in requests[step])
                    print(f"{step.value}: {len(requests[step])} requests: {dict(kinds)}", flush=True)
                for number in range(1, len(requests[step]) + 1, options.every):
                    name = f"{step.value}, request {number} {fault.value}"
                    yield attempt(name, partial(store.fail_request, step, fault, number))
