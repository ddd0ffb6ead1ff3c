"""Errors that a button puts right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.ledger import lease, models, registration
from airflow_provider_slshudi.ledger.engine import transaction
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage
from tests.browser.errors.world import NEVER, PROJECT
from tests.ledgers import ledger_in
from tests.transaction.damage import some_rows, write_as_somebody_else
from tests.waiting import until

SCENARIOS = Scenarios()


@SCENARIOS.of("DataExpired")
def data_expired(stage: Stage) -> str:
    """Logs expire before a run reads them."""
    stage.before()
    stage.put(50, lost=True)
    service = stage.world.client
    end = service.get_end_cursor(PROJECT, stage.logstore, 0).get_cursor()
    service.update_logstore(PROJECT, stage.logstore, ttl=1, shard_count=1)
    until(
        "the service has dropped them",
        lambda: service.get_begin_cursor(PROJECT, stage.logstore, 0).get_cursor() == end,
    )
    service.update_logstore(PROJECT, stage.logstore, ttl=NEVER, shard_count=1)
    stage.put(50)
    stage.fails(stage.run_now())
    failure = stage.sees("DataExpired", "no longer holds")
    stage.act(Act.ACCEPT_GAP, failure)
    stage.succeeds(stage.run_now())
    stage.is_well()
    assert "planned as a gap" in stage.window.page.inner_text("main")
    stage.goes_on()
    return "accept gap, run now"


@SCENARIOS.of("ForeignWrite")
def foreign_write(stage: Stage) -> str:
    """Another client commits rows of its own."""
    stage.before()
    with stage.built() as pipeline:
        rows = some_rows(pipeline, 10, lambda key: f"foreign-{key}")
        ids = [f"foreign-{number}" for number in range(rows.num_rows)]
        rows = rows.set_column(rows.schema.get_field_index("event_id"), "event_id", pa.array(ids))
        write_as_somebody_else(stage.world.spark, pipeline, rows)
    stage.put(50)
    stage.fails(stage.run_now())
    failure = stage.sees("ForeignWrite", "did not write instant")
    assert "1 committed" in stage.act(Act.REBUILD_LEDGER, failure)
    stage.wanted.update(ids)  # they were meant
    stage.goes_on()
    return "rebuild ledger"


@SCENARIOS.of("LedgerLost")
def ledger_lost(stage: Stage) -> str:
    """The ledger is a backup from before the pipeline's first batch."""
    stage.before()
    with transaction(stage.world.engine, write=True) as connection:
        registration._forget(connection, stage.name)
    stage.put(50)
    stage.fails(stage.begin())
    _rebuilt(stage, "LedgerLost")
    return "pause, rebuild ledger, unpause"


@SCENARIOS.of("LedgerAhead")
def ledger_ahead(stage: Stage) -> str:
    """The table is a backup from before the newest batch."""
    stage.before()
    backup = stage.table.with_name(f"{stage.name}.backup")
    shutil.copytree(stage.table, backup)
    stage.before(50)
    shutil.rmtree(stage.table)
    backup.rename(stage.table)
    stage.fails(stage.run_now())
    _rebuilt(stage, "LedgerAhead")
    return "pause, rebuild ledger, unpause"


def _rebuilt(stage: Stage, error: str) -> None:
    stage.sees(error)
    stage.pause()
    stage.act(Act.REBUILD_LEDGER, stage.sees(error))
    stage.unpause()
    stage.goes_on()


@SCENARIOS.of("RangesDoubled")
def ranges_doubled(stage: Stage) -> str:
    """A second ledger, that of a version which did not look at the table, commits the first batch again."""
    stage.before()
    backup = stage.table.with_name(f"{stage.name}.backup")
    shutil.copytree(stage.table, backup)
    stage.put(50)
    with stage.built("elsewhere") as pipeline, _careless(), ledger_in(stage.world.home / f"{stage.name}.db") as other:
        there = replace(pipeline, work=pipeline.by("elsewhere", ledger=other))
        prepared = there.prepare(there.work)
        steps.commit(there.work, prepared.id, prepared.token)
    stage.fails(stage.run_now())
    stage.sees("LedgerLost")
    stage.pause()
    result = stage.act(Act.REBUILD_LEDGER, stage.sees("LedgerLost"), works=False)
    assert result.startswith("RangesDoubled: "), result
    shutil.rmtree(stage.table)
    backup.rename(stage.table)
    advised = stage.window.page.locator("td").filter(has_text="restore the table and its quarantine")
    stage.act(Act.REBUILD_LEDGER, advised.last)
    stage.unpause()
    stage.goes_on()
    return "pause, restore the table, rebuild ledger, unpause"


@contextmanager
def _careless() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as old:
        old.setattr(plan, "require_agreement", lambda work: None)
        old.setattr(steps, "require_known_commits", lambda work: None)
        old.setattr("airflow_provider_slshudi.transaction.resolve.committed_elsewhere", lambda *_: None)
        yield


@SCENARIOS.of("TimelineUnreadable")
def timeline_unreadable(stage: Stage) -> str:
    """The table is not mounted, and comes back; then it is deleted for good."""
    stage.before()
    away = stage.table.with_name(f"{stage.name}.away")
    stage.table.rename(away)
    stage.put(50)
    run = stage.run_now()
    stage.sees("TimelineUnreadable", "there is no table here")
    away.rename(stage.table)
    stage.succeeds(run)
    stage.is_well()
    stage.count()
    shutil.rmtree(stage.table)
    stage.put(50)
    run = stage.run_now()
    failure = stage.sees("TimelineUnreadable", "there is no table here")
    assert stage.act(Act.TABLE_IS_GONE, failure) == "the ledger forgot the table"
    stage.succeeds(run)
    stage.is_well()
    return "mount it, nothing else; deleted for good: table is gone"


@SCENARIOS.of("LeaseHeld")
def lease_held(stage: Stage) -> str:
    """A machine that burnt was deciding."""
    stage.before()
    with stage.world.building, pytest.MonkeyPatch.context() as there:
        there.setattr(lease, "this_process", lambda: "burnt/a-boot/pid:[1]/17/3")
        with transaction(stage.world.engine, write=True) as connection:
            holder = f"{stage.tail}/elsewhere"
            lease.take(connection, models.leases, stage.name, holder, 195, lease.new_nonce(195))
    stage.put(50)
    run = stage.run_now()
    failure = stage.sees("LeaseHeld", f"{stage.tail}/elsewhere decides")
    assert "elsewhere was ended" in stage.act(Act.BREAK_LEASE, failure)
    stage.succeeds(run)
    stage.is_well()
    return "break lease; the run goes on by itself"


@SCENARIOS.of("ReplayUnderWay", misfits="quarantine")
def replay_under_way(stage: Stage) -> str:
    """A replay's driver dies; the next replay finds it undecided."""
    stage.before()
    stage.before(10, price="n/a")
    stage.edit(misfits="nullify")
    stage.stops_at(Point.APPEND_STARTED, "die")
    stage.known()
    stage.window.pipeline(stage.name)
    assert stage.act(Act.REPLAY, works=False).startswith("JobFailed: ")
    result = stage.act(Act.REPLAY, works=False)
    assert result.startswith("ReplayUnderWay: "), result
    advised = stage.window.page.locator("td").filter(has_text="Wait for the replay that is under way")
    assert "ROLL_BACK_AND_ABORT" in stage.act(Act.RECOVER, advised.last)
    assert "moved 10 logs into the table, 0 do not fit" in stage.act(Act.REPLAY)
    stage.goes_on()
    return "recover, replay"


@SCENARIOS.of("ClockBehind")
def clock_behind(stage: Stage) -> str:
    """A machine whose clock was an hour ahead completed the newest instant of the metadata table."""
    stage.before()
    timeline = stage.table / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    newest = max(timeline.glob("*_*.deltacommit"))
    requested, completed = newest.stem.split("_")
    ahead = datetime.strptime(completed, "%Y%m%d%H%M%S%f") + timedelta(hours=1)
    newest.rename(newest.with_name(f"{requested}_{ahead:%Y%m%d%H%M%S}000.deltacommit"))
    for checksum in timeline.glob(f".{newest.name}.crc"):
        checksum.unlink()
    stage.put(50)
    stage.fails(stage.run_now())
    failure = stage.sees("ClockBehind", ".hoodie/metadata: the newest time on its timeline")
    stage.act(Act.REBUILD_METADATA, failure)
    stage.goes_on()
    return "rebuild metadata"


@SCENARIOS.of("JobFailed")
def job_failed(stage: Stage) -> str:
    """The append's driver is killed."""
    stage.before()
    stage.put(50)
    stage.stops_at(Point.APPEND_STARTED, "die")
    stage.fails(stage.run_now())
    failure = stage.sees("JobFailed", "so it was killed")
    assert "ROLL_BACK_AND_ABORT" in stage.act(Act.RECOVER, failure)
    stage.goes_on()
    return "recover"


@SCENARIOS.of("CommitStateUnknown")
def commit_state_unknown(stage: Stage) -> str:
    """The commit's driver is killed before it completes the instant."""
    stage.before()
    stage.put(50)
    stage.stops_at(Point.COMMIT_STARTED, "die")
    stage.fails(stage.run_now())
    failure = stage.sees("CommitStateUnknown", "the next settle recommits it")
    assert "RECOMMIT" in stage.act(Act.RECOVER, failure)
    stage.is_well()
    stage.count()
    stage.goes_on()
    return "recover"


@SCENARIOS.of("ManifestError")
def manifest_error(stage: Stage) -> str:
    """What the append left is deleted before it is recorded."""
    run = stage.run_held_at(Point.APPEND_ENDED)
    (manifest,) = (stage.table / ".hoodie" / "slshudi").rglob("manifest-*.json")
    manifest.unlink()
    stage.release()
    stage.fails(run)
    failure = stage.sees("ManifestError", "no manifest for instant")
    assert "ROLL_BACK_AND_ABORT" in stage.act(Act.RECOVER, failure)
    stage.goes_on()
    return "recover"


@SCENARIOS.of("TableError")
def table_error(stage: Stage) -> str:
    """Somebody takes an instant off the timeline while it is opened."""
    run = stage.run_held_at(Point.OPEN_REQUESTED)
    max((stage.table / ".hoodie" / "timeline").glob("*.requested")).unlink()
    stage.release()
    stage.fails(run)
    failure = stage.sees("TableError", "no instant of transaction")
    assert "ABORT" in stage.act(Act.RECOVER, failure)
    stage.goes_on()
    return "recover"
