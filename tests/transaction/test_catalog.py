"""A pipeline's table is found by its name in a Hive metastore."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from aliyun.log import LogItem, PutLogsRequest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ConfigError, JobFailed
from airflow_provider_slshudi.services.maintenance import sync
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.spark.runtime import environment
from tests.scenarios import Scenario
from tests.services import hive_metastore

_READER = """
import json, sys
from airflow_provider_slshudi.spark.runtime import session_conf
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").enableHiveSupport()
for key, value in session_conf("local[2]").items():
    builder = builder.config(key, value)
spark = builder.config("spark.hadoop.hive.metastore.uris", sys.argv[1]).getOrCreate()
print(json.dumps([[list(row) for row in spark.sql(query).collect()] for query in sys.argv[2:]], default=str))
"""
_HIVE = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
conf = spark._jvm.org.apache.hadoop.hive.conf.HiveConf()
conf.set("hive.metastore.uris", sys.argv[1])
client = spark._jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
print(json.dumps([
    {field.getName(): field.getType() for field in client.getTable(*name.split(".")).getSd().getCols()}
    for name in sys.argv[2:]
]))
"""


@pytest.fixture(scope="module")
def metastore() -> Iterator[str]:
    with hive_metastore() as uri:
        yield uri


def ask(metastore: str, *queries: str) -> list[list[list[Any]]]:
    """What a Spark of its own, which knows nothing but the metastore, answers."""
    answers: list[list[list[Any]]] = run(_READER, metastore, *queries)
    return answers


def types_in_hive(metastore: str, *tables: str) -> list[dict[str, str]]:
    """Type by column as Hive has it; Spark goes by its own note of the columns."""
    types: list[dict[str, str]] = run(_HIVE, metastore, *tables)
    return types


def run(program: str, *arguments: str) -> Any:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def without_partitions(pipeline: Scenario, name: str, **catalog: Any) -> Scenario:
    table, named = pipeline.work.pipeline.table, pipeline.work.pipeline.catalog
    assert named is not None
    changed = {
        "table": table.model_copy(update={"partition": None, "name": name, "path": f"{table.path}_{name}"}),
        "catalog": named.model_copy(update=catalog),
        "name": name,
    }
    flat = pipeline.work.pipeline.model_copy(update=changed)
    return replace(pipeline, work=pipeline.by("flat", pipeline=flat))


@pytest.mark.capability("catalog")
def test_spark_reads_tables_by_name_after_each_sync(scenario: Callable[..., Scenario], metastore: str) -> None:
    pipeline = scenario(shards=1, catalog={"metastore": metastore, "database": "lake"})
    pipeline.put(150)
    pipeline.batch("run-1")
    sync(pipeline.work)
    pipeline.put(150, first=150)
    pipeline.batch("run-2")
    sync(pipeline.work)
    flat = without_partitions(pipeline, "flat", times="bigint")
    flat.batch("run-1")
    sync(flat.work)
    counted, by_day, columns, days, in_flat = ask(
        metastore,
        "SELECT count(*), count(DISTINCT event_id), min(event_time), max(price) FROM lake.ad_events",
        "SELECT count(*) FROM lake.ad_events WHERE event_date = '2026-01-02'",
        "DESCRIBE lake.ad_events",
        "SHOW PARTITIONS lake.ad_events",
        "SELECT count(*) FROM lake.flat",
    )
    assert counted == [[300, 300, "2026-01-01 00:00:00", 74.75]]
    assert by_day == [[144]]
    types = {name: type_ for name, type_, *_ in columns}
    assert (types["event_time"], types["rest"]) == ("timestamp", "map<string,string>")
    assert in_flat == [[300]]
    assert days == [[f"event_date=2026-01-0{day}"] for day in (1, 2, 3)]
    in_hive = types_in_hive(metastore, "lake.ad_events", "lake.flat")
    assert [types["event_time"] for types in in_hive] == ["timestamp", "bigint"]


def test_partitions_have_their_values_however_folders_spell_them(
    scenario: Callable[..., Scenario], metastore: str
) -> None:
    names = ["50%", "Köln #1", "a/b", "plain", "x=y"]
    table = {"partition": {"by": "field", "column": "event_id"}, "name": "named"}
    pipeline = scenario(shards=1, catalog={"metastore": metastore, "database": "lake"})
    told = pipeline.work.pipeline.model_dump()
    described = Pipeline.model_validate({**told, "table": told["table"] | table})
    pipeline = replace(pipeline, work=pipeline.by("run", pipeline=described))
    for number in range(2):  # the second sync finds the partitions of the first
        source = described.source
        for name in [*names, f"only {number}"]:
            item = LogItem(1_700_000_000, contents=[("event_id", name), ("ts", "0")])
            pipeline.client.put_logs(PutLogsRequest(source.project, source.logstore, "ads", "", [item]))
        pipeline.batch(f"run-{number}")
        sync(pipeline.work)
    [partitions] = ask(metastore, "SHOW PARTITIONS lake.named")
    # Spark spells them as it does folders: a value `a%2Fb` would be `a%252Fb` here.
    wanted = sorted([*names, "only 0", "only 1"])
    assert sorted(unquote(name) for (name,) in partitions) == [f"event_id={name}" for name in wanted]


def test_a_metastore_that_is_not_there_fails_the_sync_and_nothing_else(scenario: Callable[..., Scenario]) -> None:
    pipeline = scenario(shards=1, catalog={"metastore": "thrift://127.0.0.1:1"})
    pipeline.put(10)
    assert pipeline.batch("run-1").rows == 10
    with pytest.raises(JobFailed, match=r"CatalogFailed: thrift://127\.0\.0\.1:1 .*Connection refused"):
        sync(pipeline.by("sync", launcher=SubprocessLauncher()))
    pipeline.put(10, first=10)
    assert pipeline.batch("run-2").rows == 10


def test_a_pipeline_without_a_catalog_says_so(scenario: Callable[..., Scenario]) -> None:
    with pytest.raises(ConfigError, match="pipeline ad_events names no `catalog`"):
        sync(scenario().work)
