"""The ledger's server dies or is taken back, and a replica takes its place that had not heard of all.

The replication is the databases' own. PostgreSQL's clients know both servers; MySQL's know one address, which a proxy
leads to the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import LedgerError, LedgerLost, LedgerUnavailable, TransientError
from airflow_provider_slshudi.ledger.engine import open_engine, transaction
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import steps
from tests.crash.cases import Step
from tests.crash.world import Line, World
from tests.databases import DatabaseServer, MariadbServer, PostgresServer, mariadb_server, postgres_server
from tests.scenarios import Scenario
from tests.waiting import until
from tests.wire import Wire, wire_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.local.process import LocalSls

pytestmark = pytest.mark.long


class Ledgers:
    """A pipeline's ledger on two servers, of which the second takes over.

    Args:
        line: the pipeline.
        primary: the first server.
        replica: the second one.
        way: leads to the one that has the ledger, where clients know one address alone.
    """

    def __init__(self, line: Line, primary: DatabaseServer, replica: DatabaseServer, way: Wire | None) -> None:
        self.line, self._primary, self._replica, self._way = line, primary, replica, way

    def cut_off(self) -> None:
        """What is committed from now on does not reach the replica."""
        until("the replica has all", lambda: self._replica.has_all_of(self._primary))
        self._replica.stop()

    def fail_over(self) -> None:
        """The first server dies; the second one goes on with what it has."""
        self._primary.kill()
        self._replica.start()
        self._replica.promote()
        if self._way is not None:
            self._way.leads_to = self._replica.port


@pytest.fixture(params=["postgresql", "mysql"])
def ledgers(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, server: LocalSls) -> Iterator[Ledgers]:
    way: Wire | None = None
    primary: DatabaseServer
    replica: DatabaseServer
    with ExitStack() as stack:
        if request.param == "postgresql":
            primary, replica = pair = stack.enter_context(postgresql_pair())
            url = _url(*pair)
        else:
            first, replica = stack.enter_context(mariadb_pair())
            primary, way = first, stack.enter_context(wire_to(first.port))
            url = first.at(way.port)
        world = World(tmp_path, spark, server, tmp_path.name.replace("_", "-"), database=url)
        yield Ledgers(stack.enter_context(world.line("line")), primary, replica, way)


@contextmanager
def postgresql_pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server and its replica."""
    with postgres_server() as primary, postgres_server(primary) as replica:
        yield primary, replica


@contextmanager
def mariadb_pair() -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """A server and its replica, which has its databases."""
    with mariadb_server() as primary, mariadb_server(primary) as replica:
        until("the replica has all", lambda: replica.has_all_of(primary))
        yield primary, replica


def _url(*servers: PostgresServer) -> str:
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in servers)
    return f"postgresql+psycopg://postgres@/postgres?{hosts}"


def again(act: Callable[[], object]) -> None:
    """As Airflow does: the first one finds that its connection is gone."""
    try:
        act()
    except TransientError:
        act()


def test_a_replica_that_lacks_the_last_mark_finds_the_commit_on_the_table(ledgers: Ledgers) -> None:
    line = ledgers.line
    prepared = line.before(Step.COMMIT)
    assert prepared is not None
    ledgers.cut_off()
    steps.commit(line.work, prepared.id, prepared.token)
    ledgers.fail_over()
    until("the ledger answers", lambda: line.work.ledger.get(prepared.id).state is State.PREPARED)
    assert line.settle("run-2") == ["MARK_COMMITTED"]
    line.ends_well()


def test_a_replica_that_never_heard_of_a_committed_batch_is_refused_until_it_is_rebuilt(ledgers: Ledgers) -> None:
    line = ledgers.line
    ledgers.cut_off()
    line.next_run("run-1")
    ledgers.fail_over()
    with pytest.raises(LedgerLost, match="slshudi ledger rebuild"):
        again(lambda: line.settle("run-2"))
    rebuild(line.work)
    line.ends_well()


def test_a_batch_under_way_that_the_replica_never_heard_of_is_read_again_once_it_is_rebuilt(ledgers: Ledgers) -> None:
    line = ledgers.line
    ledgers.cut_off()
    opened = line.before(Step.APPEND)
    assert opened is not None
    steps.append(line.work, opened.id, opened.token)
    ledgers.fail_over()
    with pytest.raises(LedgerError, match=opened.id):
        again(lambda: steps.record(line.work, opened.id, opened.token))
    # The instant may be one of another ledger, which goes on.
    with pytest.raises(LedgerLost, match="slshudi ledger rebuild"):
        line.settle("run-2")
    rebuild(line.work)
    line.ends_well()


def test_who_looks_sees_the_server_that_writes_and_a_replica_only_where_there_is_none() -> None:
    def look() -> int:
        """The port of the server that answers those who look, though the replica is named first."""
        engine = open_engine(_url(replica, primary), writes=False)
        try:
            with transaction(engine, write=False) as connection:
                return int(connection.exec_driver_sql("SELECT inet_server_port()").scalar_one())
        finally:
            engine.dispose()

    with postgresql_pair() as (primary, replica):
        assert look() == primary.port
        primary.kill()
        assert look() == replica.port


def test_mysql_is_left_where_it_becomes_a_replica_though_its_sessions_go_on(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.ledger.engine._LOOK_SECONDS", 0)

    def look() -> int:
        with transaction(looking, write=False) as connection:
            return int(connection.exec_driver_sql("SELECT @@port").scalar_one())

    with mariadb_pair() as (primary, replica), wire_to(primary.port) as way:
        made, looking = scenario(ledger_url=primary.at(way.port)), open_engine(primary.at(way.port), writes=False)
        assert look() == primary.port
        made.put(20)
        prepared = made.prepare(made.by("run-1"))
        until("the replica has all", lambda: replica.has_all_of(primary))
        primary.demote()
        # Nobody is led elsewhere yet.
        with pytest.raises(LedgerUnavailable, match="knows less"):
            steps.commit(made.by("run-1"), prepared.id, prepared.token)
        replica.promote()
        way.leads_to = replica.port
        # In the same process, whose pools have sessions of the old server.
        assert look() == replica.port
        steps.commit(made.by("run-1"), prepared.id, prepared.token)
        assert verify(made.work, source=True).rows == 20
        assert made.work.ledger.get(prepared.id).state is State.COMMITTED
        looking.dispose()


def test_mysql_that_takes_no_changes_is_for_those_who_look(caplog: pytest.LogCaptureFixture) -> None:
    with mariadb_pair() as (_, replica):
        for url in (replica.url, replica.at(replica.port, "root")):
            writing, looking = open_engine(url), open_engine(url, writes=False)
            with pytest.raises(LedgerUnavailable, match="knows less"), transaction(writing, write=False):
                pass
            with transaction(looking, write=False) as connection:
                assert connection.exec_driver_sql("SELECT @@read_only").scalar_one() == 1
            looking.dispose()
    assert not caplog.records
