"""A pipeline that meets troubles: logs are put, runs carry steps out and settle, and all is counted in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.logstores import service_of
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.crash.cases import BATCH, Step
from tests.crash.held import HeldStep, Holds
from tests.exact.outcome import Outcome
from tests.exact.step import STEPS
from tests.local.sdk import by_ip
from tests.scenarios import PROJECT, Scenario

PATIENCE_SECONDS = 10


class World(ABC):
    """A pipeline with a table and a ledger of its own.

    Args:
        folder: has the files of this world alone.
        work: the pipeline, worked on by its first run.
        ledger_url: the ledger's database.
        server: the log service.
        catalog: pyiceberg's properties of the Iceberg mirror's catalog.
        resident: whether a process that stays does the jobs of held steps, where one can.
    """

    def __init__(
        self,
        folder: Path,
        work: Work,
        ledger_url: str,
        server: LocalSls,
        catalog: Mapping[str, str] | None = None,
        resident: bool = False,
    ) -> None:
        self.folder, self.work, self.ledger_url, self.server = folder, work, ledger_url, server
        self._catalog, self._resident = dict(catalog or {}), resident

    @abstractmethod
    def put(self, count: int) -> None:
        """Puts so many logs, which no batch has read yet."""

    @abstractmethod
    def count(self) -> Outcome:
        """Compares the logs that were put with the table's rows."""

    def by(self, run: str) -> Work:
        """The pipeline, worked on by another run."""
        return replace(self.work, run=replace(self.work.run, run_id=run))

    def step(self, step: Step, work: Work, batch: Transaction) -> None:
        """Carries a step of a batch out."""
        STEPS[step](work, batch.id, batch.token)

    def before(self, step: Step, run: str = "run-1", dag: str = "tail", airflow: str = "") -> Transaction | None:
        """Brings a batch of a run, of an Airflow of this name, to where `step` begins."""
        work = replace(self.work, run=Run(dag, run, airflow))
        if step is Step.PLAN:
            return None
        planned = plan.tail(work)
        assert planned is not None
        for earlier in BATCH[2 : BATCH.index(step)]:
            self.step(earlier, work, planned)
        return work.ledger.get(planned.id)

    def begin(self, step: Step, point: Point, run: str) -> dict[str, Any]:
        """Brings a batch of a run to where `step` goes on to `point`; gives what the step is told of it.

        A commit is settle's where the batch was prepared; everything else that it does, where it was not.
        """
        if step is Step.SETTLE:
            self.before(Step.COMMIT if point.value.startswith("commit") else Step.RECORD, f"{run}-before")
            return {}
        begun = self.before(step, run)
        return {"transaction": begun.id, "token": begun.token} if begun else {}

    def holds(self, name: str = "points") -> Holds:
        """A folder of points of this pipeline's own."""
        return Holds(self.folder / name)

    def held(self, step: Step, holds: Holds, run: str = "run-1", **more: Any) -> HeldStep:
        """Starts a step in a process of its own."""
        setup = {
            "catalog": self._catalog,
            "pipeline": self.work.pipeline.model_dump(mode="json"),
            "ledger": self.ledger_url,
            "run": run,
            "steps": [step.value],
            **more,
        }
        log = self.folder / f"{step.value}-{run}.log"
        return HeldStep(setup, holds, self.server.connection().to_env(), log, self._resident)

    def settle(self, run: str) -> list[str]:
        """What a run's settle decides, every other run being over."""
        return [item.decision.value for item in settle(self.by(run), lambda other: True)]

    def next_run(self, run: str) -> list[str]:
        """A whole run: settles, then reads what there is to read; gives what was decided."""
        decided, work = self.settle(run), self.by(run)
        planned = plan.tail(work)
        if planned is not None:
            for step in BATCH[2:]:
                self.step(step, work, planned)
        return decided


@contextmanager
def log_service(folder: Path) -> Iterator[LocalSls]:
    """A log service with the project of all pipelines."""
    with LocalSls(folder / "sls") as server:
        by_ip(server.connection()).create_project(PROJECT, "tests")
        yield server


def new_scenario(
    pipeline: Pipeline,
    ledger: Engine | str,
    server: LocalSls,
    launcher: Launcher,
    shards: int = 1,
    patience: float = PATIENCE_SECONDS,
) -> Scenario:
    """A pipeline with a new logstore.

    Args:
        pipeline: names the logstore.
        ledger: the ledger's database, or its URL.
        server: the log service.
        launcher: does the jobs.
        shards: how many the logstore begins with.
        patience: seconds after which a request that failed is not repeated.
    """
    client = by_ip(server.connection())
    for logstore in pipeline.source.logstores:
        client.create_logstore(logstore.project, logstore.logstore, ttl=7, shard_count=shards)
    return Scenario(work_on(pipeline, ledger, server, launcher, patience), client)


def work_on(
    pipeline: Pipeline, ledger: Engine | str, server: LocalSls, launcher: Launcher, patience: float = PATIENCE_SECONDS
) -> Work:
    """A pipeline, worked on by a first run of this process; see `new_scenario`."""
    source, engine = pipeline.source, open_engine(ledger) if isinstance(ledger, str) else ledger
    migrate(engine)
    return Work(
        pipeline,
        Ledger(engine),
        launcher,
        lambda: service_of(source.places, [server.connection()] * len(source.connections), Patience(patience)),
        Run("tail", "run-0"),
    )
