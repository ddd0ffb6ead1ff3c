"""`python -m tests.soak.splits --histories 1000 --seed 7`: upserts without an ordering field while shards are split.

A logstore begins with one shard for each history. A history has keys of its own, whose hash keys lie within those of
its shard, and that shard and those after it are split and merged at random. Batches of drawn sizes leave a backlog, and
processes are killed. Once everything is read each key has to hold its last put, by hudi-rs and by Spark.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from bisect import bisect
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import PROJECT
from tests.sessions import start_spark
from tests.soak.upsert import LOGSTORE, REGIONS, Outcome, Soak
from tests.upserts import Change, Key, put, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER = 50
"""Histories of one logstore; the service has at most 256 shards in one."""
ROUNDS = 12
"""Of puts and changes of shards in a logstore."""
CRASHES = 0.15
"""Share of the rounds in which a process is killed."""
CHANGED, LATER = 0.15, 0.5
"""Shares of the histories that split or merge in a round, and of the rounds without a batch."""
_SIZES = (1, 2_000, 10_000, 50_000, 1 << 30)
"""Bytes of a batch, drawn for each."""
_MOST_BATCHES = 300


class Histories(Soak):
    """So many histories in one logstore and one table."""

    def __init__(self, folder: Path, spark: SparkSession, server: LocalSls, outcome: Outcome, count: int) -> None:
        super().__init__(folder, spark, server, outcome, count, ordering_field=None)
        self._begins = [int(shard["inclusiveBeginKey"], 16) for shard in self._open_shards()]
        ends = [*self._begins[1:], 1 << 128]
        self._hash_keys: dict[Key, str] = {}
        for history, (begin, end) in enumerate(zip(self._begins, ends, strict=True)):
            for number in range(self._rng.randrange(1, 6)):
                key = self._rng.choice(REGIONS), f"h{history}-{number}"
                self._hash_keys[key] = f"{self._rng.randrange(begin, end):032x}"
        self._last: dict[Key, Change] = {}

    def run(self, rounds: int) -> int:
        """Carries the histories out; gives the shards there were."""
        outcome = self._outcome
        for number in range(rounds):
            self._change_shards()
            self._put()
            if self._rng.random() < CRASHES:
                self._read_at_most(_SIZES[-1])
                settle(self._by(f"before-{number}"), lambda other: True)
                print(f"{number:4} {self._crash(next(self._cases), f'crash-{number}')}", flush=True)
                outcome.crashes += 1
            elif self._rng.random() >= LATER:
                self._read_at_most(self._rng.choice(_SIZES))
                self._healthy(f"run-{number}")
        for number in range(_MOST_BATCHES):
            self._read_at_most(self._rng.choice(_SIZES))
            self._healthy(f"last-{number}")
            if plan.tail(self._by("look")) is None:
                break
        else:
            outcome.faults.append(f"after {_MOST_BATCHES} batches there is something unread")
        # A compaction that was killed is the maintenance's to end.
        self._serve("service")
        outcome.batches = len(self._work.ledger.last(self._pipeline.name, 10_000))
        outcome.faults += self._faults()
        return len(self._client.list_shards(PROJECT, LOGSTORE).get_shards_info())

    def _read_at_most(self, size: int) -> None:
        pipeline = self._pipeline.model_copy(update={"batch": Batch(max_bytes=size)})
        self._work = replace(self._work, pipeline=pipeline)

    def _open_shards(self) -> list[dict[str, Any]]:
        """Those that take puts, in the order of their hash keys."""
        shards = self._client.list_shards(PROJECT, LOGSTORE).get_shards_info()
        taking = [shard for shard in shards if shard["status"] == "readwrite"]
        return sorted(taking, key=lambda shard: str(shard["inclusiveBeginKey"]))

    def _history(self, shard: dict[str, Any]) -> int:
        return bisect(self._begins, int(shard["inclusiveBeginKey"], 16)) - 1

    def _change_shards(self) -> None:
        """Splits and merges shards, each within its history; often what they hold is unread."""
        shards = self._open_shards()
        merged: set[int] = set()
        for shard, right in zip(shards, [*shards[1:], None], strict=True):
            if shard["shardID"] in merged or self._rng.random() >= CHANGED:
                continue
            if right is not None and self._history(shard) == self._history(right) and self._rng.random() < 0.5:
                self._client.merge_shard(PROJECT, LOGSTORE, shard["shardID"])
                merged.add(right["shardID"])
            else:
                begin, end = int(shard["inclusiveBeginKey"], 16), int(shard["exclusiveEndKey"], 16)
                middle = f"{self._rng.randrange(begin + 1, end):032x}"
                self._client.split_shard(PROJECT, LOGSTORE, shard["shardID"], middle)

    def _put(self) -> None:
        """Puts a few values of some keys, each put by itself."""
        for key in self._rng.sample(sorted(self._hash_keys), len(self._hash_keys) // 2):
            for _ in range(self._rng.randrange(1, 8)):
                self._outcome.changes += 1
                number, at = self._outcome.changes, self._rng.randrange(1 << 40)
                change = Change(key[1], at, key[0], number, is_deleted=self._rng.random() < 0.1)
                put(self._client, self._pipeline, [change], hash_key=self._hash_keys[key])
                self._last[key] = change

    def _follow(self) -> None:
        """What a batch read is of no matter: only the end is asked for."""

    def _expected(self) -> list[tuple[Any, ...]]:
        return sorted_rows(change.row for change in self._last.values() if not change.is_deleted)


def histories(
    folder: Path, spark: SparkSession, type_: str, count: int, seed: int, rounds: int = ROUNDS
) -> tuple[Outcome, int]:
    """Carries so many histories of one logstore out; gives what happened, and the shards there were."""
    outcome, began = Outcome(seed, type_), time.monotonic()
    with LocalSls(folder / "sls") as server:
        shards = Histories(folder, spark, server, outcome, count).run(rounds)
    outcome.seconds = time.monotonic() - began
    return outcome, shards


def unordered() -> ExitStack:
    """Within it no shard waits for an older one, as if plans did not know of splits."""
    stack = ExitStack()
    stack.enter_context(patch.object(plan, "waiting", lambda shards: frozenset()))
    return stack


def main() -> int:
    """Runs them; the exit code says whether each key held its last put."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.splits", description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--unordered", action="store_true", help="no shard waits: shows that histories find it")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    spark, wrong, totals = start_spark(), 0, [0, 0, 0, 0]
    with ExitStack() as stack:
        if options.unordered:
            stack.enter_context(unordered())
        for number, first in enumerate(range(0, options.histories, TOGETHER)):
            count, type_ = min(TOGETHER, options.histories - first), ("merge_on_read", "copy_on_write")[number % 2]
            with tempfile.TemporaryDirectory(prefix="slshudi-splits-") as folder:
                outcome, shards = histories(Path(folder), spark, type_, count, options.seed + number)
            print(f"{outcome}, {count} histories, {shards} shards", flush=True)
            for fault in outcome.faults:
                print(fault, file=sys.stderr)
            wrong += not outcome.ok
            for place, value in enumerate((outcome.changes, shards, outcome.batches, outcome.crashes)):
                totals[place] += value
    changes, shards, batches, crashes = totals
    print(
        f"splits: {options.histories} histories, {changes} puts, {shards} shards, {batches} batches, {crashes} with a "
        f"SIGKILL: {wrong} logstores with a key that is not its last put (seed {options.seed})"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
