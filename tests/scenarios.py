"""A whole pipeline without Airflow, in parts: its steps, its logs, and ways to run its jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb, Where
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import FOLDER
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.spark.driver import verbs
from airflow_provider_slshudi.spark.driver.key_access import served
from airflow_provider_slshudi.spark.launch import Launcher, SubprocessLauncher
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.settle import settle
from tests.points import armed_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = "ads"
_DAYS_OF_LOGS = 3 * 144


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
                case Verb.APPEND:
                    verbs.append(context, order, served(secrets))
                case verb if verb.where is Where.SESSION:
                    verbs.SESSION[verb](self._spark, order, served(secrets))
                case verb:
                    verbs.CONTROL[verb](Gateway.of(context), order)


class DyingLauncher:
    """Runs jobs through spark-submit, whose driver is killed with SIGKILL at a point."""

    def __init__(self, point: Point, master: str = "local[2]") -> None:
        self._point, self._launcher = point, SubprocessLauncher(master)

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        with TemporaryDirectory() as folder:
            Path(folder, self._point.value).write_text("die")
            with patch.dict(os.environ, armed_in(folder)):
                self._launcher.run(verb, order, secrets)


@dataclass(frozen=True)
class Meanwhile:
    """Runs jobs as another launcher does, and something else while a verb's job runs."""

    launcher: Launcher
    verb: Verb
    act: Callable[[], object]

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
        self.launcher.run(verb, order, secrets)
        if verb is self.verb:
            self.act()


@dataclass(frozen=True)
class Scenario:
    """A logstore, a table and a ledger of their own, and the steps between them."""

    work: Work
    client: LogClient

    def put(self, count: int, first: int = 0) -> None:
        """Puts logs, ten to a log group, over three days and all logstores and shards."""
        logstores = self.work.pipeline.source.logstores
        for start in range(first, first + count, 10):
            numbers = range(start, min(start + 10, first + count))
            items = [LogItem(1_700_000_000 + number, contents=log(number)) for number in numbers]
            place = logstores[start // 10 % len(logstores)]
            self.client.put_logs(PutLogsRequest(place.project, place.logstore, "ads", "10.0.0.1", items))

    def by(self, run_id: str, **changes: Any) -> Work:
        """The same pipeline worked on by another run."""
        return replace(self.work, run=replace(self.work.run, run_id=run_id), **changes)

    def prepare(self, work: Work) -> Transaction:
        """A batch up to PREPARED."""
        opened = self.open(work)
        steps.append(work, opened.id, opened.token)
        return steps.record(work, opened.id, opened.token)

    def prepare_next(self, first: int) -> Transaction:
        """Ten new logs from a number on, in a batch of a run of their own that stays PREPARED."""
        self.put(10, first=first)
        return self.prepare(self.by(f"run-waiting-{first}"))

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


def forget_all_instants(pipeline: Scenario) -> None:
    """Puts an empty timeline in the place of the table's, as a new table of the same path would have."""
    timeline = Path(pipeline.work.storage.full(FOLDER))
    shutil.rmtree(timeline)
    timeline.mkdir()


def log(number: int) -> list[tuple[str, str]]:
    """One ad event."""
    return [
        ("event_id", f"event-{number}"),
        ("ts", str(1_767_225_600_000 + number % _DAYS_OF_LOGS * 600_000)),
        ("price", f"{number / 4}"),
        ("clicks", str(number) if number % 10 else "none"),
        ("city", "Ulm"),
    ]
