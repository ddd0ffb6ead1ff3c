"""A whole pipeline without Airflow: a local SLS server, a ledger in SQLite, jobs through spark-submit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.job import verbs
from airflow_provider_slshudi.job.launch import Launcher, SubprocessLauncher
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.points import FOLDER, Point
from airflow_provider_slshudi.protocol import plan, steps
from airflow_provider_slshudi.protocol.settle import settle
from airflow_provider_slshudi.protocol.work import Run, Work
from airflow_provider_slshudi.sls.service import LogService
from tests.local.sdk import by_ip
from tests.pipelines import ad_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = "ads"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    with LocalSls(tmp_path_factory.mktemp("sls")) as running:
        by_ip(running.connection()).create_project(PROJECT, "tests")
        yield running


class SessionLauncher:
    """Runs jobs in the tests' own Spark session: the same verbs without the seconds that a JVM takes to start."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        context = self._spark.sparkContext
        with pytest.MonkeyPatch.context() as environment:
            for name, value in secrets.items():
                environment.setenv(name, value)
            match verb:
                case Verb.OPEN:
                    verbs.open_instant(Gateway.of(context), order)
                case Verb.APPEND:
                    verbs.append(context, order)
                case Verb.COMMIT:
                    verbs.commit_instant(Gateway.of(context), order)
                case Verb.ROLLBACK:
                    verbs.roll_back(Gateway.of(context), order)
                case Verb.VERIFY:
                    verbs.verify(self._spark, order)


class DyingLauncher:
    """Runs jobs through spark-submit, whose driver is killed with SIGKILL at a point."""

    def __init__(self, point: Point, master: str = "local[2]") -> None:
        self._point, self._launcher = point, SubprocessLauncher(master)

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        with TemporaryDirectory() as folder:
            Path(folder, self._point.value).write_text("die")
            self._launcher.run(verb, order, {**secrets, FOLDER: folder})


@dataclass(frozen=True)
class Scenario:
    """A logstore, a table and a ledger of their own, and the steps between them."""

    work: Work
    client: LogClient

    def put(self, count: int, first: int = 0) -> None:
        """Puts logs, ten to a log group, over a few days and shards."""
        for start in range(first, first + count, 10):
            numbers = range(start, min(start + 10, first + count))
            items = [LogItem(1_700_000_000 + number, contents=log(number)) for number in numbers]
            source = self.work.pipeline.source
            self.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "10.0.0.1", items))

    def by(self, run_id: str, **changes: Any) -> Work:
        """The same pipeline worked on by another run."""
        return replace(self.work, run=Run("tail", run_id), **changes)

    def prepare(self, work: Work) -> Transaction:
        """A batch up to PREPARED."""
        opened = self.open(work)
        steps.append(work, opened.id, opened.token)
        return steps.record(work, opened.id, opened.token)

    def open(self, work: Work) -> Transaction:
        """A batch up to OPEN."""
        planned = plan.tail(work)
        assert planned is not None
        steps.open_instant(work, planned.id, planned.token)
        return self.work.ledger.get(planned.id)

    def batch(self, run_id: str) -> Transaction:
        """A whole healthy batch, settle included."""
        work = self.by(run_id)
        settle(work, lambda run: True)
        prepared = self.prepare(work)
        return steps.commit(work, prepared.id, prepared.token)


def log(number: int) -> list[tuple[str, str]]:
    """One ad event."""
    return [
        ("event_id", f"event-{number}"),
        ("ts", str(1_767_225_600_000 + number * 600_000)),
        ("price", f"{number / 4}"),
        ("clicks", str(number) if number % 10 else "none"),
        ("city", "Ulm"),
    ]


@pytest.fixture
def scenario(server: LocalSls, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Scenario]]:
    """Makes scenarios.

    `shards` is the logstore's number of shards, `ledger_url` and `location` where ledger and table are (SQLite and a
    directory), `launcher` what runs the jobs (the tests' own Spark session); more are fields of the pipeline.
    """
    engines = []

    def make(
        shards: int = 2, ledger_url: str = "", location: str = "", launcher: Launcher | None = None, **changes: Any
    ) -> Scenario:
        logstore = tmp_path.name.replace("_", "-")[:50]
        client = by_ip(server.connection())
        client.create_logstore(PROJECT, logstore, ttl=7, shard_count=shards)
        source = {"project": PROJECT, "logstore": logstore}
        pipeline: Pipeline = ad_events(location or tmp_path / "lake" / "ad_events", source=source, **changes)
        engine = open_engine(ledger_url or f"sqlite:///{tmp_path / 'ledger.db'}")
        engines.append(engine)
        migrate(engine)
        work = Work(
            pipeline,
            Ledger(engine),
            launcher or SessionLauncher(spark),
            lambda: LogService(server.connection(), PROJECT, logstore, budget=10),
            Run("tail", "run-0"),
        )
        return Scenario(work, client)

    yield make
    for engine in engines:
        engine.dispose()
