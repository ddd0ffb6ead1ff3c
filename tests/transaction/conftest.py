"""A whole pipeline without Airflow: a local SLS server, a ledger in SQLite, jobs through spark-submit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlalchemy import Engine

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LedgerShard
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark import python_archive
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.settle import register
from tests.exact.world import new_scenario
from tests.ledgers import engine_in, ledger_in
from tests.local.sdk import by_ip
from tests.pipelines import ad_events, customers
from tests.scenarios import PROJECT, Scenario, SessionLauncher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    with LocalSls(tmp_path_factory.mktemp("sls")) as running:
        by_ip(running.connection()).create_project(PROJECT, "tests")
        yield running


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of this version in which nothing is installed."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return str(place / "bin" / "python")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `slshudi pack` makes, at less cost."""
    target = tmp_path_factory.mktemp("pack") / "slshudi.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_archive, "_COMPRESSION", 1)
        python_archive.pack(target)
    return str(target)


@pytest.fixture
def scenario(server: LocalSls, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Scenario]]:
    """Makes scenarios.

    `shards` is the logstore's number of shards, `ledger_url` and `location` where ledger and table are (SQLite and a
    directory), `launcher` what runs the jobs (the tests' own Spark session), `described` what makes the pipeline; more
    are fields of it.
    """
    engines = []

    def make(
        shards: int = 2,
        ledger_url: str = "",
        location: str = "",
        launcher: Launcher | None = None,
        described: Callable[..., Pipeline] = ad_events,
        **changes: Any,
    ) -> Scenario:
        logstore = tmp_path.name.replace("_", "-")[:50]
        source = {"project": PROJECT, "logstore": logstore}
        pipeline = described(location or tmp_path / "lake" / "ad_events", source=source, **changes)
        engines.append(open_engine(ledger_url or f"sqlite:///{tmp_path / 'ledger.db'}"))
        return new_scenario(pipeline, engines[-1], server, launcher or SessionLauncher(spark), shards)

    yield make
    for engine in engines:
        engine.dispose()


@pytest.fixture
def another_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger, where a connection points by now, or in the place of one that was lost."""
    with ledger_in(tmp_path / "another-ledger.db") as made:
        yield made


@pytest.fixture
def upserts(scenario: Callable[..., Scenario]) -> Callable[..., Scenario]:
    """Makes scenarios of `customers`, from one shard, whose logs have an order; more are fields of its `upsert`."""

    def make(type_: str = "merge_on_read", launcher: Launcher | None = None, **changes: Any) -> Scenario:
        return scenario(shards=1, launcher=launcher, described=partial(customers, type_=type_), **changes)

    return make


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An empty ledger's, in SQLite."""
    with engine_in(tmp_path / "ledger.db") as engine:
        yield engine


@pytest.fixture
def work(engine: Engine, tmp_path: Path) -> Work:
    """A pipeline of two shards that the ledger alone knows: it has no service, and starts no job."""
    none = cast(Launcher, None)
    work = Work(
        ad_events(tmp_path / "table"), Ledger(engine), none, lambda: cast(LogService, None), Run("tail", "run-1")
    )
    register(work)
    work.ledger.save_shards(work.pipeline.name, [LedgerShard(shard, "readwrite", "0", "f", 0) for shard in (0, 1)])
    return work
