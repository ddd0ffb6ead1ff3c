"""From a pipeline's name to its ledger, Spark and log service, by Airflow's connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.dagfile import DagFile
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.sls import SlsHook
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.protocol.work import Run, Work
from airflow_provider_slshudi.sls.service import LogService


def work_of(
    name_or_path: str, run: Run, dag_file: DagFile | None = None, show: Callable[[str], None] | None = None
) -> Work:
    """The pipeline, ledger, Spark and log service that a pipeline's steps work with; `dag_file` names the pipeline.

    `show` is told the address of a Spark driver's page, where the driver has one.

    Raises:
        ConfigError: the pipeline, a setting or a connection is wrong.
        ConnectionMissing: Airflow gives no connection of the ledger.
        LedgerUnavailable: the ledger does not answer.
    """
    pipeline = settings.pipeline(name_or_path, dag_file)
    source = pipeline.source
    return Work(
        pipeline,
        LedgerHook(settings.ledger_conn_id()).ledger(),
        SparkLauncher(pipeline.spark.connection, show),
        lambda: SlsHook(source.connection).service(source.project, source.logstore, run.patience),
        run,
    )


class Works:
    """What the steps of many pipelines work with; each connection is asked of Airflow once."""

    def __init__(self, run: Run, dag_file: DagFile | None) -> None:
        self._run, self._dag_file = run, dag_file
        self._ledger = LedgerHook(settings.ledger_conn_id()).ledger()
        self._connection = cache(lambda id_: SlsHook(id_).connection())

    def of(self, name_or_path: str) -> Work:
        """As `work_of`, for one of them."""
        pipeline, run = settings.pipeline(name_or_path, self._dag_file), self._run
        source, launcher = pipeline.source, SparkLauncher(pipeline.spark.connection)

        def connect() -> LogService:
            return LogService(
                self._connection(source.connection), source.project, source.logstore, patience=run.patience
            )

        return Work(pipeline, self._ledger, launcher, connect, run)
