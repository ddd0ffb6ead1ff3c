"""A table's path is taken as it stands, by Storage, Hudi, Spark and hudi-rs alike."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pytest

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.client import commit, instants, metadata_table
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.spark.runtime import session_conf
from airflow_provider_slshudi.storage.files import Storage
from tests.hudi.conftest import write_files
from tests.pipelines import ad_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_folder_of_odd_letters_is_one_table_to_everybody(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    from hudi import HudiTableBuilder

    folder = tmp_path / "a b#c%20d 50% 上海 \u00e9" / "x,y;z=1&2:3"
    pipeline = ad_events(folder)
    storage = Storage(pipeline.table.path)
    instants.create_table(gateway, pipeline)
    for keep in (False, True):
        instant = instants.new_instant_time(gateway, storage.uri)
        instants.request(gateway, storage.uri, instant)
        instants.to_inflight(gateway, storage.uri, instant)
        stats = write_files(storage, instant, 10)
        if keep:
            commit.commit(gateway, pipeline, instant, stats, {})
        else:
            commit.roll_back(gateway, pipeline, instant)
    assert [path.name for path in tmp_path.iterdir()] == [folder.parent.name]
    assert [path for path, _ in storage.walk() if path.endswith(".parquet")] == [stats[0]["path"]]
    assert spark.read.format("hudi").load(storage.uri).count() == 10
    # A reader that takes URIs is given one, in which odd letters are coded.
    by_rust = HudiTableBuilder.from_base_uri(quote(storage.uri, safe=":/")).build().read()
    assert pa.Table.from_batches(by_rust).num_rows == 10
    assert metadata_table.compare(gateway, pipeline, storage).ok


def test_a_group_may_change_what_java_makes_where_the_umask_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own umask is 022, whatever the process's."""
    before = os.umask(0o002)
    try:
        ours = session_conf("local[2]")
    finally:
        os.umask(before)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    java.set("fs.file.impl.disable.cache", "true")
    for key, value in ours.items():
        if key.startswith("spark.hadoop."):
            java.set(key.removeprefix("spark.hadoop."), value)
    pipeline = ad_events(tmp_path / "table")
    instants.create_table(Gateway(spark._jvm, java, spark.sparkContext._jsc), pipeline)
    made = list((tmp_path / "table").rglob("*"))
    assert made and not [path for path in made if not path.stat().st_mode & stat.S_IWGRP]


def test_no_path_leads_out_of_the_tables_folder(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    storage = Storage(f"file://{tmp_path}/table")
    with pytest.raises(TableError, match="leads out of the table's folder"):
        storage.delete("event_date=2026-01-01/../../other")
    with pytest.raises(TableError, match="is not within the table"):
        storage.relative(f"{storage.uri}/../other")
    assert (tmp_path / "other").exists()
