"""What a consumer costs to be given the next commits, over the length of a pipeline's history; and what a fold costs.

    python benchmarks/consumers.py [--commits 1000 100000] [--consumers 100] [--shards 1000] [--partitions 20000]

A hundred consumers stand one commit behind, and then a hundred commits behind. CPU seconds are of the process that asks
the ledger, SQLite's within it; those of PostgreSQL's server are told beside them. Each figure is the median over the
consumers. A fold takes one commit over a day of hours, where every shard has as many marks as it may.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine, insert, update

from airflow_provider_slshudi.downstream.changes import take
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, Kind, PartitionState, State
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.watermark import MOST_MARKS, Mark
from airflow_provider_slshudi.transaction.context import Run
from tests.databases import postgres_server

NAME, PREFIX = "ad_events", "event_date="
BEGAN, HOUR = 1_700_000_000 // 3_600 * 3_600, 3_600
BASE = 1_447_299_607_892_300_000
RANGES, BEHIND, AT_ONCE = 10, 100, 1_000
MOST_SECONDS, MOST_GROWTH = 0.1, 1.5
Cost = tuple[float, float, float]
"""CPU seconds of this process and of the database's server, and seconds."""


@dataclass
class Place:
    """A ledger, and the server behind it, if there is one."""

    database: str
    engine: Engine
    server: int | None

    def cpu(self) -> float:
        """CPU seconds so far of this process."""
        return time.process_time()

    def server_cpu(self) -> float:
        """CPU seconds so far of the server's processes that live."""
        if self.server is None:
            return 0.0
        mine = psutil.Process(self.server)
        times = [process.cpu_times() for process in (mine, *mine.children(recursive=True))]
        return float(sum(item.user + item.system for item in times))

    def cost(self, act: Callable[[], object]) -> Cost:
        """What an act costs."""
        cpu, server, wall = self.cpu(), self.server_cpu(), time.monotonic()
        act()
        return self.cpu() - cpu, self.server_cpu() - server, time.monotonic() - wall


@contextmanager
def places(directory: Path) -> Iterator[list[Place]]:
    """A ledger in a file of SQLite, and one of PostgreSQL."""
    file = open_engine(f"sqlite:///{directory / 'ledger.db'}")
    with postgres_server() as server:
        made = [Place("SQLite", file, None), Place("PostgreSQL", open_engine(server.url), server.pid)]
        for place in made:
            migrate(place.engine)
            Ledger(place.engine).register(NAME, "sls://ads/events", "file:///lake")
        yield made
        for place in made:
            place.engine.dispose()


def fill(place: Place, first: int, last: int) -> None:
    """Adds commits with the places [first, last]."""
    moment = datetime.now(timezone.utc)
    day = {f"{PREFIX}{Periods('hour').at(BEGAN + hour * HOUR).value}": 4_000 for hour in range(24)}
    files = [{"path": f"{path}/{number}.parquet", "rows": 2_000} for path in day for number in range(2)]
    for begin in range(first, last + 1, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, last + 1))
        ids = {number: f"20260101T{number:012}-abcdef" for number in numbers}
        common: dict[str, Any] = {"pipeline": NAME, "kind": Kind.TAIL.value, "state": State.COMMITTED.value, "token": 1}
        common |= {"dag_id": "tail", "run_id": "run", "rows": 96_000, "bytes": 1 << 26, "manifest": {"files": files}}
        common |= {"created": moment, "changed": moment, "heartbeat": moment, "partitions": day}
        rows = [
            {**common, "id": id_, "instant": f"{number:017}", "completed": f"{number:017}", "place": number}
            for number, id_ in ids.items()
        ]
        ranges = [
            {
                "transaction_id": id_,
                "shard": shard,
                "begin_cursor": BASE + number,
                "end_cursor": BASE + number + 1,
                "gap": False,
            }
            for number, id_ in ids.items()
            for shard in range(RANGES)
        ]
        with place.engine.begin() as connection:
            connection.execute(insert(models.transactions), rows)
            connection.execute(insert(models.ranges), ranges)
            connection.execute(update(models.pipelines).values(places=numbers[-1], folded=numbers[-1]))


def hand_on(place: Place, commits: int, consumers: int, behind: int) -> Cost:
    """The median cost of a take and its confirmation, of consumers that are so many commits behind."""
    ledger, costs = Ledger(place.engine), []
    for number in range(consumers):
        name, run = f"{behind}-behind-{number}", Run("consumer", f"run-{number}")
        ledger.subscribe(NAME, name, Feed.COMMITS, 0, 0)
        ledger.move(NAME, name, commits - behind)

        def next_ones(name: str = name, run: Run = run) -> None:
            changes = take(ledger, NAME, name, run, lambda _: None)
            if changes is None or len(changes.commits) != behind:
                raise RuntimeError(f"{name} was given {changes}")
            ledger.confirm(NAME, name, changes.last, changes.nonce)

        costs.append(place.cost(next_ones))
    return median(costs)


def fill_shards(place: Place, shards: int, partitions: int) -> None:
    """Adds shards with all the marks that they may have, and complete partitions."""
    now = BEGAN + partitions * HOUR
    marks = [[BASE + 1_000_000 + number, now + number] for number in range(MOST_MARKS)]
    moment = datetime.now(timezone.utc)
    state = {"state": PartitionState.COMPLETE.value, "rows": 1, "commits": 1, "times": 1, "gaps": 0, "place": 1}
    state |= {"kind": Kind.TAIL.value, "opened": 0, "completed": moment, "pipeline": NAME}
    periods = [Periods("hour").at(BEGAN + number * HOUR) for number in range(partitions)]
    proof = zlib.compress(json.dumps({shard: BASE for shard in range(shards)}).encode())
    done = {"pipeline": NAME, "times": 1, "place": 1, "rows": 1, "gaps": 0, "proof": proof, "at": moment}
    with place.engine.begin() as connection:
        connection.execute(
            insert(models.shards),
            [
                {
                    "pipeline": NAME,
                    "shard": shard,
                    "status": "readwrite",
                    "hash_begin": f"{shard:032x}",
                    "hash_end": f"{shard + 1:032x}",
                    "first": BASE,
                    "last_end": BASE + 2_000_000,
                    "marks": marks,
                }
                for shard in range(shards)
            ],
        )
        covered = [
            {"pipeline": NAME, "shard": shard, "begin_cursor": BASE, "end_cursor": BASE + 1_000_000}
            for shard in range(shards)
        ]
        connection.execute(insert(models.coverage), covered)
        rows = [{**state, "value": item.value, "begin": item.begin, "end": item.end} for item in periods]
        connection.execute(insert(models.partitions), rows)
        numbered = [{**done, "number": number, "value": item.value} for number, item in enumerate(periods, 1)]
        connection.execute(insert(models.completions), [{**item, "watermark": now} for item in numbered])
        values = {"looked": now, "began": BEGAN, "passed": now}
        connection.execute(update(models.pipelines).values(values))


def fold(place: Place, commits: int, shards: int, partitions: int, rounds: int) -> dict[str, Cost]:
    """The median costs of keeping a look, and of folding a commit."""
    ledger, looks, folds = Ledger(place.engine), [], []
    now = BEGAN + partitions * HOUR
    for number in range(1, rounds + 1):
        fill(place, commits + number, commits + number)
        with place.engine.begin() as connection:
            connection.execute(update(models.pipelines).values(folded=commits + number - 1))
        end, looked = BASE + 2_000_000 + number, now + 60 * number
        marks = {shard: [Mark(end, looked)] for shard in range(shards)}
        looks.append(place.cost(partial(ledger.save_look, NAME, looked, marks)))
        folds.append(place.cost(lambda: ledger.fold(NAME, Periods("hour"), PREFIX, 600, None, [])))
    return {"look": median(looks), "fold": median(folds)}


def median(costs: Sequence[Cost]) -> Cost:
    """Of each part of the costs."""
    cpu, server, wall = (statistics.median(part) for part in zip(*costs, strict=True))
    return cpu, server, wall


def told(what: str, cost: Cost) -> None:
    """Prints a line of figures."""
    cpu, server, wall = (f"{1_000 * seconds:8.1f}" for seconds in cost)
    print(f"{what:58}{cpu} ms of CPU{server} ms of the server's{wall} ms", flush=True)


def main() -> int:
    """Measures and prints; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    most, growth = 0.0, 1.0
    with tempfile.TemporaryDirectory(prefix="slshudi-consumers-") as directory, places(Path(directory)) as made:
        for place in made:
            there, first = 0, dict[int, float]()
            for commits in sorted(given.commits):
                fill(place, there + 1, commits)
                there = commits
                for behind in (1, BEHIND):
                    cost = hand_on(place, commits, given.consumers, behind)
                    told(f"{place.database}, {commits:,} commits, {behind} taken and confirmed", cost)
                    most = max(most, cost[0])
                    growth = max(growth, cost[0] / first.setdefault(behind, cost[0]))
            fill_shards(place, given.shards, given.partitions)
            for what, cost in fold(place, there, given.shards, given.partitions, given.rounds).items():
                told(f"{place.database}, {given.shards:,} shards, {given.partitions:,} partitions, a {what}", cost)
    print(
        f"consumers: the next commits cost at most {most:.3f} CPU s (bar: {MOST_SECONDS}), {growth:.2f} times as much "
        f"after {max(given.commits):,} commits as after {min(given.commits):,} (bar: {MOST_GROWTH})"
    )
    return 0 if most <= MOST_SECONDS and growth <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
