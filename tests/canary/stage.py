"""Everything with a secret in it: Airflow, a log service, PostgreSQL, a Spark cluster, an S3 store, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import psutil
import yaml
from aliyun.log import LogClient, LogItem, PutLogsRequest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.spark import python_archive
from tests.airflows import SupervisedAirflow
from tests.databases import postgres_server
from tests.local.sdk import by_ip
from tests.machine import event, variables
from tests.pipelines import ad_events, customers
from tests.services import SparkCluster, s3_store, spark_cluster

PROJECT, BUCKET = "canary", "canary"
RUN_SECONDS = 600.0
ROOT = Path(__file__).resolve().parents[2]
APPENDS, UPSERTS, REFUSED = "appends", "upserts", "refused"
TYPED = "typed"
"""A secret that was typed with a character behind it that is not seen; and pipelines whose connections have it."""
OF_PASSWORD, OF_TOKEN, OF_SPARK = "of_password", "of_token", "of_spark"
PIPELINES = APPENDS, UPSERTS, REFUSED, OF_PASSWORD, OF_TOKEN, OF_SPARK
_DAG = """from airflow_provider_slshudi import maintenance_dag, tail_dag

tail = tail_dag("{name}", schedule=None, is_paused_upon_creation=False)
maintenance = maintenance_dag("{name}", schedule=None, is_paused_upon_creation=False)
"""


@dataclass
class Stage:
    """What runs, and the secrets in it by name."""

    home: Path
    secrets: dict[str, str]
    airflow: SupervisedAirflow
    server: LocalSls
    client: LogClient
    cluster: SparkCluster
    store: dict[str, str]
    ledger: Engine
    place: dict[str, Any]
    said: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, numbers: range, **changes: str) -> None:
        """Puts logs of ad events; `changes` replace values."""
        logs = [[(key, changes.get(key, value)) for key, value in event(number)] for number in numbers]
        if name == UPSERTS:
            logs = [[("id", f"c-{number}"), ("updated_at", "1"), ("region", "eu")] for number in numbers]
        items = [LogItem(1_767_225_600 + number, contents=log) for number, log in zip(numbers, logs, strict=True)]
        self.client.put_logs(PutLogsRequest(PROJECT, name, "ads", "10.0.0.1", items))

    def run(self, dag: str) -> str:
        """A whole run of a DAG; gives its state."""
        return self.airflow.wait_for_run(dag, self.airflow.trigger(dag), RUN_SECONDS)

    def command(self, *arguments: str) -> int:
        """A command of the package; what it said is kept."""
        return self.module("airflow_provider_slshudi.cli", *arguments, name=f"slshudi {' '.join(arguments)}")

    def module(self, *arguments: str, name: str, given: str = "") -> int:
        """A module's code, with `given` as its standard input; what it said is kept by a `name`."""
        line, environment = [sys.executable, "-m", *arguments], {**self.airflow.environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(line, env=environment, input=given.encode(), capture_output=True, cwd=self.home)
        self.said[name] = self.said.get(name, b"") + done.stderr + done.stdout
        return done.returncode

    def type_ledger(self, password: str) -> None:
        """Changes the password of the ledger's connection."""
        fields = {**self.place, "password": password, "extra": json.dumps({"dialect": "postgresql"})}
        body = {"connection_id": "slshudi_ledger", "conn_type": "slshudi_ledger", **fields}
        self.airflow.patch("connections/slshudi_ledger", body)

    def driver(self, verb: str, name: str) -> psutil.Process | None:
        """The JVM of a verb's driver for a pipeline, while there is one."""
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            # Before it, another JVM puts its command line together.
            is_driver = line[:1] and line[0].endswith("java") and "org.apache.spark.launcher.Main" not in line
            if is_driver and any(word.startswith(f"slshudi {verb} {name} ") for word in line):
                return process
        return None


@contextmanager
def stage(home: Path) -> Iterator[Stage]:
    """All of it, with temporary files, too, below `home`."""
    names = "log service's key", "another key", "ledger's password", "store's key", "Spark's secret"
    known = {name: token_urlsafe(24) for name in (*names, TYPED)}
    half = len(known[TYPED]) // 2
    known |= {f"{TYPED}, first half": known[TYPED][:half], f"{TYPED}, second half": known[TYPED][half:]}
    folders = {name: home / name for name in ("tmp", "pipelines", "dags", "events")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    # PostgreSQL runs as another user.
    for folder in (home, folders["tmp"]):
        folder.chmod(0o711)
    with ExitStack() as stack:
        stack.enter_context(variables({"TMPDIR": str(folders["tmp"])}))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "bare"], check=True)
        python_archive.pack(home / "slshudi.tar.gz")
        store = stack.enter_context(s3_store(BUCKET, known["store's key"]))
        stack.enter_context(variables(store))
        cluster = stack.enter_context(spark_cluster({**store, "PYTHONPATH": ""}, 2, known["Spark's secret"]))
        database = stack.enter_context(postgres_server())
        server = stack.enter_context(LocalSls(home / "sls", access_key_secret=known["log service's key"]))
        client = by_ip(server.connection())
        client.create_project(PROJECT, "canary")
        conf = {
            "spark.pyspark.python": str(home / "bare" / "bin" / "python"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folders["events"].as_uri(),
        }
        spark = {"connection": "spark_cluster", "archive": str(home / "slshudi.tar.gz"), "conf": conf}
        for name in PIPELINES:
            client.create_logstore(PROJECT, name, ttl=7, shard_count=1)
            source = {"connection": f"sls_{name}", "project": PROJECT, "logstore": name}
            table = f"s3a://{BUCKET}/{name}"
            appended = partial(ad_events, misfits="fail")
            made = (customers if name == UPSERTS else appended)(table, source=source)
            master = {"connection": "spark_typed"} if name == OF_SPARK else {}
            described = {**made.model_dump(mode="json"), "name": name, "spark": {**spark, **master}}
            (folders["pipelines"] / f"{name}.yaml").write_text(yaml.safe_dump(described), encoding="utf-8")
            (folders["dags"] / f"{name}.py").write_text(_DAG.format(name=name), encoding="utf-8")
        told = {
            **store,
            "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(folders["pipelines"]),
            "SPARK_CONF_DIR": str(cluster.settings),
            "SLSHUDI_RESIDENT_SECONDS": "120",
        }
        airflow = stack.enter_context(SupervisedAirflow(home / "airflow", folders["dags"], told))
        for name in PIPELINES:
            secret = known["another key" if name == REFUSED else "log service's key"]
            secret = f"{known[TYPED]}\n" if name == OF_PASSWORD else secret
            token = {"security_token": f"{known[TYPED]}\u200b"} if name == OF_TOKEN else {}
            service = {"host": f"http://{server.endpoint}", "login": "local", "password": secret}
            _connect(airflow, f"sls_{name}", "sls", **service, extra=json.dumps({"auth_version": "v1", **token}))
        url = make_url(database.url)
        place = {"host": url.host, "port": url.port, "schema": url.database, "login": url.username}
        extra = json.dumps({"dialect": "postgresql"})
        password = known["ledger's password"]
        _connect(airflow, "slshudi_ledger", "slshudi_ledger", **place, password=password, extra=extra)
        host, port = cluster.master.rsplit(":", 1)
        _connect(airflow, "spark_cluster", "spark", host=host, port=int(port))
        _connect(airflow, "spark_typed", "spark", host=host, port=int(port), password=f"{known[TYPED]}\n")
        ledger = open_engine(database.url)
        stack.callback(ledger.dispose)
        migrate(ledger)
        for name in PIPELINES:
            airflow.wait_for_dag(f"{name}_tail")
            airflow.wait_for_dag(f"{name}_maintenance")
        yield Stage(home, known, airflow, server, client, cluster, store, ledger, place)


def _connect(airflow: SupervisedAirflow, conn_id: str, conn_type: str, **fields: Any) -> None:
    """Makes a connection as Airflow's page does, so that its secret is nowhere but in Airflow's database, encrypted."""
    airflow.post("connections", {"connection_id": conn_id, "conn_type": conn_type, **fields})
