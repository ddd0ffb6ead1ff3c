"""A real Trino with three catalogs: the tables' own format, the Iceberg mirrors and the Delta mirrors."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from airflow_provider_slshudi.cli.demo.airflow_process import free_port
from tests.readers import fetch
from tests.readers.engines.trino import query
from tests.readers.mirrors import CATALOG, NAMESPACE
from tests.readers.tables import DELTA, HUDI, ICEBERG, ReaderTable
from tests.services import Service

_PLUGINS = ("hudi", "iceberg", "delta-lake")
_OPTIONS = (
    "-server",
    "-Xmx1500m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=256M",
    "--add-modules=jdk.incubator.vector",
    "--sun-misc-unsafe-memory-access=allow",
    "-Duser.timezone=UTC",
    "-Dfile.encoding=UTF-8",
    "-Djdk.attach.allowAttachSelf=true",
)


@contextmanager
def running(folder: Path, jdbc: str, metastore: str, tables: Sequence[ReaderTable]) -> Iterator[str]:
    """The address of a Trino that has the tables in its catalogs.

    Args:
        folder: where its own files are to be.
        jdbc: the URL of the database with the Iceberg catalog.
        metastore: the URI of the Hive metastore with the Hudi tables; empty: it has none.
        tables: the tables, of whose Delta mirrors the catalog is told.
    """
    home, port = fetch.trino(), free_port()
    etc = folder / "trino" / "etc"
    catalogs = _catalogs(folder / "trino", jdbc, metastore)
    for name, properties in catalogs.items():
        _write(etc / "catalog" / f"{name}.properties", properties)
    node = {"node.environment": "readers", "node.id": "readers", "node.data-dir": f"{folder}/trino/data"}
    _write(etc / "node.properties", node)
    server = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "query.max-memory-per-node": "400MB",
        # It would go into the working folder.
        "http-server.log.enabled": "false",
        "plugin.dir": str(_plugins(folder / "trino", home)),
        "catalog.config-dir": str(etc / "catalog"),
    }
    _write(etc / "config.properties", server)
    _write(etc / "log.properties", {"io.trino": "WARN"})
    command = [str(fetch.java_of_trino()), *_OPTIONS, f"-Dconfig={etc}/config.properties"]
    command += [f"-Dlog.levels-file={etc}/log.properties", f"-Dnode.environment={node['node.environment']}"]
    command += [f"-Dnode.id={node['node.id']}", f"-Dnode.data-dir={node['node.data-dir']}"]
    command += ["-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
    address = f"http://127.0.0.1:{port}"
    with Service(command, dict(os.environ), folder / "trino" / "server.log", partial(_is_ready, address)):
        query(address, f"CREATE SCHEMA {DELTA}.{NAMESPACE}")
        for table in tables:
            if table.form == DELTA:
                query(address, register_delta(table))
        yield address


def _catalogs(folder: Path, jdbc: str, metastore: str) -> dict[str, dict[str, str]]:
    """The properties of each catalog, whose own files are in a folder."""
    catalogs = {
        ICEBERG: {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "jdbc",
            "iceberg.jdbc-catalog.catalog-name": CATALOG,
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": jdbc,
            "iceberg.jdbc-catalog.connection-user": "postgres",
            "iceberg.jdbc-catalog.connection-password": "none",
            "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{folder}/warehouse",
            "iceberg.jdbc-catalog.schema-version": "V0",
            # Clean-ups are tried without the days that they would wait.
            "iceberg.expire-snapshots.min-retention": "0s",
            "iceberg.remove-orphan-files.min-retention": "0s",
            "fs.hadoop.enabled": "true",
        },
        DELTA: {
            "connector.name": "delta_lake",
            "hive.metastore": "file",
            "hive.metastore.catalog.dir": f"file://{folder}/metastore",
            "delta.register-table-procedure.enabled": "true",
            "fs.hadoop.enabled": "true",
        },
    }
    if metastore:
        catalogs[HUDI] = {
            "connector.name": "hudi",
            "hive.metastore.uri": metastore,
            "fs.hadoop.enabled": "true",
        }
    return catalogs


def register_delta(table: ReaderTable) -> str:
    """The statement that names a Delta mirror in Trino's catalog."""
    place = f"file://{table.hudi_path.rstrip('/')}"
    return f"CALL {DELTA}.system.register_table('{NAMESPACE}', '{table.name}', '{place}')"


def _plugins(folder: Path, home: Path) -> Path:
    """A folder with the plugins of the three connectors alone: a Trino with all of them takes a minute to start."""
    plugins = folder / "plugin"
    plugins.mkdir(parents=True)
    for name in _PLUGINS:
        (plugins / name).symlink_to(home / "plugin" / name)
    return plugins


def _write(file: Path, properties: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/v1/info", timeout=5) as answer:  # noqa: S310
            return json.load(answer)["starting"] is False
    except OSError:
        return False
