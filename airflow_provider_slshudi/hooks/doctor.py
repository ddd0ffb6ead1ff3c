"""What `slshudi doctor` looks at of Airflow, and of all that its connections lead to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from airflow.providers.common.compat.sdk import conf

from airflow_provider_slshudi import settings as ours
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.sources import Logstore as PipelineLogstore
from airflow_provider_slshudi.doctor import airflow_settings, machine
from airflow_provider_slshudi.doctor.database import Database
from airflow_provider_slshudi.doctor.downstream import Downstream
from airflow_provider_slshudi.doctor.finding import Check, Finding, Seen, ok, run, unknown, warning
from airflow_provider_slshudi.doctor.source import Logstore
from airflow_provider_slshudi.doctor.table import Place
from airflow_provider_slshudi.hooks.alerts import alerts
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.sls import SlsHook
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.hooks.work import with_mask_key
from airflow_provider_slshudi.hudi.beside import tables_beside
from airflow_provider_slshudi.sls.faults import PERSON
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.storage.objectstore import is_stored
from airflow_provider_slshudi.views.words import NO_ALERTS, no_alerts

KnownAlerts = Callable[[], Mapping[str, bool]]


def findings(named: Sequence[str]) -> Iterator[Finding]:
    """The findings about ledger, Airflow and pipelines, as they come; all of the folder where none is `named`."""
    conn_id = ours.ledger_conn_id()
    database = Database(lambda: LedgerHook(conn_id).url())
    try:
        yield from run(f"ledger {conn_id}", database.checks())
        names = list(named) or ours.pipeline_names()
        known_alerts = cache(alerts)
        yield from run("Airflow", _airflow(database, len(names)))
        for name in names:
            yield from _pipeline(name, database, known_alerts)
    finally:
        database.close()


def _airflow(database: Database, pipelines: int) -> list[Check]:
    def executor() -> Seen:
        return airflow_settings.executor(
            [name.strip() for name in conf.get("core", "executor").split(",")], database.is_sqlite
        )

    def heartbeat() -> Seen:
        return airflow_settings.heartbeat(conf.getint("scheduler", "task_instance_heartbeat_timeout"))

    def dags() -> Seen:
        bundle_configs = json.loads(conf.get("dag_processor", "dag_bundle_config_list"))
        bundles = {str(bundle["name"]): str(bundle["classpath"]) for bundle in bundle_configs}
        return airflow_settings.dags(Path(conf.get("core", "dags_folder")), bundles)

    return [
        Check("executor", executor),
        Check("parallelism", lambda: airflow_settings.parallelism(conf.getint("core", "parallelism"), pipelines)),
        Check("heartbeat", heartbeat),
        Check("test button", lambda: airflow_settings.test_button(conf.get("core", "test_connection"))),
        Check("DAGs", dags),
        Check("pipelines", lambda: airflow_settings.pipelines(ours.pipelines_folder(), ours.pipeline_names())),
    ]


def _pipeline(name: str, database: Database, known_alerts: KnownAlerts) -> Iterator[Finding]:
    about, loaded = f"pipeline {name}", list[Pipeline]()

    def file() -> Seen:
        path = ours.pipeline_path(name)
        loaded.append(ours.pipeline(str(path)))
        return ok(str(path))

    yield from run(about, [Check("file", file)])
    for pipeline in loaded:
        yield from run(about, _of(pipeline, database, known_alerts))


def _of(pipeline: Pipeline, database: Database, known_alerts: KnownAlerts) -> list[Check]:
    source, table = pipeline.source, pipeline.table.path
    checks = [check for item in source.logstores for check in _of_logstore(item, pipeline)]
    checks.append(Check("Spark", lambda: machine.answers(SparkLauncher(pipeline.spark.connection).master())))
    if (packed := pipeline.spark.archive) is not None:
        checks.append(Check("executors", lambda: machine.fits(packed)))
    if any(map(is_stored, pipeline.table_paths)):
        checks.append(Check("object store", lambda: machine.jars(True)))
    checks.append(Check("alerts", lambda: _alerts(pipeline.name, known_alerts)))
    checks += Place(table, lambda: database.has_written(pipeline.name, source.identity, table)).checks("table")
    checks += Downstream(pipeline.name, database.ledger).checks(pipeline.lateness is not None)
    for beside in tables_beside(pipeline):
        if beside.is_wanted:
            checks += Place(beside.storage.uri, lambda: False).checks(beside.called)
    return checks


def _of_logstore(item: PipelineLogstore, pipeline: Pipeline) -> list[Check]:
    """The checks of one logstore, which name it if the pipeline has several."""

    def connect() -> LogService:
        connection = with_mask_key(SlsHook(item.connection).connection(), pipeline)
        return LogService(connection, item.project, item.logstore, patience=PERSON)

    checks = Logstore(connect).checks()
    if not pipeline.source.also:
        return checks
    return [replace(check, name=f"{item.project}/{item.logstore}: {check.name}") for check in checks]


def _alerts(name: str, known_alerts: KnownAlerts) -> Seen:
    if watched := ours.watched_by():
        return ok(f"{watched}, says [slshudi] watched_by")
    tells = known_alerts().get(name)
    if tells is None:
        return unknown("Airflow has no DAG of it yet, or its database cannot be asked here")
    return ok("a DAG of it names a notifier") if tells else warning(NO_ALERTS, no_alerts(name))
