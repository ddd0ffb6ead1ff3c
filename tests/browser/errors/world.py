"""One Airflow, one log service and one ledger for many pipelines, which scenarios make, break and mend."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aliyun.log import LogClient
from sqlalchemy import Engine

from airflow_provider_slshudi.cli.demo.airflow_process import AirflowRefused
from airflow_provider_slshudi.ledger.engine import migrate, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local import LocalSls
from tests.airflows import SupervisedAirflow
from tests.databases import PostgresServer, postgres_server
from tests.local.sdk import by_ip
from tests.machine import connection
from tests.points import armed_in
from tests.sessions import java_options, start_spark
from tests.users import ordinary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = "ads"
LEDGER = "slshudi_ledger"
NEVER = 3650
"""Days of a logstore's ttl: nothing of it expires."""


@dataclass
class World:
    """What all pipelines share.

    Attributes:
        server: the log service; a day of a logstore's ttl lasts one second.
        engine: the ledger's.
        database: the ledger's server; None where the ledger is in SQLite.
        building: held by whoever uses the Spark session of this process.
    """

    home: Path
    server: LocalSls
    client: LogClient
    airflow: SupervisedAirflow
    engine: Engine
    database: PostgresServer | None
    building: threading.RLock = field(default_factory=threading.RLock)
    _faults: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _spark: SparkSession | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger of all pipelines."""
        return Ledger(self.engine)

    @property
    def spark(self) -> SparkSession:
        """A session of this process; call it with `building`."""
        self._spark = self._spark or start_spark()
        return self._spark

    def disturb(self, logstore: str, fault: Mapping[str, Any] | None) -> None:
        """Gives a logstore's requests a fault of the service, or takes it away."""
        with self.building:
            self._faults.pop(logstore, None)
            if fault is not None:
                self._faults[logstore] = {"logstore": logstore, **fault}
            self.server.faults = {"rules": list(self._faults.values())}

    def connect(self, conn_id: str, conn_type: str, **fields: Any) -> None:
        """Makes or changes a connection of Airflow, as its page Admin > Connections does."""
        body = {"connection_id": conn_id, "conn_type": conn_type, **fields}
        try:
            self.airflow.get(f"connections/{conn_id}")
        except AirflowRefused:
            self.airflow.post("connections", body)
        else:
            self.airflow.patch(f"connections/{conn_id}", body)

    def connect_source(self, conn_id: str, **changes: Any) -> None:
        """A connection to the log service."""
        sls = self.server.connection()
        fields = {
            "host": f"http://{sls.endpoint}",
            "login": sls.access_key_id,
            "password": sls.access_key_secret.reveal(),
        }
        self.connect(conn_id, **{"conn_type": "sls", "extra": '{"auth_version": "v1"}', **fields, **changes})

    def connect_ledger(self, url: str) -> None:
        """Points Airflow's ledger connection to a database."""
        engine = open_engine(url)
        target, dialect = engine.url, engine.dialect.name
        engine.dispose()
        server = {} if dialect == "sqlite" else {"host": target.host, "port": target.port, "login": target.username}
        self.connect(LEDGER, "slshudi_ledger", schema=target.database, extra=json.dumps({"dialect": dialect}), **server)


@contextmanager
def world(home: Path, postgres: bool) -> Iterator[World]:
    """The world in a folder of its own; with `postgres` the ledger's database is a server that can be ended."""
    for folder in ("dags", "pipelines", "lake", "points"):
        (home / folder).mkdir(parents=True)
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server()) if postgres else None
        url = f"sqlite:///{home / 'ledger.db'}" if database is None else database.url
        engine = open_engine(url)
        stack.callback(engine.dispose)
        migrate(engine)
        server = stack.enter_context(LocalSls(home / "sls", day=1))
        client = by_ip(server.connection())
        client.create_project(PROJECT, "tests")
        variables = {
            "AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(home / "pipelines"),
            "AIRFLOW_CONN_SPARK_DEFAULT": connection("spark", host="local[2]"),
            "SLSHUDI_RESIDENT_SECONDS": "60",
            "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", java_options()),
            # A pipeline's DAG file names a folder of its own.
            **armed_in(home / "points"),
        }
        with ordinary():
            airflow = stack.enter_context(SupervisedAirflow(home / "airflow", home / "dags", variables))
        made = World(home, server, client, airflow, engine, database)
        made.connect_ledger(url)
        made.connect_source("sls_default")
        yield made
        if made._spark is not None:
            made._spark.stop()
