"""The ledger's server dies or is taken back, and a replica takes its place that had not heard of all.

The replication is the databases' own. PostgreSQL's clients know both servers; MySQL's know one address, which a proxy
leads to the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_slshudi.exceptions import LedgerError, LedgerLost, LedgerUnavailable, TransientError
from airflow_provider_slshudi.ledger.engine import open_engine, transaction
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol import steps
from airflow_provider_slshudi.protocol.decisions import Decision
from airflow_provider_slshudi.protocol.rebuild import rebuild
from airflow_provider_slshudi.protocol.settle import settle
from airflow_provider_slshudi.protocol.verify import verify
from tests.databases import DatabaseServer, MariadbServer, PostgresServer, mariadb_server, postgres_server
from tests.scenarios import Scenario
from tests.waiting import until
from tests.wire import wire_to

pytestmark = pytest.mark.long


class Ledgers:
    """A ledger's two servers, of which the second takes over.

    Args:
        url: of the ledger, whichever server has it.
        primary: the first one.
        replica: the second one.
        lead: leads new connections to a server's port.
    """

    def __init__(
        self, url: str, primary: DatabaseServer, replica: DatabaseServer, lead: Callable[[int], object]
    ) -> None:
        self.url, self._primary, self._replica, self._lead = url, primary, replica, lead

    def cut_off(self) -> None:
        """What is committed from now on does not reach the replica."""
        until("the replica has all", lambda: self._replica.has_all_of(self._primary))
        self._replica.stop()

    def fail_over(self) -> None:
        """The first server dies; the second one goes on with what it has."""
        self._primary.kill()
        self._replica.start()
        self._replica.promote()
        self._lead(self._replica.port)


class Story:
    """A pipeline with one batch committed and logs waiting, whose ledger is about to fail over."""

    def __init__(self, made: Scenario, ledgers: Ledgers) -> None:
        self.made, self.ledgers, self._put = made, ledgers, 0
        self._put_more()
        made.batch("run-0")
        self._put_more()

    def settle(self, run_id: str) -> list[Decision | None]:
        """What a run's settle decides."""
        return [item.decision for item in settle(self.made.by(run_id), lambda run: True)]

    def ends_well(self) -> None:
        """One more batch, and all that was put is there once."""
        self._put_more()
        self.made.batch("run-last")
        assert verify(self.made.work, source=True).rows == self._put

    def _put_more(self) -> None:
        self.made.put(20, first=self._put)
        self._put += 20


@contextmanager
def of_postgresql() -> Iterator[Ledgers]:
    with postgres_server() as primary, postgres_server(primary) as replica:
        yield Ledgers(_url(primary, replica), primary, replica, lambda port: None)


@contextmanager
def of_mysql() -> Iterator[Ledgers]:
    with mariadb_server() as primary, mariadb_server(primary) as replica, wire_to(primary.port) as way:
        yield Ledgers(primary.at(way.port), primary, replica, lambda port: setattr(way, "leads_to", port))


def _url(*servers: PostgresServer) -> str:
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in servers)
    return f"postgresql+psycopg://postgres@/postgres?{hosts}"


@pytest.fixture(params=[of_postgresql, of_mysql], ids=["postgresql", "mysql"])
def story(request: pytest.FixtureRequest, scenario: Callable[..., Scenario]) -> Iterator[Story]:
    with request.param() as ledgers:
        yield Story(scenario(ledger_url=ledgers.url), ledgers)


def again(act: Callable[[], object]) -> None:
    """As Airflow does: the first one finds that its connection is gone."""
    try:
        act()
    except TransientError:
        act()


def test_a_replica_that_lacks_the_last_mark_finds_the_commit_on_the_table(story: Story) -> None:
    made = story.made
    prepared = made.prepare(made.by("run-1"))
    story.ledgers.cut_off()
    steps.commit(made.by("run-1"), prepared.id, prepared.token)
    story.ledgers.fail_over()
    until("the ledger answers", lambda: made.work.ledger.get(prepared.id).state is State.PREPARED)
    assert story.settle("run-2") == [Decision.MARK_COMMITTED]
    story.ends_well()


def test_a_replica_that_never_heard_of_a_committed_batch_is_refused_until_it_is_rebuilt(story: Story) -> None:
    story.ledgers.cut_off()
    story.made.batch("run-1")
    story.ledgers.fail_over()
    with pytest.raises(LedgerLost, match="slshudi ledger rebuild"):
        again(lambda: story.settle("run-2"))
    rebuild(story.made.work)
    story.ends_well()


def test_a_batch_under_way_that_the_replica_never_heard_of_is_read_again_once_it_is_rebuilt(story: Story) -> None:
    made, mine = story.made, story.made.by("run-1")
    story.ledgers.cut_off()
    opened = made.open(mine)
    steps.append(mine, opened.id, opened.token)
    story.ledgers.fail_over()
    with pytest.raises(LedgerError, match=opened.id):
        again(lambda: steps.record(mine, opened.id, opened.token))
    # The instant may be one of another ledger, which goes on.
    with pytest.raises(LedgerLost, match="slshudi ledger rebuild"):
        story.settle("run-2")
    rebuild(made.work)
    story.ends_well()


def test_who_looks_sees_the_server_that_writes_and_a_replica_only_where_there_is_none() -> None:
    def look() -> int:
        """The port of the server that answers those who look, though the replica is named first."""
        engine = open_engine(_url(replica, primary), writes=False)
        try:
            with transaction(engine, write=False) as connection:
                return int(connection.exec_driver_sql("SELECT inet_server_port()").scalar_one())
        finally:
            engine.dispose()

    with postgres_server() as primary, postgres_server(primary) as replica:
        assert look() == primary.port
        primary.kill()
        assert look() == replica.port


@pytest.fixture
def pair() -> Iterator[tuple[MariadbServer, MariadbServer]]:
    with mariadb_server() as primary, mariadb_server(primary) as replica:
        until("the replica has all", lambda: replica.has_all_of(primary))
        yield primary, replica


def test_mysql_is_left_where_it_becomes_a_replica_though_its_sessions_go_on(
    pair: tuple[MariadbServer, MariadbServer], scenario: Callable[..., Scenario]
) -> None:
    primary, replica = pair
    with wire_to(primary.port) as way:
        made = scenario(ledger_url=primary.at(way.port))
        made.put(20)
        prepared = made.prepare(made.by("run-1"))
        until("the replica has all", lambda: replica.has_all_of(primary))
        primary.demote()
        # Nobody is led elsewhere yet.
        with pytest.raises(LedgerUnavailable, match="read-only"):
            steps.commit(made.by("run-1"), prepared.id, prepared.token)
        replica.promote()
        way.leads_to = replica.port
        # In the same process, whose pool has sessions of the old server.
        steps.commit(made.by("run-1"), prepared.id, prepared.token)
        assert verify(made.work, source=True).rows == 20
        assert made.work.ledger.get(prepared.id).state is State.COMMITTED


def test_mysql_that_takes_no_changes_is_for_those_who_look(pair: tuple[MariadbServer, MariadbServer]) -> None:
    _, replica = pair
    for url in (replica.url, replica.at(replica.port, "root")):
        writing, looking = open_engine(url), open_engine(url, writes=False)
        with pytest.raises(LedgerUnavailable, match="read-only"), transaction(writing, write=False):
            pass
        with transaction(looking, write=False) as connection:
            assert connection.exec_driver_sql("SELECT @@read_only").scalar_one() == 1
        looking.dispose()
