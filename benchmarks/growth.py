"""What plan, record, commit and settle cost over the number of shards and over the length of the history.

    python benchmarks/growth.py [--shards 10 100 1000 5000] [--history 0 10000 1000000] [--rounds 3] [--json FILE]

The steps are the package's own, on a ledger in SQLite and a table on a local disk. Two things are left out because
they are measured elsewhere: the log service is a process of its own that answers each request after 5 ms, and where a
step would start Spark, the files that its driver leaves are written at once. Seconds and CPU seconds are of the
process that runs the steps; its peak memory is taken for each step.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import multiprocessing
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
from sqlalchemy import Engine, delete, event, insert, text

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.handover.batch_files import Attempt, Manifest, Owner, RangeDone
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.instant_metadata import PIPELINE_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import FOLDER
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import register, settle

STEPS = ("settle", "plan", "record", "commit")
LATENCY = 0.005
BASE = 1_447_299_607_892_300_000  # cursors of the service have 19 digits
GROUPS, ROWS, BYTES = 1_000, 100_000, 60_000_000  # of one range
RANGES_A_FILE = 10
ACTIVE = 30  # commits on the active timeline: archival keeps as many, however old the table is
PLAN_SECONDS = 2.0
_COMMIT = {
    "type": "record",
    "name": "Commit",
    "fields": [
        {"name": "operationType", "type": "string"},
        {"name": "extraMetadata", "type": {"type": "map", "values": "string"}},
    ],
}


class Source:
    """The log service in a process of its own; `shards` and the cursor at which all end can be changed."""

    def __init__(self) -> None:
        self.shards = multiprocessing.Value("q", 0)
        self.end = multiprocessing.Value("q", BASE)
        self.requests = multiprocessing.Value("q", 0)
        here, there = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self._run, args=(there,), daemon=True)
        self.process.start()
        self.endpoint = f"127.0.0.1:{here.recv()}"

    def _run(self, ready: Any) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: Any) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].decode()
            except asyncio.IncompleteReadError:
                break
            self.requests.value += 1
            await asyncio.sleep(LATENCY)
            body = json.dumps(self._answer(line)).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}x-log-requestid: A\r\n\r\n".encode() + body)
        writer.close()

    def _answer(self, line: str) -> Any:
        if "type=cursor" in line:
            return {"cursor": cursors.text(BASE if "from=begin" in line else self.end.value)}
        width = 2**128 // self.shards.value
        return [
            {
                "shardID": number,
                "status": "readwrite",
                "inclusiveBeginKey": f"{number * width:032x}",
                "exclusiveEndKey": f"{(number + 1) * width - 1:032x}",
                "createTime": 1_700_000_000,
            }
            for number in range(self.shards.value)
        ]


class DriverFiles:
    """Leaves what a step's Spark driver would leave, without Spark, Hudi or data."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._instant = storage, ""

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        """Does so."""
        instant = order.instant or f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}"[:17]
        if verb is Verb.OPEN:
            owner = Owner(order.transaction, order.pipeline["name"], order.token)
            batch_files.write_owner(self._storage, instant, owner)
            self._storage.write(f"{FOLDER}/{instant}.commit.requested", b"")
        elif verb is Verb.APPEND:
            self._storage.write(f"{FOLDER}/{instant}.inflight", b"")
            batch_files.write_manifest(self._storage, self._manifest(order))
        elif verb is Verb.COMMIT:
            attempt = Attempt(self._storage, order.transaction, instant, order.token)
            attempt.manifest()
            extra = attempt.read_extra(order.extra)
            complete(self._storage, instant, extra)

    def _manifest(self, order: JobOrder) -> Manifest:
        batch = Attempt(self._storage, order.transaction, order.instant, order.token).order(order.digest)
        done = [
            RangeDone(shard, begin, end, rows=ROWS, bytes=BYTES, first_time=1, last_time=2)
            for shard, begin, end in batch.ranges
        ]
        stats = []
        for first in range(0, len(done), RANGES_A_FILE):
            rows = ROWS * len(done[first : first + RANGES_A_FILE])
            path = f"event_date=2026-01-01/{first:036d}-0_{first}-0-{first}_{order.instant}.parquet"
            stat = {"fileId": f"{first:036d}-0", "path": path, "partitionPath": "event_date=2026-01-01"}
            stats.append({**stat, "prevCommit": "null", "numWrites": rows, "numInserts": rows, "fileSizeInBytes": rows})
        return Manifest(order.transaction, order.token, order.instant, stats, done)


def complete(storage: Storage, instant: str, extra: Mapping[str, str]) -> None:
    """Puts a completed commit on the timeline."""
    content = io.BytesIO()
    fastavro.writer(content, _COMMIT, [{"operationType": "BULK_INSERT", "extraMetadata": dict(extra)}])
    storage.write(f"{FOLDER}/{instant}_{int(instant) + 1}.commit", content.getvalue())


@dataclass(frozen=True)
class Place:
    """A ledger with a past, and a table with the end of it on its timeline."""

    directory: Path
    history: int
    source: Source

    @contextmanager
    def work(self, shards: int) -> Iterator[tuple[Work, Engine]]:
        """What the steps work with, on a logstore of so many shards that are read up to its present end."""
        pipeline = Pipeline.model_validate(
            {
                "name": "ad_events",
                "source": {"project": "ads", "logstore": "events", "start": "begin"},
                "table": {"path": f"file://{self.directory}/{self.history}", "name": "ad_events"},
                "columns": [{"name": "event_id"}],
                "batch": {"max_bytes": "100TiB"},
            }
        )
        engine = open_engine(f"sqlite:///{self.directory}/{self.history}.db")
        migrate(engine)
        storage = Storage(pipeline.table.path)

        def connect() -> LogService:
            return LogService(SlsConnection(self.source.endpoint, "id", Secret("key")), "ads", "events")

        work = Work(pipeline, Ledger(engine), DriverFiles(storage), connect, Run("tail", "first"))
        register(work)
        self.source.shards.value = shards
        with engine.begin() as connection:
            for table in (models.coverage, models.shards):
                connection.execute(delete(table))
            if self.source.end.value > BASE:
                row = {"pipeline": "ad_events", "begin_cursor": BASE, "end_cursor": self.source.end.value}
                connection.execute(insert(models.coverage), [row | {"shard": number} for number in range(shards)])
        try:
            yield work, engine
        finally:
            engine.dispose()


_HISTORY = (
    """INSERT INTO slshudi_transaction (id, pipeline, kind, state, token, instant, dag_id, run_id, manifest, rows,
    bytes, created, changed, heartbeat, completed)
    WITH RECURSIVE past(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM past WHERE n + 1 < :count)
    SELECT '20250101T' || printf('%012d', n) || '-000000', 'ad_events', 'tail', 'COMMITTED', 1,
    '2025' || printf('%013d', n), 'tail', 'run-' || n, '{}', 1, 1, :at, :at, :at, '2025' || printf('%013d', n + 1)
    FROM past""",
    """INSERT INTO slshudi_range (transaction_id, shard, begin_cursor, end_cursor, gap, rows, bytes)
    SELECT id, shard, :base, :base + 1, 0, 1, 1 FROM slshudi_transaction, (SELECT 0 AS shard UNION ALL SELECT 1)""",
    """INSERT INTO slshudi_event (transaction_id, at, what, detail)
    SELECT id, :at, what, '' FROM slshudi_transaction,
    (SELECT 'PREPARED' AS what UNION ALL SELECT 'COMMITTED')""",
)


def make_history(place: Place) -> None:
    """Inserts the past transactions, each with two ranges and two events, and puts the last ones on the timeline."""
    values = {"count": place.history, "base": BASE, "at": "2025-01-01 00:00:00.000000"}
    with place.work(1) as (_, engine), engine.begin() as connection:
        for statement in _HISTORY if place.history else ():
            names = re.findall(r":([a-z]+)", statement)
            connection.execute(text(statement), {name: values[name] for name in names})
    with place.work(1) as (work, _):
        for past in work.ledger.last("ad_events", ACTIVE):
            extra = {TRANSACTION_KEY: past.id, PIPELINE_KEY: "ad_events"}
            complete(work.storage, str(past.instant), extra)


def measure(place: Place, shards: int, rounds: int, answer: Any) -> None:
    """Sends the figures of one cell; runs in a process of its own, whose memory is what is measured."""
    with place.work(shards) as (work, engine):
        found: dict[str, list[dict[str, float]]] = {step: [] for step in STEPS}
        sizes: dict[str, float] = {}
        statements = [0]
        event.listen(engine, "before_cursor_execute", lambda *_: statements.__setitem__(0, statements[0] + 1))

        def timed(step: str, run: Callable[[], Any]) -> Any:
            before = statements[0], place.source.requests.value
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
            wall, cpu = time.perf_counter(), time.process_time()
            result = run()
            figures = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "mb": _peak()}
            figures |= {"sql": statements[0] - before[0], "requests": place.source.requests.value - before[1]}
            found[step].append(figures)
            return result

        for number in range(rounds + 1):
            mine = replace(work, run=Run("tail", f"{shards}-{number}-{os.getpid()}"))
            with place.source.end.get_lock():
                place.source.end.value += GROUPS
            timed("settle", partial(settle, mine, lambda run: True))
            planned = timed("plan", partial(plan.tail, mine))
            instant = steps.open_instant(mine, planned.id, planned.token)
            steps.append(mine, planned.id, planned.token)
            written = Path(work.storage.full(f"{fencing.folder(instant)}/manifest-{planned.token}.json"))
            sizes["manifest_bytes"] = written.stat().st_size
            recorded = timed("record", partial(steps.record, mine, planned.id, planned.token))
            timed("commit", partial(steps.commit, mine, planned.id, planned.token))
            sizes["ledger_manifest_bytes"] = len(json.dumps(recorded.manifest))
            sizes["extra_bytes"] = _extra_bytes(work.storage, instant)
            _forget_oldest(work.storage)
        # The first round makes connections and saves the shards.
        answer.send(
            {
                "shards": shards,
                "history": place.history,
                **sizes,
                **{
                    step: {name: statistics.median(item[name] for item in items[1:]) for name in items[0]}
                    for step, items in found.items()
                },
            }
        )


def _peak() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    kib = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib / 1024


def _extra_bytes(storage: Storage, instant: str) -> int:
    content = storage.read(f"{FOLDER}/{instant}_{int(instant) + 1}.commit")
    record: Any = next(iter(fastavro.reader(io.BytesIO(content or b""))))
    return sum(len(key) + len(value) for key, value in record["extraMetadata"].items())


def _forget_oldest(storage: Storage) -> None:
    """Archival's part: the active timeline stays as long as it is."""
    names = sorted(storage.names(FOLDER) or [])
    for name in [name for name in names if not name.endswith(".commit")] + names[:-ACTIVE]:
        storage.delete(f"{FOLDER}/{name}")


def exponent(cells: Sequence[Mapping[str, Any]], step: str, what: str) -> float:
    """The slope of a straight line through the logarithms: 1 where the cost grows as the number of shards."""
    points = [(math.log(cell["shards"]), math.log(cell[step][what])) for cell in cells]
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def report(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Prints the table and the verdicts; returns the latter."""
    print(
        f"{'shards':>6} {'history':>9}" + "".join(f"{step + ' s':>11}{'CPU':>7}{'MB':>5}{'SQL':>4}" for step in STEPS)
    )
    for cell in cells:
        line = "".join("{seconds:>11.3f}{cpu:>7.3f}{mb:>5.0f}{sql:>4.0f}".format(**cell[step]) for step in STEPS)
        print(f"{cell['shards']:>6} {cell['history']:>9}{line}")
    longest, shortest = max(cell["history"] for cell in cells), min(cell["history"] for cell in cells)
    old = [cell for cell in cells if cell["history"] == longest]
    new = {cell["shards"]: cell for cell in cells if cell["history"] == shortest}
    verdicts: dict[str, Any] = {"exponent": {}, "history_ratio": {}}
    for step in STEPS:
        if len(old) > 1:
            verdicts["exponent"][step] = round(exponent(old[1:] if len(old) > 2 else old, step, "seconds"), 2)
        ratios = [cell[step]["cpu"] / new[cell["shards"]][step]["cpu"] for cell in old]
        verdicts["history_ratio"][step] = round(statistics.geometric_mean(ratios), 2)
    print(f"exponent over shards: {verdicts['exponent']}")
    print(f"CPU with {longest:,} past transactions, with {shortest:,} as 1: {verdicts['history_ratio']}")
    for cell in old:
        kib = {name: f"{cell[name] / 1024:.0f} KiB" for name in cell if name.endswith("_bytes")}
        print(f"{cell['shards']} shards: {cell['plan']['requests']:.0f} requests, {kib}")
    thousand = next((cell for cell in old if cell["shards"] == 1_000), old[-1])
    verdicts["plan_seconds"] = round(thousand["plan"]["seconds"], 3)
    print(
        f"planning {thousand['shards']:,} shards over {longest:,} past transactions takes "
        f"{verdicts['plan_seconds']:.2f} s (bar: {PLAN_SECONDS:.0f} s)"
    )
    return verdicts


def main() -> int:
    """Prints the table; the last line is the figure of the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[10, 100, 1_000, 5_000])
    parser.add_argument("--history", type=int, nargs="+", default=[0, 10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3, help="batches whose median counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    cells = []
    with tempfile.TemporaryDirectory(prefix="slshudi-growth-") as directory:
        source = Source()
        for history in sorted(given.history):
            place = Place(Path(directory), history, source)
            started = time.monotonic()
            make_history(place)
            print(f"{history:,} past transactions made in {time.monotonic() - started:.0f} s", file=sys.stderr)
            for shards in sorted(given.shards):
                here, there = multiprocessing.Pipe()
                child = multiprocessing.Process(target=measure, args=(place, shards, given.rounds, there))
                child.start()
                there.close()
                try:
                    cells.append(here.recv())
                except EOFError:
                    return 2  # the child has said why
                child.join()
        source.process.terminate()
    verdicts = report(cells)
    if given.json:
        given.json.write_text(json.dumps({"cells": cells, **verdicts}, indent=1), encoding="utf-8")
    return 0 if verdicts["plan_seconds"] < PLAN_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
