"""Pipelines with one committed batch each, made cheaply: a copy of one table and one ledger over one logstore."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, create_engine, make_url, text, update

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hudi.instant_metadata import action
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import Rewritten, cluster, compact
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction.context import Work
from tests.crash import mirrored
from tests.crash.cases import Step
from tests.exact import world as exact
from tests.exact.counts import count, tables
from tests.exact.outcome import Outcome
from tests.local.sdk import by_ip
from tests.pipelines import FIFTHS, served_often, upserted_often
from tests.scenarios import PROJECT, DyingLauncher, Scenario, SessionLauncher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGS = 40
_TEMPLATE = "template"


class Line(exact.World):
    """A pipeline of a case: table and ledger of its own, a few logs that no batch has read yet."""

    def __init__(self, world: World, folder: Path, scenario: Scenario, ledger_url: str) -> None:
        self.world, self.scenario = world, scenario
        super().__init__(folder, scenario.work, ledger_url, world.server, mirrored.catalog_in(folder), world.resident)

    def before_service(self) -> None:
        """Makes enough commits for table services to have something to do, then a batch that stays PREPARED."""
        for number in range(4):
            self.put(10)
            self.next_run(f"run-0-{number}")
        self.put(10)
        self.before(Step.COMMIT, "run-0b")

    def dead(self, step: Step) -> None:
        """A clustering or compaction whose driver was killed when its files were written, and nothing told of them."""
        service, point, action = _REWRITING[step]
        with suppress(JobFailed):
            service(replace(self.work, launcher=DyingLauncher(point)))
        pending = [instant.action for instant in Timeline.load(self.work.storage).pending()]
        assert action in pending, f"only {pending} is pending"

    def maintained(self) -> None:
        """A whole run of the table services, after which only the prepared batch is pending."""
        rewritten = cluster(self.work), compact(self.work)
        done = (
            *rewritten,
            maintenance.archive(self.work),
            maintenance.clean(self.work),
            metadata.check_metadata(self.work),
        )
        pending = [instant.action for instant in Timeline.load(self.work.storage).pending()]
        assert pending == [action(self.work.pipeline.table)], f"{pending} pending after {done}"
        assert done[-1].ok, f"{done[-1]}"

    def put(self, count: int = _LOGS) -> None:
        """Puts new logs."""
        self.world.put(count)

    def ends_well(self) -> list[str]:
        """Two runs later: the first decides and reads what is left, the second is a healthy one with new logs.

        Gives what was decided.

        Raises:
            AssertionError: something is not as it should be.
        """
        decided = self.next_run("run-2")
        self.require_mirrors()
        assert self.work.ledger.live(self.work.pipeline.name) == []
        self.put(10)
        assert self.next_run("run-3") == [], "the healthy run had something to decide"
        newest = self.work.ledger.latest_committed(self.work.pipeline.name)
        assert newest is not None and (newest.run_id, newest.rows, newest.state) == ("run-3", 10, State.COMMITTED)
        self.count().require()
        self.require_mirrors()
        return decided

    def count(self) -> Outcome:
        """What two readers show of all logs that were put."""
        return count(self.work, self.world.logs, self.world.spark)

    def require_mirrors(self) -> None:
        """The mirrors, once they have followed, show the rows that are committed."""
        if self.work.pipeline.mirror is not None:
            found = mirrored.faults(self.work, self.world.spark)
            assert found == [], "; ".join(found)


_REWRITING: dict[Step, tuple[Callable[[Work], Rewritten], Point, str]] = {
    Step.CLUSTER: (cluster, Point.CLUSTER_WRITTEN, "clustering"),
    Step.COMPACT: (compact, Point.COMPACT_WRITTEN, "compaction"),
}


class World:
    """A log service, a Spark session for what is healthy, and a template of a pipeline to copy.

    Logs come from three logstores. Unless rows have keys they go into five tables, and a tenth of them, which does not
    fit, into a sixth, the quarantine. Tables lie in `folder`, or below `lake` in an object store; ledgers in files, or
    in databases of the server of the URL `database`. `mirrors` are in both formats.
    Held steps let a `resident` process do their jobs, where one can.
    """

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        server: LocalSls,
        logstore: str = "crash",
        upserts: bool = False,
        lake: str = "",
        database: str = "",
        resident: bool = False,
        mirrors: bool = False,
    ) -> None:
        self.folder, self.server, self.logs, self._lake, self._database = folder, server, 0, lake, database
        self._mirrors = mirrors
        self.spark, self._upserts, self.resident = spark, upserts, resident
        self._logstores = [logstore, f"{logstore}-2", f"{logstore}-3"]
        client = by_ip(server.connection())
        for name in self._logstores:
            client.create_logstore(PROJECT, name, ttl=7, shard_count=2)
        if database:
            self._create(_TEMPLATE)
        with self._line(_TEMPLATE) as template:
            self._template = template
            self.put(_LOGS)
            template.next_run("run-0")

    def put(self, count: int) -> None:
        """Puts logs that all pipelines read."""
        self._template.scenario.put(count, first=self.logs)
        self.logs += count

    @contextmanager
    def line(self, name: str) -> Iterator[Line]:
        """A pipeline with one batch committed and logs waiting; its files go where the block ends well."""
        folder = self.folder / name
        folder.mkdir()
        for table in tables(self._template.work):
            _copy(table, table.uri.replace(f"/{_TEMPLATE}/", f"/{name}/"))
        if self._database:
            self._create(name, like=_TEMPLATE)
        else:
            shutil.copy(self._template.folder / "ledger.db", folder / "ledger.db")
        with self._line(name) as line:
            self.put(_LOGS)
            line.require_mirrors()
            yield line
            for table in tables(line.work):
                table.delete_folder("")
        shutil.rmtree(folder)

    def _url(self, name: str) -> str:
        return make_url(self._database).set(database=name).render_as_string(hide_password=False)

    def _create(self, name: str, like: str = "") -> None:
        server = create_engine(self._database, isolation_level="AUTOCOMMIT")
        copies, quoted = server.dialect.name == "postgresql", server.dialect.identifier_preparer.quote_identifier
        # As it comes, a replica's sequences fall behind the copied rows.
        template = f" TEMPLATE {quoted(like)} STRATEGY FILE_COPY" if like and copies else ""
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {quoted(name)}{template}"))
        server.dispose()
        if like and not copies:
            engine = open_engine(self._url(name))
            migrate(engine)
            with engine.begin() as connection:
                for table in map(quoted, (table.name for table in models.metadata.sorted_tables)):
                    connection.execute(text(f"INSERT INTO {table} SELECT * FROM {quoted(like)}.{table}"))  # noqa: S608
            engine.dispose()

    @contextmanager
    def _line(self, name: str) -> Iterator[Line]:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        url = self._url(name) if self._database else f"sqlite:///{folder / 'ledger.db'}"
        first, *also = [{"project": PROJECT, "logstore": logstore} for logstore in self._logstores]
        source = {**first, "also": also}
        table = f"{self._lake}/{self.folder.name}/{name}/table" if self._lake else folder / "table"
        if self._upserts:
            pipeline = upserted_often(table, source=source)
        else:
            pipeline = served_often(table, source=source, misfits="quarantine", routes=FIFTHS)
        if self._mirrors:
            pipeline = mirrored.with_mirrors(pipeline)
        engine = open_engine(url)
        work = exact.work_on(pipeline, engine, self.server, SessionLauncher(self.spark))
        _move(engine, pipeline.table.path)
        work = replace(work, iceberg_catalog=lambda _: mirrored.catalog_in(folder))
        try:
            yield Line(self, folder, Scenario(work, by_ip(self.server.connection())), url)
        finally:
            engine.dispose()


def _copy(table: Storage, uri: str) -> None:
    """Copies a table, folders without files too where there are such."""
    target = Storage(uri)
    if table.is_local:
        shutil.copytree(table.full(""), target.full(""))
        return
    with ThreadPoolExecutor(16) as pool:
        deque(pool.map(lambda path: target.write(path, table.read(path) or b""), table.files("")), maxlen=0)


def _move(engine: Engine, table: str) -> None:
    """A copied ledger's pipeline writes to the copied table; a new one has none yet."""
    with engine.begin() as connection:
        connection.execute(update(models.pipelines).values(base_path=table))
