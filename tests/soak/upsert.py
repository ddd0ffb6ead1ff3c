"""`python -m tests.soak.upsert --batches 200 --seed 7`: inserts, updates and deletes with processes killed at random.

After each batch the table is what a model in plain Python says, by hudi-rs and by Spark; some batches are written by
Hudi's own data source, which keeps the same file groups.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import compact
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.crash.cases import SERVICES, Case, Step, Victim, all_cases
from tests.crash.held import HeldStep, Holds, kill
from tests.local.sdk import by_ip
from tests.pipelines import customers
from tests.scenarios import PROJECT, SessionLauncher
from tests.sessions import start_spark
from tests.upserts import (
    Change,
    Key,
    Model,
    file_groups_of,
    put,
    rows_by_rust,
    rows_by_spark,
    write_by_data_source,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGSTORE, REGIONS, BUCKETS = "customers", "abc", 4
CRASHES, FOREIGN, SERVED = 0.3, 0.1, 0.2
"""Shares of the batches in which somebody is killed, which Hudi's own data source writes, which services follow."""
KEPT = {"compact_after": 2, "keep": {"commits": 1}, "min_commits": 12, "max_commits": 16}
SLOW = 300.0
"""A machine that does much else may take so many seconds to start a driver."""
_OF_APPENDS = {Point.APPEND_TASK_STAGED, *(point for point in Point if "quarantine" in point.value)}
"""Points that no upsert reaches: there is no quarantine, and no file is written beside the partitions."""


def cases_of(type_: str) -> list[Case]:
    """The crashes that a table of the type can meet; upserts have no quarantine."""
    steps = {*Step} - {*SERVICES} | ({Step.COMPACT} if type_ == "merge_on_read" else set())
    return [
        case
        for case in all_cases()
        if case.step in steps
        and case.victim is not Victim.SCHEDULER
        and case.point not in _OF_APPENDS
        and (case.step is not Step.COMPACT or not case.point.value.startswith("rollback"))
    ]


@dataclass
class Outcome:
    """What happened, and what was wrong."""

    seed: int
    type: str
    batches: int = 0
    crashes: int = 0
    foreign: int = 0
    services: int = 0
    changes: int = 0
    rows: int = 0
    most_groups: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the table was right after each batch."""
        return not self.faults and self.batches > 0

    def __str__(self) -> str:
        return (
            f"upsert soak, {self.type}: {self.batches} batches ({self.crashes} with a SIGKILL, {self.foreign} by "
            f"Hudi's data source, {self.services} with table services behind them), {self.changes} changes, "
            f"{self.rows} rows left, {len(self.faults)} faults, {self.most_groups} of {BUCKETS} buckets in a "
            f"partition at most, {self.seconds:.0f} s (seed {self.seed})"
        )


class Changes:
    """Random changes. After a delete a key's next change is later: which of them wins is a matter of compaction."""

    def __init__(self, rng: random.Random, regions: Sequence[str] = REGIONS, ids: Sequence[str] = ()) -> None:
        self._rng, self._clock, self._regions, self._ids = rng, 0, regions, ids
        self._deleted: dict[Key, int] = {}

    def some(self, count: int) -> list[Change]:
        """That many changes, in their order."""
        return [self._one() for _ in range(count)]

    def _one(self) -> Change:
        rng = self._rng
        self._clock += rng.randrange(3)
        key = rng.choice(self._regions), rng.choice(self._ids or [f"c{int(rng.paretovariate(0.5)) % 500}"])
        at = self._clock - (rng.randrange(60) if rng.random() < 0.2 else 0)
        at = max(at, self._deleted.get(key, -1) + 1, 0)
        gone = rng.random() < 0.15
        if gone:
            self._deleted[key] = max(at, self._deleted.get(key, 0))
        number, score = rng.choice([None, rng.randrange(-(2**40), 2**40)]), rng.choice([None, rng.random()])
        return Change(key[1], at, key[0], number, rng.choice([None, "x", "häß,:"]), score, gone)


class Soak:
    """One table, its model, and what was put and not yet merged; `changes` replace fields of the table's `upsert`."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        server: LocalSls,
        outcome: Outcome,
        shard_count: int = 1,
        **changes: Any,
    ) -> None:
        self._folder, self._spark, self._server, self._outcome = folder, spark, server, outcome
        self._rng = random.Random(outcome.seed)
        # In turn, so that a long soak meets each of them.
        cases = cases_of(outcome.type)
        self._cases = itertools.cycle(self._rng.sample(cases, len(cases)))
        self._changes = Changes(self._rng)
        self._client = by_ip(server.connection())
        self._client.create_project(PROJECT, "tests")
        self._client.create_logstore(PROJECT, LOGSTORE, ttl=7, shard_count=shard_count)
        source = {"project": PROJECT, "logstore": LOGSTORE}
        described = customers(folder / "table", outcome.type, source, **{"buckets": BUCKETS, **changes})
        self._pipeline = Pipeline.model_validate({**described.model_dump(mode="json"), "maintenance": KEPT})
        self._url = f"sqlite:///{folder / 'ledger.db'}"
        engine = open_engine(self._url)
        migrate(engine)
        self._work = Work(
            self._pipeline,
            Ledger(engine),
            SessionLauncher(spark),
            lambda: LogService(server.connection(), PROJECT, LOGSTORE, patience=Patience(30)),
            Run("tail", "run-0"),
        )
        assert self._pipeline.table.upsert is not None
        self._model = Model(self._pipeline.table.upsert)
        self._waiting: list[Change] = []
        self._seen: set[str] = set()

    def batch(self, number: int) -> None:
        """Puts changes and has them merged, whatever happens on the way."""
        outcome, drawn = self._outcome, self._rng.random()
        if drawn < FOREIGN and outcome.batches:
            self._by_data_source()
            outcome.foreign += 1
            what = "by Hudi's data source"
        else:
            self._put()
            what = "healthy"
            if drawn < FOREIGN + CRASHES:
                what = self._crash(next(self._cases), f"crash-{number}")
                outcome.crashes += 1
                if self._rng.random() < 0.5:
                    self._put()
            self._healthy(f"run-{number}")
            if self._rng.random() < SERVED or what.startswith(Step.COMPACT.value):
                self._serve(f"service-{number}")
        outcome.batches += 1
        faults = self._faults()
        outcome.faults += [f"batch {number} ({what}): {fault}" for fault in faults]
        print(f"{number:4} {what}: {len(self._model.rows)} rows{'; '.join(['', *faults])}", flush=True)

    def _put(self) -> None:
        changes = self._changes.some(self._rng.randrange(1, 120))
        put(self._client, self._pipeline, changes)
        self._waiting += changes
        self._outcome.changes += len(changes)

    def _by(self, run: str) -> Work:
        return replace(self._work, run=Run("tail", run))

    def _healthy(self, run: str) -> None:
        work = self._by(run)
        settle(work, lambda other: True)
        planned = plan.tail(work)
        if planned is not None:
            steps.open_instant(work, planned.id, planned.token)
            steps.append(work, planned.id, planned.token)
            steps.record(work, planned.id, planned.token)
            steps.commit(work, planned.id, planned.token)
        self._follow()

    def _serve(self, run: str) -> None:
        """What the maintenance DAG does; a table of the other type has nothing to compact."""
        work = self._by(run)
        compact(work)
        maintenance.clean(work)
        maintenance.archive(work)
        self._outcome.services += 1

    def _follow(self) -> None:
        """Lets the model merge what was committed: batches read the one shard in its order."""
        committed = [t for t in self._work.ledger.last(self._pipeline.name, 5) if t.state is State.COMMITTED]
        for transaction in reversed(committed):
            if transaction.id not in self._seen:
                self._seen.add(transaction.id)
                count = int(transaction.rows or 0)
                self._model.batch(self._waiting[:count])
                self._waiting = self._waiting[count:]

    def _crash(self, case: Case, run: str) -> str:
        """One step held at a point and somebody killed there."""
        holds, step = Holds(self._folder / "points"), case.step
        more: dict[str, Any] = {}
        if step is Step.COMPACT:
            # The first batch of a bucket leaves a base file, the next a log file.
            for more_logs in range(2):
                self._put()
                self._healthy(f"{run}-{more_logs}")
        elif step is Step.SETTLE:
            self._before(Step.COMMIT if case.point.value.startswith("commit") else Step.RECORD, f"{run}-before")
        elif (begun := self._before(step, run)) is not None:
            more = {"transaction": begun.id, "token": begun.token}
        setup = {"pipeline": self._pipeline.model_dump(mode="json"), "ledger": self._url, "run": run, **more}
        holds.arm(case.point)
        held = HeldStep(
            {**setup, "step": step.value}, holds, self._server.connection().to_env(), self._folder / "steps.log"
        )
        try:
            pid = holds.wait(case.point, held.child, SLOW)
            held.processes()
            kill(held.victim(case.victim, pid))
            holds.release(case.point)
            held.wait(SLOW)
        finally:
            holds.release(case.point)
            held.kill()
        return f"{case}"

    def _before(self, step: Step, run: str) -> Transaction | None:
        """Brings a batch to where `step` begins; a run before it has left nothing undecided."""
        work = self._by(run)
        if step is Step.PLAN:
            return None
        planned = plan.tail(work)
        assert planned is not None
        if step is not Step.OPEN:
            steps.open_instant(work, planned.id, planned.token)
            if step is not Step.APPEND:
                steps.append(work, planned.id, planned.token)
            if step is Step.COMMIT:
                steps.record(work, planned.id, planned.token)
        return work.ledger.get(planned.id)

    def _by_data_source(self) -> None:
        """A batch by Hudi's own writer with its bucket index, which compacts as it goes; then the ledger takes it."""
        changes = list({change.key: change for change in self._changes.some(self._rng.randrange(1, 60))}.values())
        self._outcome.changes += len(changes)
        write_by_data_source(self._spark, self._pipeline, changes)
        self._model.batch(changes)
        rebuild(self._by("rebuild"))

    def _expected(self) -> list[tuple[Any, ...]]:
        """The rows that the table has to hold now."""
        return self._model.table()

    def _faults(self) -> list[str]:
        expected, path = self._expected(), self._work.storage.full("")
        readers: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
            "hudi-rs": lambda: rows_by_rust(self._work.storage.uri),
            "Spark": lambda: rows_by_spark(self._spark, path),
        }
        found = []
        for reader, read in readers.items():
            rows = read()
            if rows != expected:
                wrong = sorted(set(rows) ^ set(expected), key=repr)
                found.append(f"{reader} reads {len(rows)} rows, the model has {len(expected)}; differ: {wrong[:4]}")
        pending = Timeline.load(self._work.storage).pending()
        found += [f"pending: {pending}"] if pending else []
        self._outcome.rows = len(expected)
        groups = file_groups_of(Path(path))
        self._outcome.most_groups = max(self._outcome.most_groups, *map(len, groups.values()), 0)
        found += [
            f"partition {name} has {len(ids)} file groups for {BUCKETS} buckets"
            for name, ids in groups.items()
            if len(ids) > BUCKETS or len({item[:8] for item in ids}) != len(ids)
        ]
        return found


def soak(folder: Path, spark: SparkSession, type_: str, batches: int, seed: int) -> Outcome:
    """So many batches into a table of a type; ends with the first fault."""
    outcome, began = Outcome(seed, type_), time.monotonic()
    with LocalSls(folder / "sls") as server:
        run = Soak(folder, spark, server, outcome)
        for number in range(batches):
            run.batch(number)
            if outcome.faults:
                break
    outcome.seconds = time.monotonic() - began
    return outcome


def main() -> int:
    """Run it; the exit code says whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.upsert", description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--type", choices=["merge_on_read", "copy_on_write"], default="merge_on_read")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="slshudi-upsert-") as folder:
        outcome = soak(Path(folder), start_spark(), arguments.type, arguments.batches, arguments.seed)
    for fault in outcome.faults:
        print(fault, file=sys.stderr)
    print(outcome)
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
