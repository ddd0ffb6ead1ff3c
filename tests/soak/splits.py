"""Upserts without an ordering field while shards are split and merged, and processes are killed.

A logstore begins with one shard for each history. A history has keys of its own, whose hash keys lie within those of
its shard, and that shard and those after it are split and merged at random. Batches of drawn sizes leave a backlog.
Once everything is read each key has to hold its last put.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.transaction import plan
from tests.exact.outcome import Outcome
from tests.exact.world import log_service
from tests.scenarios import PROJECT
from tests.soak.upsert import LOGSTORE, REGIONS, Soak
from tests.upserts import Change, Key, put, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def __init__(
        self, folder: Path, spark: SparkSession, server: LocalSls, outcome: Outcome, type_: str, seed: int, count: int
    ) -> None:
        super().__init__(folder, spark, server, outcome, type_, seed, count, ordering_field=None)
        self._begins = [int(shard["inclusiveBeginKey"], 16) for shard in self._open_shards()]
        ends = [*self._begins[1:], 1 << 128]
        self._hash_keys: dict[Key, str] = {}
        for history, (begin, end) in enumerate(zip(self._begins, ends, strict=True)):
            for number in range(self._rng.randrange(1, 6)):
                key = self._rng.choice(REGIONS), f"h{history}-{number}"
                self._hash_keys[key] = f"{self._rng.randrange(begin, end):032x}"
        self._last: dict[Key, Change] = {}

    def run(self, rounds: int) -> None:
        """Carries the histories out, and compares the table in the end."""
        figures = self._outcome.figures
        for number in range(rounds):
            self._change_shards()
            self._put()
            if self._rng.random() < CRASHES:
                self._read_at_most(_SIZES[-1])
                self.settle(f"before-{number}")
                print(f"{number:4} {self._crash(next(self._cases), f'crash-{number}')}", flush=True)
                figures["with a SIGKILL"] += 1
            elif self._rng.random() >= LATER:
                self._read_at_most(self._rng.choice(_SIZES))
                self._healthy(f"run-{number}")
        for number in range(_MOST_BATCHES):
            self._read_at_most(self._rng.choice(_SIZES))
            self._healthy(f"last-{number}")
            if plan.tail(self.by("look")) is None:
                break
        else:
            self._outcome.wrong.append(f"after {_MOST_BATCHES} batches there is something unread")
        # A compaction that was killed is the maintenance's to end.
        self._serve("service")
        figures["batches"] = len(self.work.ledger.last(self._pipeline.name, 10_000))
        figures["histories"] = len(self._begins)
        figures["shards"] = len(self._client.list_shards(PROJECT, LOGSTORE).get_shards_info())
        self._outcome.match(self.count())

    def _read_at_most(self, size: int) -> None:
        pipeline = self._pipeline.model_copy(update={"batch": Batch(max_bytes=size)})
        self.work = replace(self.work, pipeline=pipeline)

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

    def put(self, count: int) -> None:
        """Puts a few values of so many keys, each put by itself."""
        for key in self._rng.sample(sorted(self._hash_keys), count):
            for _ in range(self._rng.randrange(1, 8)):
                self._outcome.logs += 1
                number, at = self._outcome.logs, self._rng.randrange(1 << 40)
                change = Change(key[1], at, key[0], number, is_deleted=self._rng.random() < 0.1)
                put(self._client, self._pipeline, [change], hash_key=self._hash_keys[key])
                self._last[key] = change

    def _put(self) -> None:
        self.put(len(self._hash_keys) // 2)

    def _follow(self) -> None:
        """What a batch read is of no matter: only the end is asked for."""

    def _expected(self) -> list[tuple[Any, ...]]:
        return sorted_rows(change.row for change in self._last.values() if not change.is_deleted)


def soak(
    folder: Path, spark: SparkSession, type_: str, count: int, seed: int, outcome: Outcome, rounds: int = ROUNDS
) -> None:
    """Carries so many histories of one logstore out."""
    with log_service(folder) as server:
        Histories(folder, spark, server, outcome, type_, seed, count).run(rounds)


@contextmanager
def unordered() -> Iterator[None]:
    """Within it no shard waits for an older one, as if plans did not know of splits."""
    with patch.object(plan, "waiting", lambda shards: frozenset()):
        yield
