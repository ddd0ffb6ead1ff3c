"""Drawn histories against the local server: real plans of the tail, in the time of this machine, without Spark.

The lateness is chosen so that the last hour becomes due within seconds; what a batch reads, the ledger alone is told.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.downstream.completeness import complete
from airflow_provider_slshudi.ledger.records import PartitionState, RangeTotals, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import plan, start_positions
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.downstream.drawn_service import Log, Shard
from tests.downstream.history import NAME, WatchedLedger, hour_of, time_of
from tests.downstream.truth import HOUR, Truth, too_late
from tests.ledgers import quick_engine
from tests.local.sdk import by_ip, groups_of
from tests.machine import bounds, shard_ids
from tests.pipelines import ad_events
from tests.scenarios import PROJECT

_KEYS = 1 << 128
_DUE_SECONDS = 4


@dataclass
class ServedHistory:
    """One history over a logstore of its own; `run` gives what is wrong.

    Args:
        seed: what is drawn.
        folder: for the ledger's file.
        server: has the project.
    """

    seed: int
    folder: Path
    server: LocalSls
    figures: Counter[str] = field(default_factory=Counter)

    def run(self) -> list[str]:
        self.rng, self.faults, self.batches = random.Random(self.seed), list[str](), list[Transaction]()
        self.client, self.logstore = by_ip(self.server.connection()), f"history-{self.seed}"
        self.client.create_logstore(PROJECT, self.logstore, ttl=7, shard_count=self.rng.randrange(1, 4))
        now = int(time.time())
        # The hour that ended last is due in a moment.
        self.hour = (now // HOUR - 1) * HOUR
        lateness = now + _DUE_SECONDS - (self.hour + HOUR)
        partition = {"by": "event_time", "column": "event_time", "every": "hour", "lateness": f"{lateness}s"}
        self.pipeline = ad_events(
            self.folder,
            table={"path": f"file://{self.folder}/lake", "name": NAME, "partition": partition},
            source={"project": PROJECT, "logstore": self.logstore, "start": "begin"},
            batch={"max_bytes": self.rng.choice((5_000, 10**9))},
        )
        with quick_engine(self.folder) as engine, pytest.MonkeyPatch.context() as patch:
            # There is no table, so no timeline that agrees with the ledger.
            for guard in ("require_agreement", "require_fit"):
                patch.setattr(plan, guard, lambda *_: None)
            patch.setattr(start_positions, "keep", lambda _: None)
            self.ledger = WatchedLedger(engine)
            self.truth = Truth([], lateness, "begin")
            while time.time() < now + 3 * _DUE_SECONDS and not self.faults:
                self._act()
            self._drain()
        return self.faults

    def _act(self) -> None:
        acts = [self._put, self._tail, self._look, self._commit, self._commit, self._shards, self._abort]
        self.rng.choices(acts, (8, 5, 2, 4, 4, 1, 0.5))[0]()
        time.sleep(self.rng.choice((0, 0.1, 0.5)))

    def _put(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            event = self.hour + self.rng.randrange(-HOUR, 2 * HOUR)
            item = LogItem(event, contents=[("ts", str(event * 1_000))])
            key = f"{self.rng.randrange(_KEYS):032x}"
            self.client.put_logs(PutLogsRequest(PROJECT, self.logstore, "ads", "10.0.0.1", [item], hashKey=key))

    def _shards(self) -> None:
        shards = self.client.list_shards(PROJECT, self.logstore).get_shards_info()
        writable = [item for item in shards if item["status"] == "readwrite"]
        writable.sort(key=lambda item: str(item["inclusiveBeginKey"]))
        if len(shards) > 10:
            return
        if len(writable) > 1 and self.rng.random() < 0.4:
            self.client.merge_shard(PROJECT, self.logstore, writable[0]["shardID"])
        else:
            chosen = self.rng.choice(writable)
            first, last = int(chosen["inclusiveBeginKey"], 16), int(chosen["exclusiveEndKey"], 16)
            self.client.split_shard(PROJECT, self.logstore, chosen["shardID"], f"{(first + last) // 2:032x}")

    def _work(self) -> Work:
        self.figures["runs"] += 1
        run = Run("tail", f"run-{self.figures['runs']}")
        return Work(self.pipeline, self.ledger, None, self._connect, run)  # type: ignore[arg-type]

    def _connect(self) -> LogService:
        return LogService(self.server.connection(), PROJECT, self.logstore)

    def _tail(self) -> bool:
        planned = plan.tail(self._work()) if len(self.batches) < 3 else None
        if planned is not None:
            self.batches.append(planned)
        self._complete()
        return planned is not None

    def _look(self) -> None:
        if self.ledger.looks:
            plan.has_news(self._work())
            self._complete()

    def _commit(self) -> None:
        if not self.batches:
            return
        batch = self.batches.pop(self.rng.randrange(len(self.batches)))
        ranges = self.ledger.ranges(batch.id)
        self._see()
        logs = {shard.id: shard for shard in self.truth.shards}
        hours = Counter(
            hour_of(logs[item.shard].log(cursor).event) for item in ranges for cursor in range(item.begin, item.end)
        )
        self.figures["commits"] += 1
        self.ledger.opened(batch.id, batch.token, f"{self.figures['commits']:017}")
        totals = [RangeTotals(item, len(item), len(item) * 100, 1, 2) for item in ranges]
        partitions = {f"event_date={value}": count for value, count in hours.items()}
        self.ledger.prepared(batch.id, batch.token, {}, totals, partitions=partitions)
        self.ledger.committed(batch.id, batch.token, f"{self.figures['commits']:017}")
        self.truth.commit(ranges)
        self._complete()

    def _abort(self) -> None:
        if self.batches:
            batch = self.batches.pop()
            self.ledger.aborted(batch.id, batch.token, "drawn")

    def _see(self) -> None:
        """Asks the service for all logs that it has, and when it received them."""
        service, known = self._connect(), {shard.id: shard for shard in self.truth.shards}
        for id_ in shard_ids(self.client, PROJECT, self.logstore):
            begin, end = bounds(self.client, PROJECT, self.logstore, id_)
            shard = known.get(id_) or Shard(id_, 0, 0, begin, 0.0, 0.0)
            if id_ not in known:
                self.truth.shards.append(shard)
            groups = [*groups_of(self.client, PROJECT, self.logstore, id_)][: end - begin]
            for cursor in range(shard.last, end):
                event = groups[cursor - begin].Logs[0].Time
                shard.logs.append(Log(service.received(id_, cursor), event))

    def _complete(self) -> None:
        completions = complete(self.ledger, self.pipeline)
        # What the service receives from here on is not before the watermark.
        self._see()
        known = {shard.id: shard for shard in self.ledger.shards(NAME)}
        for item in completions:
            self.figures["completed"] += 1
            self.faults += self.truth.too_early(item, int(time_of(item.value)), known)
        self.truth.looks = self.ledger.looks[-10:]
        if (could_be := self.truth.could_be(known)) is not None:
            rows = self.ledger.partitions(NAME, -(1 << 40), 1 << 40)
            since = self.ledger.looks[0].looked + 60
            self.faults += too_late(rows, since, could_be, self.truth.lateness, lambda _: False)

    def _drain(self) -> None:
        while not self.faults and (self.batches or self._tail()):
            self._commit()
        time.sleep(7)
        self._tail()
        rows = self.ledger.partitions(NAME, self.hour, self.hour + 1)
        if not self.faults and any(item.state is not PartitionState.COMPLETE for item in rows):
            self.faults.append(f"all is read, and {rows} are not complete")
