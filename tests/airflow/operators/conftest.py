"""A pipeline of one step: its file, its ledger, and a logstore of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.operators import base
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import news
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.clock import Clock
from tests.local.sdk import PROJECT, by_ip, make_logstore
from tests.machine import connection, write_pipeline


@pytest.fixture
def put(
    sls: LocalSls,
    pipelines: Path,
    ledger_connection: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], None]:
    """The pipeline `ad_events` over a logstore of the test's own; puts log groups."""
    given, client = sls.connection(), by_ip(sls.connection())
    logstore = make_logstore(client, tmp_path.name.replace("_", "-")[:50])
    fields = {"host": given.endpoint, "login": given.access_key_id, "password": given.access_key_secret.reveal()}
    monkeypatch.setenv("AIRFLOW_CONN_SLS_DEFAULT", connection("sls", **fields))
    source = {"project": PROJECT, "logstore": logstore}
    write_pipeline(pipelines / "ad_events.yaml", tmp_path / "lake" / "ad_events", source=source)

    def put(groups: int) -> None:
        for _ in range(groups):
            client.put_logs(
                PutLogsRequest(PROJECT, logstore, "ads", "", [LogItem(1_700_000_000, contents=[("a", "b")])])
            )

    return put


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of waits for news."""
    found = Clock()
    for module in (base, news):
        monkeypatch.setattr(module, "time", found)
    return found


def no_service() -> LogService:
    raise AssertionError("this needs no log service")


@pytest.fixture
def work(pipelines: Path, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """A pipeline with a ledger of its own, in the Airflow `here`."""
    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", "here")
    pipeline, ledger = settings.pipeline("ad_events"), LedgerHook().ledger()
    ledger.register(pipeline.name, pipeline.source.identity, pipeline.table.path)
    return Work(pipeline, ledger, SparkLauncher("spark_default"), no_service, Run("tail", "now"))
