"""What else happens to a pipeline: faults of the service, shards that split and merge, backfills beside the tail."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, get_args

from aliyun.log import LogClient

from airflow_provider_slshudi.local.faultplan import Kind
from tests.chaos.place import PROJECT, Line, Place
from tests.local.sdk import by_ip
from tests.machine import all_cursors

READS = ["pull_logs", "get_cursor", "list_shards"]
KINDS = [kind for kind in get_args(Kind) if kind != "pass"]
FINAL = {"deleted_shard", "expired_token"}
"""What no retry mends: a batch fails by one of these, where it takes several of the others."""
WRITABLE, MOST_SHARDS = (1, 4), 24
_KEYS = 1 << 128
_log = logging.getLogger(__name__)


class Unrest:
    """`step` does what is due; `done` counts. What fails because of a kill is left for the next time."""

    def __init__(self, place: Place, seed: str, pause: float) -> None:
        self.done: Counter[str] = Counter()
        self._place, self._rng = place, random.Random(seed)
        errands = ((self._change_faults, pause), (self._change_shards, 4 * pause), (self._backfill, 3 * pause))
        self._errands = {errand: [mean, self._after(mean)] for errand, mean in errands}
        # Calls wait for whoever is killed or stopped; nobody shall wait for them.
        self._pool, self._running = ThreadPoolExecutor(1), Future[None]()
        self._running.set_result(None)

    def step(self) -> None:
        """Starts one errand that is due, if none is under way."""
        for errand, times in self._errands.items():
            if self._running.done() and time.monotonic() > times[1]:
                times[1] = self._after(times[0])
                self._running = self._pool.submit(self._try, errand)

    def end(self) -> None:
        """Waits for the last errand; no fault is made any more."""
        self._pool.shutdown()
        self._place.server.faults = None

    def _after(self, mean: float) -> float:
        return time.monotonic() + self._rng.expovariate(1 / mean)

    def _try(self, errand: Callable[[], None]) -> None:
        try:
            errand()
        except Exception as error:
            _log.info("%s: %s", errand.__name__, error)

    def _change_faults(self) -> None:
        """A calm time, or a share of reads that fail in some of the ways there are. Puts are left alone."""
        rules: list[dict[str, Any]] = []
        if self._rng.random() < 0.7:
            kinds = self._rng.sample(KINDS, 3)
            share = self._rng.uniform(0.01, 0.1)
            rules = [
                {"operations": READS, "do": kind, "probability": share / 10 if kind in FINAL else share, "seconds": 0.5}
                for kind in kinds
            ]
        self._place.server.faults = {"seed": self._rng.randrange(1 << 16), "rules": rules}

    def _change_shards(self) -> None:
        line = self._line()
        client = self._client()
        shards = client.list_shards(PROJECT, line.name).get_shards_info()
        writable = [shard for shard in shards if shard["status"] == "readwrite"]
        if len(shards) >= MOST_SHARDS:
            return
        chosen = self._rng.choice(writable)
        if len(writable) <= WRITABLE[0] or (len(writable) < WRITABLE[1] and self._rng.random() < 0.5):
            first, last = int(chosen["inclusiveBeginKey"], 16), int(chosen["exclusiveEndKey"], 16)
            client.split_shard(PROJECT, line.name, chosen["shardID"], f"{(first + last) // 2:032x}")
            self.done["splits"] += 1
        else:
            left = min(writable, key=lambda shard: shard["inclusiveBeginKey"])
            client.merge_shard(PROJECT, line.name, left["shardID"])
            self.done["merges"] += 1

    def _backfill(self) -> None:
        """All that there is: committed, being appended by the tail, and new."""
        line = self._line()
        asked = all_cursors(self._place.ledger, self._client(), line.name, PROJECT, line.name)
        if asked:
            self._place.airflow.trigger(line.dags[1], {"cursors": asked})
            self.done["backfills"] += 1

    def _line(self) -> Line:
        return self._rng.choice(self._place.lines)

    def _client(self) -> LogClient:
        return by_ip(self._place.server.connection())
