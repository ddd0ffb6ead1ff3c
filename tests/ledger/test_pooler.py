"""A ledger behind a real pgbouncer, which lends its sessions by the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals, State
from airflow_provider_slshudi.planning.ranges import Range
from tests.databases import pooled, postgres_server

NAME, TURNS, THREADS = "clicks", 12, 4


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server() as server, pooled(server) as found:
        yield found


def test_turns_of_several_processes_go_on_as_with_sessions_of_their_own(url: str) -> None:
    engines = [open_engine(url) for _ in range(THREADS)]
    migrate(engines[0])
    Ledger(engines[0]).register(NAME, "sls://p/l", "file:///t")

    def turn(number: int) -> State:
        ledger = Ledger(engines[number % THREADS])
        item = Range(number, 0, 10)
        with ledger.lease(NAME, f"run-{number}", 60, 60):
            begun = ledger.begin(NAME, Kind.BACKFILL, [item], "dag", f"run-{number}")
        ledger.opened(begun.id, 1, f"{number:017d}")
        ledger.heartbeat(begun.id, 1)
        ledger.prepared(begun.id, 1, {}, [RangeTotals(item, 1, 1, None, None)])
        with ledger.lease(NAME, f"run-{number}", 60, 60):
            return ledger.committed(begun.id, 1, f"{number + 1:017d}").state

    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(turn, range(TURNS))) == {State.COMMITTED}
    assert len(Ledger(engines[1]).coverage(NAME)) == TURNS
    for engine in engines:
        engine.dispose()


def test_limits_hold_in_every_transaction_and_stay_in_none(url: str) -> None:
    limits = text("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
    engine, other = open_engine(url), open_engine(url)
    for one in (engine, other, engine):
        with one.begin() as connection:
            statements, locks = connection.execute(limits).one()
        assert statements != "0" and locks != "0"
    with engine.connect() as connection:
        plain = connection.connection.driver_connection
        assert plain is not None
        assert plain.execute("SELECT current_setting('statement_timeout')").fetchone() == ("0",)
    for one in (engine, other):
        one.dispose()


def test_the_ledger_s_clock_is_read_through_it(url: str) -> None:
    engine = open_engine(url)
    ledger = Ledger(engine)
    assert ledger.now() - ledger.now() < timedelta(seconds=5)
    engine.dispose()
