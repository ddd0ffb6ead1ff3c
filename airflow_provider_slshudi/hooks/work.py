"""From a pipeline's name to its ledger, Spark and log service, by Airflow's connections."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.dagfile import DagFile
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hooks.connections import find_connection, storage_variables
from airflow_provider_slshudi.hooks.iceberg import IcebergHook
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.sls import SlsHook
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.settings import Connections
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.logstores import service_of
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.transaction.context import Run, Work

_OWN = Connections()
_REPLACED: dict[str, tuple[str | None, str | None]] = {}
"""Variables that the keys of a connection have replaced: the value now, and the machine's own."""

_SHORTEST_KEY = 16


def work_of(
    described: str | Pipeline,
    run: Run,
    dag_file: DagFile | None = None,
    show: Callable[[str], None] | None = None,
    connections: Connections = _OWN,
) -> Work:
    """The pipeline, ledger, Spark and log service that a pipeline's steps work with; `dag_file` names the pipeline.

    `show` is told the address of a Spark driver's page, where the driver has one.

    Args:
        described: a pipeline's name or file, or the pipeline.
        run: the DAG run or command that acts.
        dag_file: the DAG file that names the pipeline; None: a command does.
        show: is told the address of a driver's page.
        connections: those that are used instead of the pipeline's own. The keys of a `storage_conn_id` become this
            process's variables, for each client of object stores in it and in its drivers.

    Raises:
        ConfigError: the pipeline, a setting or a connection is wrong.
        ConnectionMissing: Airflow gives no connection of the ledger.
        LedgerUnavailable: the ledger does not answer.
    """
    pipeline = settings.pipeline(described, dag_file, connections)
    _set_keys(connections)
    return _work(pipeline, LedgerHook(connections.ledger).ledger(), run, _connection, connections, show)


class Works:
    """What the steps of many pipelines work with; each connection is asked of Airflow once."""

    def __init__(self, run: Run, dag_file: DagFile | None, connections: Connections = _OWN) -> None:
        self._run, self._dag_file, self._connections = run, dag_file, connections
        _set_keys(connections)
        self.ledger = LedgerHook(connections.ledger).ledger()
        self._connection = cache(_connection)

    def of(self, name_or_path: str) -> Work:
        """As `work_of`, for one of them."""
        pipeline = settings.pipeline(name_or_path, self._dag_file, self._connections)
        return _work(pipeline, self.ledger, self._run, self._connection, self._connections)


def _set_keys(connections: Connections) -> None:
    """Gives this process, and the drivers that it starts, an object store's keys; without a connection the machine's.

    A process of `dag.test()` works for several tasks.
    """
    for name, (ours, machines) in _REPLACED.items():
        if os.environ.get(name) == ours:
            _set_variable(name, machines)
    _REPLACED.clear()
    if connections.storage_conn_id:
        for name, value in storage_variables(connections.storage_conn_id).items():
            _REPLACED[name] = value, os.environ.get(name)
            _set_variable(name, value)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def with_mask_key(connection: SlsConnection, pipeline: Pipeline) -> SlsConnection:
    """The connection with the key by which the pipeline's masks hash, if they do.

    Raises:
        ConnectionMissing: Airflow gives no connection of that name.
        ConfigError: it has no password, or a short one.
    """
    if pipeline.mask_key is None:
        return connection
    secret = find_connection(pipeline.mask_key, "generic").password or ""
    if len(secret) < _SHORTEST_KEY:
        raise ConfigError(
            f"connection {pipeline.mask_key}, the mask_key of pipeline {pipeline.name}, has a password of "
            f"{len(secret)} characters: {_SHORTEST_KEY} random ones are the least that keeps hashes from being guessed",
            source=pipeline.mask_key,
            field="password",
        )
    return replace(connection, mask_name=pipeline.mask_key, mask_key=Secret(secret))


def _connection(id_: str) -> SlsConnection:
    return SlsHook(id_).connection()


def _work(
    pipeline: Pipeline,
    ledger: Ledger,
    run: Run,
    connection: Callable[[str], SlsConnection],
    connections: Connections,
    show: Callable[[str], None] | None = None,
) -> Work:
    source = pipeline.source

    def connect() -> LogService:
        connections = [with_mask_key(connection(name), pipeline) for name in source.connections]
        return service_of(source.places, connections, run.patience)

    launcher = SparkLauncher(pipeline.spark.connection, show, has_keys=bool(connections.storage_conn_id))
    return Work(pipeline, ledger, launcher, connect, run, lambda connection: IcebergHook(connection).properties())
