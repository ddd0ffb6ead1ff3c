"""Two hundred pipelines, a thousand shards and ten thousand transactions behind an Airflow that serves pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from sqlalchemy import Engine, insert

from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine, transaction
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, SeenInstant, SeenTimeline
from airflow_provider_slshudi.planning.ranges import Range
from tests.airflow.pages.served import ServedAirflow
from tests.machine import connection, write_pipeline
from tests.seen import GROUP, committed, looked, planned, registered, saw

WIDE, LONG = "mine_wide", "mine_long"
"""The pipeline of a thousand shards, and the one of ten thousand transactions."""
PIPELINES, SHARDS, TRANSACTIONS = 200, 1_000, 10_000
_HOUR, _DAY, INSTANT = 3_600, 86_400, "20260131080000000"
_DAGS = """
from pathlib import Path

from airflow.sdk import DAG
from airflow_provider_slshudi.dag.factories import tail_dag
from airflow_provider_slshudi.dag.operations import backfill_dag, override_dag, repair_dag, verify_dag

for file in sorted(Path({folder!r}).glob("*.yaml")):
    globals()[file.stem] = tail_dag(file.stem)
for make in (backfill_dag, repair_dag, override_dag, verify_dag):
    globals()[make.__name__] = make({wide!r})
"""


@dataclass(frozen=True)
class World:
    """A serving Airflow; of WIDE, `live` is a transaction that waits, `done` one that is committed, and `hour` a
    partition that a later batch opened."""

    airflow: ServedAirflow
    live: str
    done: str
    hour: str


@contextmanager
def world(place: Path) -> Iterator[World]:
    """The world in a folder of its own."""
    for folder in ("pipelines", "dags"):
        (place / folder).mkdir(parents=True)
    names = [WIDE, LONG, *(f"mine_{number:03d}" for number in range(PIPELINES - 2))]
    for name in names:
        write_pipeline(place / "pipelines" / f"{name}.yaml", place / "lake" / name, name=name)
    folder = str(place / "pipelines")
    (place / "dags" / "all.py").write_text(_DAGS.format(folder=folder, wide=WIDE), encoding="utf-8")
    file = place / "ledger.db"
    engine = open_engine(f"sqlite:///{file}")
    migrate(engine)
    ledger = Ledger(engine)
    for at, name in enumerate(names[2:]):
        _small(ledger, name, at)
    live, done = _wide(ledger)
    hour = _hours(ledger, engine)
    registered(ledger, LONG, end=TRANSACTIONS + 1)
    _history(engine)
    committed(ledger, LONG, [Range(0, TRANSACTIONS, TRANSACTIONS + 1)], "run-now")  # its DAG is known by this run
    saw(ledger, LONG, unread=0)
    environment = {
        "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": folder,
        "AIRFLOW_CONN_SLSHUDI_LEDGER": connection("slshudi_ledger", schema=str(file), extra={"dialect": "sqlite"}),
    }
    with ServedAirflow(place / "airflow", place / "dags", environment) as airflow:
        yield World(airflow, live, done, hour)
    engine.dispose()


def exit_code(wrong: Sequence[str]) -> int:
    """Says what is wrong; 1 if something is."""
    for item in wrong:
        print(f"wrong: {item}", file=sys.stderr)
    return 1 if wrong else 0


def _small(ledger: Ledger, name: str, at: int) -> None:
    """A pipeline of one shard; some need a person, some expire soon, some wait."""
    registered(ledger, name)
    now = int(datetime.now(timezone.utc).timestamp())
    saw(ledger, name, unread=60 - at % 50, came=0, since=at * 7, kept=_DAY, seconds_ago=600)
    saw(ledger, name, unread=at % 40, came=50, since=at * 9 if at % 17 else 80_000, kept=_DAY, seconds_ago=20)
    committed(ledger, name, [Range(0, 0, 100 - at % 40)], "run-1", last_time=now - at * 3)
    if at % 37 == 0:
        ledger.note_trouble(name, f"{name}_tail", "run-2", "plan", "DataExpired", f"shard {at} lost logs", waits=False)
    elif at % 23 == 0:
        ledger.note_trouble(name, f"{name}_tail", "run-2", "settle", "LeaseHeld", "somebody else decides", waits=True)


def _wide(ledger: Ledger) -> tuple[str, str]:
    registered(ledger, WIDE, shards=SHARDS, end=1_000)
    now = int(datetime.now(timezone.utc).timestamp())
    ranges = [Range(id_, 0, 300 + id_ % 500) for id_ in range(SHARDS)]
    written = {f"event_date=2026-01-{day:02}-{hour:02}": 40 * day + hour for day in (30, 31) for hour in range(24)}
    done = committed(ledger, WIDE, ranges, "run-1", now - 950, written)
    committed(ledger, WIDE, [Range(id_, 850, 900) for id_ in range(0, SHARDS, 3)], "run-2", now - 940)
    live = planned(ledger, WIDE, [Range(id_, 300 + id_ % 500, 820) for id_ in range(0, SHARDS, 2)], "run-3")
    ledger.opened(live.id, 1, INSTANT)
    for minutes in range(50, -1, -10):
        seen = {"came": 900, "since": 900, "kept": _DAY, "shards": SHARDS}
        saw(ledger, WIDE, 10_000 * (minutes + 20), seconds_ago=minutes * 60, **seen)
    asked = {str(id_): ["0", "820", 820] for id_ in range(SHARDS)}
    ledger.ask(WIDE, BACKFILL, "ada", "everything", f"{WIDE}_backfill/old-logs", asked)
    message = "shard 7 no longer holds the log groups [120, 300), which were never read"
    instants = {str(done.instant): SeenInstant("COMPLETED", done.completed), INSTANT: SeenInstant("INFLIGHT", None)}
    begin = str(done.instant)
    ledger.save_timeline(WIDE, SeenTimeline(ledger.now(), f"{WIDE}_tail/run-4", begin, begin, instants))
    ledger.note_trouble(WIDE, f"{WIDE}_tail", "run-4", "plan", "DataExpired", message, waits=False)
    return live.id, done.id


def _hours(ledger: Ledger, engine: Engine) -> str:
    """The last forty days' hours of WIDE, and consumers of these and of commits; returns an hour that is open again."""
    newest = int(ledger.now().timestamp()) // _HOUR * _HOUR
    rows, completions = [], []
    for ago in range(40 * 24):
        begin = newest - ago * _HOUR
        done = datetime.fromtimestamp(begin + _HOUR + 700 + ago % 60, timezone.utc)
        state = "open" if ago < 2 else "partial" if ago == 40 * 24 - 1 else "reopened" if ago % 50 == 7 else "complete"
        row = {"pipeline": WIDE, "value": f"{datetime.fromtimestamp(begin, timezone.utc):%Y-%m-%d-%H}"}
        told = {"rows": 1_000 * (ago % 90), "gaps": int(ago % 40 == 9), "place": 1 + ago % 2}
        times = {"times": int(state in ("complete", "reopened")), "completed": done if ago >= 2 else None}
        rows.append(row | told | times | {"begin": begin, "end": begin + _HOUR, "state": state, "commits": 3})
        if times["times"]:
            completions.append(row | told | {"times": 1, "watermark": begin + _HOUR + 650, "proof": b"", "at": done})
    for number, completion in enumerate(reversed(completions), 1):
        completion["number"] = number
    with transaction(engine, write=True) as connection:
        connection.execute(insert(models.partitions), [row | {"kind": "tail", "opened": 0} for row in rows])
        connection.execute(insert(models.completions), completions)
    ledger.subscribe(WIDE, "hourly_sums", Feed.PARTITIONS, len(completions) - 30, 7 * _DAY)
    ledger.subscribe(WIDE, "upserts", Feed.COMMITS, 0, 2 * _DAY)
    ledger.subscribe(WIDE, "search", Feed.COMMITS, None, _DAY)
    ledger.take(WIDE, "hourly_sums", 24, f"east|{WIDE}_hourly/scheduled__2026-01-31T08:00:00+00:00")
    looked(ledger, WIDE, newest - 900, dict.fromkeys(range(SHARDS), 300))
    return next(str(row["value"]) for row in rows if row["state"] == "reopened")


def _history(engine: Engine) -> None:
    """Ten thousand committed batches of one log group, put into the tables as the steps would leave them."""
    begin = datetime.now(timezone.utc) - timedelta(seconds=60 * TRANSACTIONS)
    transactions, ranges, events = [], [], []
    for at in range(TRANSACTIONS):
        created = begin + timedelta(seconds=60 * at)
        id_ = f"{created:%Y%m%dT%H%M%S%f}-{at:06x}"
        instant, changed = f"{created:%Y%m%d%H%M%S}000", created + timedelta(seconds=9)
        row = {"id": id_, "pipeline": LONG, "kind": "tail", "state": "COMMITTED", "token": 1, "instant": instant}
        row |= {"dag_id": f"{LONG}_tail", "run_id": f"run-{at}", "rows": 10, "bytes": GROUP, "error": None}
        row |= {"created": created, "changed": changed, "heartbeat": changed, "completed": instant[:-1] + "5"}
        transactions.append(row | {"manifest": {"files": 1, "stored": 400, "misfits": {}, "unfit": 0}})
        ranges.append({"transaction_id": id_, "shard": 0, "begin_cursor": at, "end_cursor": at + 1, "gap": False})
        for seconds, state in enumerate(("PLANNED", "OPEN", "PREPARED", "COMMITTED")):
            moment = created + timedelta(seconds=3 * seconds)
            events.append({"transaction_id": id_, "at": moment, "what": state, "detail": "{}"})
    with transaction(engine, write=True) as connection:
        connection.execute(insert(models.transactions), transactions)
        connection.execute(insert(models.ranges), ranges)
        connection.execute(insert(models.events), events)
        covered = {"pipeline": LONG, "shard": 0, "begin_cursor": 0, "end_cursor": TRANSACTIONS}
        connection.execute(insert(models.coverage).values(covered))
