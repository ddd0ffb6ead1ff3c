"""One Airflow for all tests of the pages, with two pipelines whose names and values are hostile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Feed, SeenInstant, SeenTimeline, Transaction
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from tests.airflow.pages.served import ServedAirflow
from tests.machine import connection, write_pipeline
from tests.seen import committed, looked, planned, registered, saw

MINE, THEIRS = "mine_clicks", "theirs_views"
FOREIGN = "mine_foreign"
"""A DAG that everybody may read, and that carries the tag of THEIRS."""
HOUR, AIRFLOW = f"{datetime.now(timezone.utc) - timedelta(hours=2):%Y-%m-%d-%H}", "east"
"""A partition that MINE wrote to and that ended, and the name of the Airflow that serves."""
HOSTILE = "<script>alert('x')</script>\"'&{{ 7*7 }}"


@dataclass
class World:
    """A serving Airflow and its ledger. `mine` and `theirs` are transactions of the two pipelines."""

    airflow: ServedAirflow
    ledger: Ledger
    ledger_file: Path
    mine: Transaction
    theirs: Transaction


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("pages")
    for folder in ("pipelines", "dags"):
        (place / folder).mkdir()
    lines = [
        "from airflow.sdk import DAG",
        "from airflow_provider_slshudi import backfill_dag, fleet_dag, operations_dag",
        "from airflow_provider_slshudi import override_dag, repair_dag, tail_dag",
        "",
    ]
    for name in (MINE, THEIRS):
        write_pipeline(place / "pipelines" / f"{name}.yaml", place / "lake" / name, name=name)
        lines.append(f"{name} = tail_dag({name!r})")
    lines += [f"fleet = fleet_dag({[MINE, THEIRS]!r}, 'all_clicks')"]
    lines += [f"foreign = DAG({FOREIGN!r}, tags=['slshudi:{THEIRS}'])"]
    lines += ["other = DAG('mine_other')", f"backfills = backfill_dag({MINE!r})"]
    lines += [f"repairs = repair_dag({MINE!r})", f"overrides = override_dag({MINE!r})"]
    lines += [f"operations = operations_dag({THEIRS!r})", f"gone = backfill_dag({THEIRS!r})"]
    (place / "dags" / "all.py").write_text("\n".join(lines), encoding="utf-8")
    file = place / "ledger.db"
    engine = open_engine(f"sqlite:///{file}")
    migrate(engine)
    ledger = Ledger(engine)
    for name in (MINE, THEIRS):
        registered(ledger, name, shards=3)
        saw(ledger, name, unread=300, since=600, kept=86_400, seconds_ago=60, shards=3)
        saw(ledger, name, unread=200, came=30, since=500, shards=3)
        ledger.note_trouble(name, f"{name}_tail", f"run {HOSTILE}", "plan", "DataExpired", HOSTILE, waits=False)
    written = {f"event_date={value}": 7 for value in (HOUR, HOSTILE)}
    mine = committed(ledger, MINE, [Range(0, 0, 50), Range(1, 0, 100)], f"run-1 {HOSTILE}", partitions=written)
    looked(ledger, MINE, int(ledger.now().timestamp()), {0: 50, 1: 100, 2: 0})
    ledger.fold(MINE, Periods("hour"), "event_date=", 0, None, [])
    for consumer, its_airflow in ((f"ours {HOSTILE}", AIRFLOW), (f"theirs {HOSTILE}", HOSTILE)):
        ledger.subscribe(MINE, consumer, Feed.COMMITS, 0, 86_400)
        ledger.take(MINE, consumer, 1, f"{its_airflow}|{MINE}_hourly/run-1")
    ledger.save_new_keys(MINE, mine.id, 512, {HOSTILE: 37}, {HOSTILE: [HOSTILE]}, frozenset())
    ledger.note(mine.id, HOSTILE, {HOSTILE: HOSTILE})
    instants = {str(mine.instant): SeenInstant("COMPLETED", mine.completed)}
    ledger.save_timeline(MINE, SeenTimeline(ledger.now(), f"{MINE}_tail/run-2", "0", "0", instants))
    ledger.ask(MINE, BACKFILL, HOSTILE, HOSTILE, f"{MINE}_backfill/old", {"2": ["0", "100", 100]})
    theirs = planned(ledger, THEIRS, [Range(0, 0, 10)], "run-1")
    environment = {
        f"AIRFLOW_VAR_{settings.AIRFLOW_NAME.upper()}": AIRFLOW,
        "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(place / "pipelines"),
        "AIRFLOW_CONN_SLSHUDI_LEDGER": connection("slshudi_ledger", schema=str(file), extra={"dialect": "sqlite"}),
    }
    with ServedAirflow(place / "airflow", place / "dags", environment) as airflow:
        # As Airflow does once the file makes it no more.
        code = (
            "from airflow.models.dag import DagModel\nfrom airflow.utils.session import create_session\n"
            f"with create_session() as session: session.get(DagModel, '{THEIRS}_backfill').is_stale = True"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env=airflow.environment)
        yield World(airflow, ledger, file, mine, theirs)
    engine.dispose()
