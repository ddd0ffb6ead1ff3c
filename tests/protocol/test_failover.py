"""The ledger's server dies, and a replica takes its place that had not heard of all: PostgreSQL's own replication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from airflow_provider_slshudi.exceptions import LedgerError, LedgerLost, TransientError
from airflow_provider_slshudi.ledger.engine import open_engine, transaction
from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol import steps
from airflow_provider_slshudi.protocol.rebuild import rebuild
from tests.crash.cases import Step
from tests.crash.world import Line, World
from tests.services import PostgresServer, postgres_server
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.local.process import LocalSls

pytestmark = pytest.mark.long


class Ledgers:
    """A pipeline's ledger on two servers, of which the second takes over."""

    def __init__(self, line: Line, primary: PostgresServer, replica: PostgresServer) -> None:
        self.line, self._primary, self._replica = line, primary, replica
        self.ports = primary.port, replica.port

    def cut_off(self) -> None:
        """What is committed from now on does not reach the replica."""
        until("the replica has all", lambda: self._replica.has_all_of(self._primary))
        self._replica.stop()

    def look(self) -> int:
        """The port of the server that answers those who look, though the replica is named first."""
        engine = open_engine(_url(self._replica, self._primary), writes=False)
        try:
            with transaction(engine, write=False) as connection:
                return int(connection.execute(text("SELECT inet_server_port()")).scalar_one())
        finally:
            engine.dispose()

    def kill(self) -> None:
        """The first server dies."""
        self._primary.kill()

    def fail_over(self) -> None:
        """The first server dies; the second one goes on with what it has."""
        self.kill()
        self._replica.start()
        self._replica.promote()


def _url(*servers: PostgresServer) -> str:
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in servers)
    return f"postgresql+psycopg://postgres@/postgres?{hosts}"


@pytest.fixture
def ledgers(tmp_path: Path, spark: SparkSession, server: LocalSls) -> Iterator[Ledgers]:
    with postgres_server() as primary, postgres_server(primary) as replica:
        name, url = tmp_path.name.replace("_", "-"), _url(primary, replica)
        with World(tmp_path, spark, server, name, database=url).line("line") as line:
            yield Ledgers(line, primary, replica)


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


def test_who_looks_sees_the_server_that_writes_and_a_replica_only_where_there_is_none(ledgers: Ledgers) -> None:
    primary, replica = ledgers.ports
    assert ledgers.look() == primary
    ledgers.kill()
    assert ledgers.look() == replica
