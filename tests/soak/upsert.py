"""Inserts, updates and deletes with processes killed at random.

After each batch the table is what a model in plain Python says, by hudi-rs and by Spark; some batches are written by
Hudi's own data source, which keeps the same file groups.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance
from airflow_provider_slshudi.services.rewrite import compact
from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import SERVICES, Case, Step, Victim, all_cases
from tests.crash.held import kill
from tests.exact.counts import timeline_faults
from tests.exact.outcome import Outcome
from tests.exact.world import World, log_service, new_scenario
from tests.pipelines import customers
from tests.scenarios import PROJECT, SessionLauncher
from tests.upserts import (
    Change,
    Key,
    Model,
    count_rows,
    file_groups_of,
    put,
    write_by_data_source,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGSTORE, REGIONS, BUCKETS = "customers", "abc", 4
CRASHES, FOREIGN, SERVED = 0.3, 0.1, 0.2
"""Shares of the batches in which somebody is killed, which Hudi's own data source writes, which services follow."""
KEPT = {"compact_after": 2, "keep": {"commits": 1}, "min_commits": 12, "max_commits": 16}
PATIENCE, SLOW = 30.0, 300.0
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


class Soak(World):
    """One table, its model, and what was put and not yet merged; `changes` replace fields of the table's `upsert`."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        server: LocalSls,
        outcome: Outcome,
        type_: str,
        seed: int,
        shard_count: int = 1,
        **changes: Any,
    ) -> None:
        self._spark, self._outcome, self._rng = spark, outcome, random.Random(seed)
        # In turn, so that a long soak meets each of them.
        cases = cases_of(type_)
        self._cases = itertools.cycle(self._rng.sample(cases, len(cases)))
        self._changes = Changes(self._rng)
        source = {"project": PROJECT, "logstore": LOGSTORE}
        described = customers(folder / "table", type_, source, **{"buckets": BUCKETS, **changes})
        self._pipeline = Pipeline.model_validate({**described.model_dump(mode="json"), "maintenance": KEPT})
        url = f"sqlite:///{folder / 'ledger.db'}"
        scenario = new_scenario(self._pipeline, url, server, SessionLauncher(spark), shard_count, PATIENCE)
        super().__init__(folder, scenario.work, url, server)
        self._client = scenario.client
        assert self._pipeline.table.upsert is not None
        self._model = Model(self._pipeline.table.upsert)
        self._waiting: list[Change] = []
        self._seen: set[str] = set()
        self.most_groups = 0

    def batch(self, number: int) -> None:
        """Puts changes and has them merged, whatever happens on the way."""
        outcome, drawn = self._outcome, self._rng.random()
        if drawn < FOREIGN and outcome.figures["batches"]:
            self._by_data_source()
            outcome.figures["by Hudi's data source"] += 1
            what = "by Hudi's data source"
        else:
            self._put()
            what = "healthy"
            if drawn < FOREIGN + CRASHES:
                what = self._crash(next(self._cases), f"crash-{number}")
                outcome.figures["with a SIGKILL"] += 1
                if self._rng.random() < 0.5:
                    self._put()
            self._healthy(f"run-{number}")
            if self._rng.random() < SERVED or what.startswith(Step.COMPACT.value):
                self._serve(f"service-{number}")
        outcome.figures["batches"] += 1
        counted = self.count()
        outcome.match(counted)
        if counted.faults:
            outcome.wrong.append(f"batch {number} ({what})")
        print(f"{number:4} {what}: {len(self._model.rows)} rows{'; '.join(['', *counted.faults])}", flush=True)

    def put(self, count: int) -> None:
        """Puts changes, which wait to be merged."""
        changes = self._changes.some(count)
        put(self._client, self._pipeline, changes)
        self._waiting += changes
        self._outcome.logs += len(changes)

    def _put(self) -> None:
        self.put(self._rng.randrange(1, 120))

    def _healthy(self, run: str) -> None:
        self.next_run(run)
        self._follow()

    def _serve(self, run: str) -> None:
        """What the maintenance DAG does; a table of the other type has nothing to compact."""
        work = self.by(run)
        compact(work)
        maintenance.clean(work)
        maintenance.archive(work)
        self._outcome.figures["with table services behind them"] += 1

    def _follow(self) -> None:
        """Lets the model merge what was committed: batches read the one shard in its order."""
        self._waiting = self._model.follow(self.work.ledger, self._pipeline.name, self._seen, self._waiting)

    def _crash(self, case: Case, run: str) -> str:
        """One step held at a point and a process killed there."""
        holds, step, begun = self.holds(), case.step, dict[str, Any]()
        if step is Step.COMPACT:
            # The first batch of a bucket leaves a base file, the next a log file.
            for more_logs in range(2):
                self._put()
                self._healthy(f"{run}-{more_logs}")
        else:
            begun = self.begin(step, case.point, run)
        holds.arm(case.point)
        held = self.held(step, holds, run, **begun)
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

    def _by_data_source(self) -> None:
        """A batch by Hudi's own writer with its bucket index, which compacts as it goes; then the ledger takes it."""
        changes = list({change.key: change for change in self._changes.some(self._rng.randrange(1, 60))}.values())
        self._outcome.logs += len(changes)
        write_by_data_source(self._spark, self._pipeline, changes)
        self._model.batch(changes)
        rebuild(self.by("rebuild"))

    def _expected(self) -> list[tuple[Any, ...]]:
        """The rows that the table has to hold now."""
        return self._model.table()

    def count(self) -> Outcome:
        """Compares the table with its model, and looks at its timeline and its file groups."""
        storage = self.work.storage
        outcome = count_rows(self._expected(), self._outcome.logs, storage, self._spark)
        outcome.wrong += timeline_faults(storage)
        groups = file_groups_of(Path(storage.full("")))
        self.most_groups = max(self.most_groups, *map(len, groups.values()), 0)
        outcome.wrong += [
            f"partition {name} has {len(ids)} file groups for {BUCKETS} buckets"
            for name, ids in groups.items()
            if len(ids) > BUCKETS or len({item[:8] for item in ids}) != len(ids)
        ]
        return outcome


def soak(folder: Path, spark: SparkSession, type_: str, batches: int, seed: int, outcome: Outcome) -> None:
    """So many batches into a table of a type; ends with the first fault."""
    with log_service(folder) as server:
        run = Soak(folder, spark, server, outcome, type_, seed)
        for number in range(batches):
            run.batch(number)
            if not outcome.ok:
                break
        outcome.notes.append(f"{run.most_groups} of {BUCKETS} buckets in a partition at most")
