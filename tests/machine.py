"""What tests need that put a whole Airflow, a log service, a ledger and tables on this machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from aliyun.log import LogClient
from sqlalchemy import make_url

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.sls import cursors
from tests.pipelines import table_version

ROOT = Path(__file__).parents[1]


def connection(conn_type: str, **fields: object) -> str:
    """The value of an AIRFLOW_CONN_ variable; the local log service has plain HTTP, and no region, by word."""
    if conn_type == "sls":
        host = str(fields.get("host", ""))
        given = fields.get("extra") or {}
        assert isinstance(given, dict)
        fields |= {"host": host if "://" in host else f"http://{host}", "extra": {"auth_version": "v1", **given}}
    return json.dumps({"conn_type": conn_type, **fields})


def environment(pipelines: Path | None, ledger: Path | str, server: LocalSls) -> dict[str, str]:
    """What Airflow is told: a folder of pipelines, if any, a ledger in a file of SQLite or at the URL of a database of
    PostgreSQL, Spark in local mode, the log service."""
    sls, at = server.connection(), make_url(f"sqlite:///{ledger}" if isinstance(ledger, Path) else ledger)
    fields = {"host": at.host, "port": at.port, "login": at.username, "schema": at.database}
    dialect = {"dialect": at.get_backend_name()}
    return {
        **({} if pipelines is None else {"AIRFLOW__SLSHUDI__PIPELINES_FOLDER": str(pipelines)}),
        "AIRFLOW_CONN_SLSHUDI_LEDGER": connection(
            "slshudi_ledger", **{name: value for name, value in fields.items() if value}, extra=dialect
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": connection("spark", host="local[2]"),
        "AIRFLOW_CONN_SLS_DEFAULT": connection(
            "sls", host=sls.endpoint, login=sls.access_key_id, password=sls.access_key_secret.reveal()
        ),
    }


def write_pipeline(file: Path, table: Path | str, /, **changes: object) -> None:
    """The example's pipeline with its table elsewhere, at a path or URI; `changes` replace top-level fields.

    The example is the one of the file's name, if there is one, and `ad_events` else.
    """
    examples = ROOT / "dags" / "pipelines"
    example = examples / (file.name if (examples / file.name).exists() else "ad_events.yaml")
    described = yaml.safe_load(example.read_text(encoding="utf-8"))
    described["table"]["path"] = table if isinstance(table, str) else f"file://{table}"
    if (version := table_version()) is not None:
        described["table"]["version"] = version
    file.write_text(yaml.safe_dump({**described, **changes}, sort_keys=False), encoding="utf-8")


def write_hourly(file: Path, table: Path, lateness: str = "5m", /, **changes: object) -> None:
    """The example's pipeline with partitions by the hour that are complete some time after their end."""
    partition = {"by": "event_time", "column": "event_time", "every": "hour", "name": "event_hour"}
    described = {"path": f"file://{table}", "name": "ad_events", "partition": {**partition, "lateness": lateness}}
    write_pipeline(file, table, table=described, **changes)


@contextmanager
def variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process and of all that it starts; TMPDIR counts for its own temporary files, too."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    tempfile.tempdir = None
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        tempfile.tempdir = None


def event(number: int) -> list[tuple[str, str]]:
    """One ad event."""
    return [
        ("event_id", f"event-{number}"),
        ("event_time", str(1_767_225_600_000 + number * 60_000)),
        ("event_type", "click" if number % 7 == 0 else "view"),
        ("ad_id", str(number % 90)),
        ("price", f"{number / 100}"),
        ("clicked", "true" if number % 7 == 0 else "false"),
        ("experiment", "b"),
    ]


def all_cursors(ledger: Ledger, client: LogClient, pipeline: str, project: str, logstore: str) -> dict[str, list[str]]:
    """All of the logstore that the ledger knows of, as a backfill's param."""
    return {
        str(shard.id): [str(shard.first), str(bounds(client, project, logstore, shard.id)[1])]
        for shard in ledger.shards(pipeline)
    }


def shard_ids(client: LogClient, project: str, logstore: str) -> list[int]:
    """All shards of a logstore, closed ones too."""
    return [shard["shardID"] for shard in client.list_shards(project, logstore).get_shards_info()]


def bounds(client: LogClient, project: str, logstore: str, shard: int) -> tuple[int, int]:
    """The cursors of a shard's oldest log group and of the one that comes next."""
    begin = client.get_begin_cursor(project, logstore, shard).get_cursor()
    return cursors.parse(begin), cursors.parse(client.get_end_cursor(project, logstore, shard).get_cursor())


def arguments_of(process: psutil.Process) -> list[str]:
    """The command line; empty of a process that is gone."""
    try:
        words: list[str] = process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
    return words
