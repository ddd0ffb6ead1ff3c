"""A drawn history: logs, shards, clocks, looks and batches, with the package's own plans and ledger."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from airflow_provider_slshudi.downstream.completeness import complete
from airflow_provider_slshudi.exceptions import ConfigError, DataExpired, SourceError
from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger import engine as ledger_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, PartitionRow, RangeTotals, Transaction
from airflow_provider_slshudi.planning.ranges import Range, by_shard, subtract
from airflow_provider_slshudi.planning.watermark import MOST_MARKS, Mark
from airflow_provider_slshudi.sls import faults, service
from airflow_provider_slshudi.transaction import backlog, plan
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.downstream.drawn_service import DAY, EPOCH, Clock, DrawnService, Shard
from tests.downstream.truth import HOUR, Look, Truth, too_late
from tests.ledgers import quick_engine
from tests.pipelines import ad_events

NAME = "ad_events"
_MOST_BATCHES, _DRAIN = 3, 1_000
Plant = Callable[[pytest.MonkeyPatch], None]


class WatchedLedger(Ledger):
    """Tells of the looks that it keeps."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.looks: list[Look] = []

    def save_look(self, pipeline: str, looked: int, *rest: Any) -> None:
        super().save_look(pipeline, looked, *rest)
        marks: Mapping[int, Sequence[Mark]] = rest[0]
        ends = {shard.id: shard.end or 0 for shard in self.shards(pipeline)}
        self.looks.append(Look(looked, ends, frozenset(marks)))


@dataclass
class Batch:
    """A batch that is under way."""

    transaction: Transaction
    ranges: list[Range]
    state: str = "planned"
    is_backfill: bool = False


class History:
    """One history.

    Args:
        seed: what is drawn.
        folder: for the ledger's file.
        plant: leaves a guard of the package out.
    """

    def __init__(self, seed: int, folder: Path, plant: Plant | None = None) -> None:
        self.rng, self._folder, self._plant = random.Random(seed), folder, plant
        rng = self.rng
        self.clock = Clock(rng.choice((0.0, 0.0, -600.0, rng.uniform(-900, 900))))
        self.service = DrawnService(rng, self.clock, rng.randrange(1, 4), self._meanwhile)
        self.lateness = rng.choice((1, 60, 600, 2 * HOUR))
        self.is_lossy, self.is_faulty = rng.random() < 0.3, rng.random() < 0.3
        begins = ("begin", "end", int(self.clock.true + rng.uniform(0, 2 * HOUR)))
        start: str | int = rng.choice(begins)
        self.truth = Truth(self.service.shards, self.lateness, start)
        partition = {"by": "event_time", "column": "event_time", "every": "hour", "lateness": f"{self.lateness}s"}
        table = {"path": f"file://{folder}/lake", "name": NAME, "partition": partition}
        self.pipeline = ad_events(
            folder,
            table=table,
            source={"project": "ads", "logstore": "events", "start": start},
            batch={"max_bytes": rng.choice((5_000, 100_000, 10**9))},
        )
        self.dead: set[int] = set()
        self.batches: list[Batch] = []
        self.faults: list[str] = []
        self.figures: Counter[str] = Counter()
        self._runs, self._is_quiet = 0, False
        self._request: tuple[plan.BackfillRequest, str, float] | None = None
        self._filled: set[int] = set()

    def run(self) -> list[str]:
        """What is wrong in the end."""
        with quick_engine(self._folder) as engine, self._drawn():
            self.ledger = WatchedLedger(engine)
            self._before()
            for _ in range(self.rng.randrange(20, 70)):
                if self.faults:
                    break
                self._act()
            if not self.faults:
                self._drain()
        return self.faults

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger_engine, "datetime", self.clock)
            for module in (plan, backlog, service, faults):
                patch.setattr(module, "time", self.clock)
            patch.setattr(faults, "random", self.rng)
            for module in (plan, backlog):
                patch.setattr(module, "ask_each", lambda ask, shards: {shard: ask(shard) for shard in [*shards]})
            if self._plant is not None:
                self._plant(patch)
            yield

    def _before(self) -> None:
        """What happens before the pipeline's first plan, which may be long after its registration."""
        self._pass(self.rng.uniform(0, 3 * HOUR))
        for _ in range(self.rng.randrange(30)):
            self._put()
        if self.is_lossy and self.rng.random() < 0.3:
            self._pass(self.rng.uniform(0.5, 1.5) * DAY)
            self._put()
        self.ledger.register(NAME, self.pipeline.source.identity, self.pipeline.table.path)
        self._pass(self.rng.choice((0, self.rng.uniform(0, 2 * HOUR))))

    def _act(self) -> None:
        acts: dict[Callable[[], object], float] = {
            self._put: 10,
            self._wait: 8,
            self._tail: 8,
            self._look: 4,
            self._step: 16,
            self._split: 1,
            self._merge: 1,
            self._change_producers: 1,
            self._backfill: 2,
            self._abort: 1,
            self._lose: self.is_lossy,
            self._turn_over: 0.3 * self.is_lossy,
        }
        self.service.failing = self.rng.choice((0.0, 0.3)) if self.is_faulty else 0.0
        self.rng.choices([*acts], [*acts.values()])[0]()
        self.figures["acts"] += 1

    # What the world does.

    def _meanwhile(self) -> None:
        if self._is_quiet:
            return
        self._is_quiet = True
        if self.rng.random() < 0.1:
            self._put()
        elif self.rng.random() < 0.01:
            self._split()
        self._is_quiet = False

    def _put(self) -> None:
        rng, alive = self.rng, [shard for shard in self.service.open if shard.id not in self.dead]
        for _ in range(rng.choice((1, 1, 3, 20)) if alive else 0):
            now = self.clock.true
            told = (now, now - rng.uniform(0, 30), now - rng.uniform(0, 2 * self.lateness + HOUR))
            wrong = (now - rng.uniform(0, 8 * HOUR), now + rng.uniform(0, 2 * HOUR), now - 10_000 * DAY)
            # As when one is lost and another one, which is a day late, is not.
            late = now - rng.uniform(0, 2) * DAY
            event = rng.choices((*told, *wrong, late), (20, 40, 15, 5, 5, 0.3, 3))[0]
            self.service.put(rng.choice(alive), int(event))

    def _wait(self) -> None:
        rng, now = self.rng, self.clock.true
        due = (now - self.lateness) // HOUR * HOUR + HOUR + self.lateness + rng.uniform(-8, 12)
        self._pass(rng.choice((rng.uniform(0, 5), rng.uniform(0, HOUR), max(due - now, 0), max(due - now, 0))))

    def _pass(self, seconds: float) -> None:
        self.clock.true += seconds
        self.service.expire()

    def _split(self) -> None:
        if len(self.service.shards) < 12:
            self.service.split(self.rng.choice(self.service.open))

    def _merge(self) -> None:
        pairs = [(one, two) for one in self.service.open for two in self.service.open if one.end == two.begin]
        if pairs and len(self.service.shards) < 12:
            self.service.merge(*self.rng.choice(pairs))

    def _change_producers(self) -> None:
        """Some die, or come to life again; a shard moves to another machine."""
        self.dead = {shard.id for shard in self.service.open if self.rng.random() < 0.3}
        self.service.move(self.rng.choice(self.service.open))

    def _lose(self) -> None:
        self._pass(self.rng.uniform(0.3, 1.5) * DAY)

    def _turn_over(self) -> None:
        """A shard comes, takes logs, and goes, while no run looks."""
        if len(self.service.shards) < 12:
            self.service.split(self.rng.choice(self.service.open))
            passing, now = self.service.open[-1], int(self.clock.true)
            self.service.put(passing, now - self.rng.randrange(HOUR))
            self.service.split(passing)
            self._pass(self.rng.uniform(1, 1.5) * DAY)

    # What the package does.

    def _work(self, skips: bool = False) -> Work:
        self._runs += 1
        rule = {"on_expired": "skip"} if skips else {}
        pipeline = self.pipeline.model_copy(update={"source": self.pipeline.source.model_copy(update=rule)})
        return Work(pipeline, self.ledger, None, self.service.connect, Run("tail", f"run-{self._runs}"))  # type: ignore[arg-type]

    def _tail(self, skips: bool | None = None) -> bool:
        """Plans a batch; gives whether there was anything to read."""
        if len(self.batches) >= _MOST_BATCHES:
            return True
        work = self._work(self.rng.random() < 0.3 if skips is None else skips)
        try:
            ranges, _ = plan._tail_ranges(work, work.connect(), save=True)
        except (SourceError, DataExpired) as error:
            self.figures[type(error).__name__] += 1
            self._seen()
            return True
        self._seen()
        return self._begin(Kind.TAIL, ranges, work)

    def _look(self) -> None:
        """As `plan.has_news` does."""
        work, known = self._work(), {shard.id for shard in self.ledger.shards(NAME)}
        try:
            client, taken = work.connect(), plan._taken(work)
            listed = client.shards()
            if known and {shard.id for shard in listed} <= known:
                plan._refreshed(work, client, taken, True, listed)
        except SourceError:
            self.figures["SourceError"] += 1
        self._seen()

    def _seen(self) -> None:
        """Somebody completes what a look completed."""
        known = self.ledger.shards(NAME)
        if known and not self.truth.ours:
            self.truth.ours = frozenset(shard.id for shard in known)
        if len(self.ledger.looks) > len(self.truth.looks):
            self.figures["looks"] += 1
        self.truth.looks = self.ledger.looks[-MOST_MARKS // 2 :]
        self._complete()

    def _begin(self, kind: Kind, ranges: list[Range], work: Work) -> bool:
        if ranges:
            begun = self.ledger.begin(NAME, kind, ranges, work.run.dag_id, work.run.run_id)
            self.batches.append(Batch(begun, ranges, is_backfill=kind is Kind.BACKFILL))
        return bool(ranges)

    def _backfill(self) -> None:
        """The next batch of a backfill; or a new one, of what came before the pipeline's duty, or of all."""
        if len(self.batches) >= _MOST_BATCHES or not self.truth.ours:
            return
        known = {shard.id: shard for shard in self.ledger.shards(NAME)}
        if self._request is None:
            chosen = self.service.shards[self.rng.choice([*known])]
            cursors = {chosen.id: (chosen.held, chosen.last)} if chosen.held < chosen.last else None
            request = plan.BackfillRequest(cursors=cursors, everything=True)
            self._request = request, f"backfill-{self._runs}", self.clock.time()
            self.ledger.ask(NAME, BACKFILL, "a person", "asked", self._request[1], {})
        request, run, _ = self._request
        if self.rng.random() < 0.3 or not self._next_of(request):
            self.ledger.answer(NAME, BACKFILL, run, "done")
            self._request = None

    def _next_of(self, request: plan.BackfillRequest) -> bool:
        work = self._work()
        try:
            ranges = plan._backfill_ranges(work, work.connect(), request, save=True)
        except (SourceError, ConfigError):
            return False
        self._seen()
        return self._begin(Kind.BACKFILL, ranges, work)

    def _step(self) -> None:
        """A batch gets on, in any order: one that was prepared long ago may be told later than newer ones."""
        if not self.batches:
            return
        batch = self.rng.choice(self.batches)
        for _ in range(self.rng.randrange(1, 4)):
            if batch in self.batches:
                {"planned": self._open, "open": self._prepare, "prepared": self._commit}[batch.state](batch)

    def _open(self, batch: Batch) -> None:
        self.figures["batches"] += 1
        self.ledger.opened(batch.transaction.id, 1, f"{self.figures['batches']:017}")
        batch.state = "open"

    def _prepare(self, batch: Batch) -> None:
        shards = self.service.shards
        there = [Range(shard.id, shard.held, shard.last) for shard in shards if shard.held < shard.last]
        planned = [item for item in batch.ranges if not item.gap]
        lost = [replace(item, gap=True) for item in subtract(planned, there)]
        if lost and self.rng.random() < 0.5:
            self._give_up(batch)
            return
        read = subtract(planned, lost)
        cursors = [(shards[item.shard], cursor) for item in read for cursor in range(item.begin, item.end)]
        hours = Counter(hour_of(shard.log(cursor).event) for shard, cursor in cursors)
        partitions = {f"event_date={value}": count for value, count in hours.items()}
        totals = [RangeTotals(item, len(item), len(item) * 1_000, 1, 2) for item in read]
        self.ledger.prepared(batch.transaction.id, 1, {}, totals, lost, partitions=partitions)
        batch.ranges = self.ledger.ranges(batch.transaction.id)
        batch.state = "prepared"

    def _commit(self, batch: Batch) -> None:
        self.batches.remove(batch)
        self.ledger.committed(batch.transaction.id, 1, f"{self.clock.true:017.0f}")
        self.truth.commit(batch.ranges)
        if batch.is_backfill:
            self._filled |= {self._begin_of(shard, cursor) for shard, cursor in self._read(batch)}
        self.figures["commits"] += 1
        self._complete()

    def _read(self, batch: Batch) -> Iterator[tuple[Shard, int]]:
        for item in batch.ranges:
            if not item.gap:
                yield from ((self.service.shards[item.shard], cursor) for cursor in range(item.begin, item.end))

    @staticmethod
    def _begin_of(shard: Shard, cursor: int) -> int:
        return shard.log(cursor).event // HOUR * HOUR

    def _abort(self) -> None:
        if self.batches:
            self._give_up(self.rng.choice(self.batches))

    def _give_up(self, batch: Batch) -> None:
        self.batches.remove(batch)
        self.ledger.aborted(batch.transaction.id, 1, "drawn")
        self.figures["aborted"] += 1

    def _complete(self) -> None:
        """Completes what is complete, and compares that with the truth."""
        known = {shard.id: shard for shard in self.ledger.shards(NAME)}
        for item in complete(self.ledger, self.pipeline):
            begin = int(time_of(item.value))
            self.figures["completed"] += 1
            self.figures["reopened"] += item.times > 1
            self.figures["with gaps"] += item.gaps > 0
            self.faults += self.truth.too_early(item, begin, known)
            if begin in self._filled and self._is_backfilled():
                self.faults.append(f"{item}: a backfill that wrote to it is under way")
            self._filled.discard(begin)
        could_be = self.truth.could_be(known)
        if could_be is not None:
            rows = self.ledger.partitions(NAME, -(1 << 40), 1 << 40)
            since = self.ledger.looks[0].looked + 60
            self.faults += too_late(rows, since, could_be, self.lateness, self._waits)

    def _waits(self, item: PartitionRow) -> bool:
        return item.kind is not Kind.TAIL and self._is_backfilled()

    def _is_backfilled(self) -> bool:
        is_asked = self._request is not None and self.clock.time() - self._request[2] < DAY
        return is_asked or any(batch.is_backfill for batch in self.batches)

    def _drain(self) -> None:
        """Everything is committed, and then everything that ended is complete."""
        self.service.failing = 0.0
        if self._request is not None:
            self.ledger.answer(NAME, BACKFILL, self._request[1], "done")
            self._request = None
        self._is_quiet = True
        for _ in range(_DRAIN):
            while self.batches and not self.faults:
                self._step()
            if self.faults or not self._tail(skips=True):
                break
        else:
            self.faults.append("there is always something unread")
        self._pass(10)
        self._look()
        self._tail(skips=True)
        shards = {shard.id: shard for shard in self.ledger.shards(NAME)}
        could_be, looked = self.truth.could_be(shards), self.ledger.looks[-1].looked
        if not self.faults and (could_be is None or could_be < looked):
            covered = by_shard(self.ledger.coverage(NAME))
            self.faults.append(f"all received until {looked} is read, which looks do not show: {shards}, {covered}")


def hour_of(event: int) -> str:
    moment = EPOCH.fromtimestamp(event, EPOCH.tzinfo)
    return f"{moment:%Y-%m-%d-%H}"


def time_of(value: str) -> float:
    return EPOCH.strptime(f"{value} +0000", "%Y-%m-%d-%H %z").timestamp()
