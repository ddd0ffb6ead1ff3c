"""Requests to an object store per batch: counted between the package and a real S3 server, step by step.

    python benchmarks/store_requests.py [--batches 40] [--logs 1000]     about five minutes on two cores

Every process reaches the store through a proxy that counts: workers by Arrow, JVMs by Hadoop's s3a. Steps run as under
Airflow with a local master: open, commit and small appends in the resident process. The table is partitioned by day,
and the logs fall into one day. Printed are medians of the last half, by step and by what a store charges for
(https://aws.amazon.com/s3/pricing): PUT, POST and LIST are one class, GET and HEAD another, DELETE is free.

The last line is what a day of one batch a minute takes, and whether the number grew with the batches.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.local.sdk import by_ip
from tests.outage.proxy import Proxy
from tests.pipelines import ad_events
from tests.scenarios import PROJECT, Scenario
from tests.services import s3_store

BUCKET, LOGSTORE = "counted", "counted"
WRITES, READS, FREE = "PUT, POST, LIST", "GET, HEAD", "DELETE"
DOLLARS = {WRITES: 0.005 / 1000, READS: 0.0004 / 1000, FREE: 0.0}
"""A request's price in us-east-1, S3 Standard."""
BATCHES_A_DAY = 24 * 60
Counts = dict[str, Counter[str]]


def charged(request: str) -> str:
    """The class of a request."""
    method, _, path = request.partition(" ")
    if method == "DELETE":
        return FREE
    return WRITES if method in ("PUT", "POST") or "list-type=" in path or "prefix=" in path else READS


class Counted:
    """Runs steps, and counts what each asks the store for."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.counts: list[Counts] = []

    def batch(self, scenario: Scenario, run: str) -> None:
        """A whole batch."""
        counts: Counts = {}
        self.counts.append(counts)
        work = scenario.by(run)
        self.step("settle", lambda: settle(work, lambda other: True))
        self.step("plan", lambda: plan.tail(work))
        [batch] = work.ledger.live(work.pipeline.name)
        for name, step in (
            ("open", steps.open_instant),
            ("append", steps.append),
            ("record", steps.record),
            ("commit", steps.commit),
        ):
            self.step(name, lambda step=step: step(work, batch.id, batch.token))  # type: ignore[misc]

    def step(self, name: str, run: Callable[[], object]) -> None:
        """One step of the newest batch."""
        seen = self._proxy.heal().seen
        run()
        self.counts[-1][name] = Counter(charged(request) for request in seen)


def total(counts: Counts) -> int:
    """All requests of a batch that are charged."""
    return sum(count for step in counts.values() for kind, count in step.items() if kind != FREE)


def medians(batches: list[Counts], step: str) -> dict[str, float]:
    """Of a step, by class."""
    return {kind: statistics.median(batch[step][kind] for batch in batches) for kind in DOLLARS}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40, help="one after the other (default: %(default)s)")
    parser.add_argument("--logs", type=int, default=1000, help="of a batch (default: %(default)s)")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slshudi-requests-")))
        server = stack.enter_context(LocalSls(folder / "sls"))
        store = stack.enter_context(s3_store(BUCKET))
        proxy = stack.enter_context(Proxy(store["AWS_ENDPOINT_URL"]).running())
        os.environ.update({**store, "AWS_ENDPOINT_URL": proxy.url, "TMPDIR": str(folder)})
        client = by_ip(server.connection())
        client.create_project(PROJECT, "requests")
        client.create_logstore(PROJECT, LOGSTORE, ttl=7, shard_count=2)
        pipeline = ad_events(f"s3a://{BUCKET}/ad_events", source={"project": PROJECT, "logstore": LOGSTORE})
        engine = open_engine(f"sqlite:///{folder / 'ledger.db'}")
        stack.callback(engine.dispose)
        migrate(engine)
        work = Work(
            pipeline,
            Ledger(engine),
            SubprocessLauncher(resident=True),
            lambda: LogService(server.connection(), PROJECT, LOGSTORE),
            Run("tail", "run-0"),
        )
        scenario, counted = Scenario(work, client), Counted(proxy)
        for number in range(given.batches):
            scenario.put(given.logs, number * given.logs)
            began = time.monotonic()
            counted.batch(scenario, f"run-{number}")
            seconds = time.monotonic() - began
            print(f"  batch {number + 1}: {total(counted.counts[-1])} requests, {seconds:.1f} s", flush=True)
        batches = [*counted.counts]
        counted.counts.append({})
        for name, service in (("clean", maintenance.clean), ("archive", maintenance.archive)):
            counted.step(name, lambda service=service: service(work))  # type: ignore[misc]
    report(batches, counted.counts[-1])


def report(batches: list[Counts], services: Counts) -> None:
    """Prints the table and the day."""
    half = len(batches) // 2
    late = batches[half:]
    print(f"{'step':<10}" + "".join(f"{kind:>18}" for kind in DOLLARS))
    dollars = 0.0
    for step in batches[0]:
        found = medians(late, step)
        dollars += sum(DOLLARS[kind] * count for kind, count in found.items())
        print(f"{step:<10}" + "".join(f"{count:>18.0f}" for count in found.values()))
    for step, counts in services.items():
        print(f"{step:<10}" + "".join(f"{counts[kind]:>18}" for kind in DOLLARS))
    early, lately = (statistics.median(total(batch) for batch in part) for part in (batches[1:half], late))
    most = max(total(batch) for batch in batches[1:])
    print(
        f"requests: {lately:.0f} a batch (first half {early:.0f}, most {most}), "
        f"{lately * BATCHES_A_DAY:,.0f} and {dollars * BATCHES_A_DAY:.2f} dollars a day at one batch a minute"
    )


if __name__ == "__main__":
    main()
