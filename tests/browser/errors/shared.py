"""Errors of what all pipelines share: the ledger's database. Each is played alone."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.views.advice import advice
from tests.browser.errors.play import Scenarios
from tests.browser.errors.stage import Stage
from tests.browser.errors.world import World
from tests.databases import PostgresServer
from tests.ledgers import ledger_in
from tests.waiting import until
from tests.worlds.host import clock_library

SCENARIOS = Scenarios()


def _database(world: World) -> PostgresServer:
    assert world.database is not None, "it needs a ledger whose server can be ended"
    return world.database


@SCENARIOS.of("LedgerUnavailable", alone=True)
def ledger_unavailable(stage: Stage) -> str:
    """The database is ended, and started again."""
    stage.before()
    stage.put(50)
    database = _database(stage.world)
    database.stop()
    try:
        run = stage.begin()
        _page_says(stage, "LedgerUnavailable")
        until(
            "the run waits",
            lambda: "up_for_reschedule" in stage.world.airflow.tasks(stage.tail, run).values(),
            explain=lambda: stage.world.airflow.tasks(stage.tail, run),
        )
    finally:
        database.start()
        stage.world.engine.dispose()
    stage.succeeds(run)
    stage.is_well()
    return "nothing: the run goes on once the database is back"


@SCENARIOS.of("LedgerDenied", alone=True)
def ledger_denied(stage: Stage) -> str:
    """The ledger's file is taken from the user of the pipelines."""
    world, file = stage.world, stage.world.home / f"{stage.name}.db"
    shared, url = world.engine, world.engine.url.render_as_string(hide_password=False)
    with ledger_in(file):
        world.engine = open_engine(f"sqlite:///{file}")
        world.connect_ledger(f"sqlite:///{file}")
        try:
            stage.before()
            stage.put(50)
            world.engine.dispose()
            file.chmod(0)
            run = stage.begin()
            _page_says(stage, "LedgerDenied")
            assert stage.ended(run) == "failed"
            file.chmod(0o600)
            stage.goes_on()
        finally:
            world.engine.dispose()
            world.engine = shared
            world.connect_ledger(url)
    return "give the file to the user of the pipelines, run now"


@SCENARIOS.of("ClockAhead", alone=True)
def clock_ahead(stage: Stage) -> str:
    """The clock of the database's machine is three hours behind."""
    stage.before()
    stage.put(50)
    database = _database(stage.world)
    database.stop()
    with pytest.MonkeyPatch.context() as there:
        there.setenv("LD_PRELOAD", str(clock_library(stage.world.home)))
        there.setenv("WORLDS_CLOCK_AHEAD", str(-3 * 3600))
        database.start()
    try:
        run = stage.run_now()
        stage.sees("ClockAhead", "Correct the wrong clock")
    finally:
        database.stop()
        database.start()
        stage.world.engine.dispose()
    stage.ended(run)  # one of its retries may have found the right time
    stage.goes_on()
    return "correct the clock, run now"


def _page_says(stage: Stage, error: str) -> None:
    """The ledger cannot tell of failures, so the page itself says what is wrong, and what to do."""
    page = stage.window.pipeline(stage.name, 503)
    shown = page.inner_text("main")
    assert error in shown and "The ledger could not be read" in shown, shown
    assert f"What to do: {advice(error).text}" in shown, shown
