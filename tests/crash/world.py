"""Pipelines with one committed batch each, made cheaply: a copy of one table and one ledger over one logstore."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, make_url, text, update

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.hudi.instant_metadata import action
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import Rewritten, cluster, compact
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.crash import mirrored
from tests.crash.cases import Step
from tests.crash.counts import faults, tables
from tests.crash.held import HeldStep, Holds
from tests.local.sdk import by_ip
from tests.pipelines import served_often, upserted_often
from tests.scenarios import PROJECT, DyingLauncher, Scenario, SessionLauncher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGS = 40
_TEMPLATE = "template"
_KEY = "_hoodie_record_key"


@dataclass(frozen=True)
class Line:
    """A pipeline of a case: table and ledger of its own, a few logs that nobody has read yet."""

    world: World
    folder: Path
    scenario: Scenario
    ledger_url: str

    @property
    def work(self) -> Work:
        return self.scenario.work

    def before(self, step: Step, run: str = "run-1", dag: str = "tail", airflow: str = "") -> Transaction | None:
        """Brings a batch of a run, of an Airflow of this name, to where `step` begins."""
        work = replace(self.work, run=Run(dag, run, airflow))
        if step is Step.PLAN:
            return None
        planned = plan.tail(work)
        assert planned is not None
        if step is Step.OPEN:
            return planned
        steps.open_instant(work, planned.id, planned.token)
        if step is not Step.APPEND:
            steps.append(work, planned.id, planned.token)
        if step is Step.COMMIT:
            steps.record(work, planned.id, planned.token)
        return work.ledger.get(planned.id)

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

    def held(self, step: Step, holds: Holds, run: str = "run-1", **more: Any) -> HeldStep:
        """Starts a step in a process of its own."""
        setup = {
            "catalog": mirrored.catalog_in(self.folder),
            "pipeline": self.work.pipeline.model_dump(mode="json"),
            "ledger": self.ledger_url,
            "run": run,
            "step": step.value,
            "resident": self.world.resident,
            **more,
        }
        secrets = self.world.server.connection().to_env()
        return HeldStep(setup, holds, secrets, self.folder / f"{step.value}-{run}.log")

    def holds(self, name: str = "points") -> Holds:
        """A folder of points of this pipeline's own."""
        return Holds(self.folder / name)

    def put(self, count: int = _LOGS) -> None:
        """Puts new logs."""
        self.world.put(count)

    def settle(self, run: str) -> list[str]:
        """What a run's settle decides, every other run being over."""
        return [item.decision.value for item in settle(self.scenario.by(run), lambda other: True)]

    def next_run(self, run: str) -> list[str]:
        """A whole run: settles, then reads what there is to read; gives what was decided."""
        decided, work = self.settle(run), self.scenario.by(run)
        planned = plan.tail(work)
        if planned is not None:
            steps.open_instant(work, planned.id, planned.token)
            steps.append(work, planned.id, planned.token)
            steps.record(work, planned.id, planned.token)
            steps.commit(work, planned.id, planned.token)
        return decided

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
        found = [*faults(self.work, self.world.logs), *self.world.spark_faults(self.work)]
        assert found == [], "; ".join(found)
        self.require_mirrors()
        return decided

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

    A tenth of the logs does not fit: unless rows have keys, every case is one of two tables. Tables lie in `folder`, or
    below `lake` in an object store; ledgers in files, or in databases of the server of the URL `database`. `mirrors`
    are in both formats.
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
        self.spark, self._logstore, self._upserts, self.resident = spark, logstore, upserts, resident
        client = by_ip(server.connection())
        client.create_logstore(PROJECT, logstore, ttl=7, shard_count=2)
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

    def spark_faults(self, work: Work) -> list[str]:
        """What Spark counts differently than logs were put, in both tables together."""
        spark, paths = self.spark, [hadoop_path(table.uri) for table in tables(work)]
        rows = [row for path in paths for row in spark.read.format("hudi").load(path).select(_KEY).collect()]
        found = len(rows), len({row[0] for row in rows})
        return [] if found == (self.logs, self.logs) else [f"Spark reads {found} rows, keys; {self.logs} were put"]

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
        source = {"project": PROJECT, "logstore": self._logstore}
        table = f"{self._lake}/{self.folder.name}/{name}/table" if self._lake else folder / "table"
        if self._upserts:
            pipeline = upserted_often(table, source=source)
        else:
            pipeline = served_often(table, source=source, misfits="quarantine")
        if self._mirrors:
            pipeline = mirrored.with_mirrors(pipeline)
        engine = open_engine(url)
        migrate(engine)
        _move(engine, pipeline.table.path)
        work = Work(
            pipeline,
            Ledger(engine),
            SessionLauncher(self.spark),
            lambda: LogService(self.server.connection(), PROJECT, self._logstore, patience=Patience(10)),
            Run("tail", "run-0"),
            lambda _: mirrored.catalog_in(folder),
        )
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
