"""A table for upserts is what Hudi's own data source would have made, and is known again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi.client import instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.writer import upsert_options
from airflow_provider_slshudi.storage.files import Storage
from tests.pipelines import customers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MATTERING = ("merge", "payload", "ordering", "recordkey", "partition.fields", "partial", "table.type", "keygenerator")


def _properties(pipeline: Pipeline) -> dict[str, str]:
    content = Storage(pipeline.table.path).read(".hoodie/hoodie.properties")
    assert content is not None
    lines = (line.split("=", 1) for line in content.decode().splitlines() if not line.startswith("#"))
    return {key: value for key, value in lines if any(part in key for part in _MATTERING)}


@pytest.mark.parametrize(
    ("type_", "upsert", "payload"),
    [
        ("merge_on_read", {}, None),
        ("copy_on_write", {"partial_update": True, "delete_marker": None}, "PartialUpdateAvroPayload"),
        (
            "merge_on_read",
            {"partial_update": True, "delete_marker": None, "ordering_field": None},
            "OverwriteNonDefaultsWithLatestAvroPayload",
        ),
        ("copy_on_write", {"record_key": ["id", "number"], "ordering_field": None}, None),
    ],
)
def test_a_table_is_as_hudis_data_source_makes_it(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, type_: str, upsert: dict[str, Any], payload: str | None
) -> None:
    ours, theirs = (customers(tmp_path / name, type_, **upsert) for name in ("ours", "theirs"))
    instants.create_table(gateway, ours)
    instants.check_table(gateway, ours)
    assert theirs.table.upsert is not None and theirs.table.partition is not None
    options = {
        **upsert_options(theirs.table.upsert),
        "hoodie.table.name": theirs.table.name,
        "hoodie.datasource.write.table.type": type_.upper(),
        "hoodie.datasource.write.partitionpath.field": theirs.table.partition.name,
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    }
    if payload:
        options["hoodie.datasource.write.payload.class"] = f"org.apache.hudi.common.model.{payload}"
    rows = spark.range(3).selectExpr(
        "cast(id as string) as id", "id as number", "id as updated_at", "id > 1 as is_deleted", "'a' as region"
    )
    rows.write.format("hudi").options(**options).mode("append").save(Storage(theirs.table.path).full(""))
    assert _properties(ours) == _properties(theirs)


def test_a_table_that_merges_otherwise_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    instants.create_table(gateway, customers(tmp_path / "table"))
    other = customers(tmp_path / "table", "copy_on_write", record_key="number", ordering_field=None)
    with pytest.raises(
        TableMismatch, match=r"type: MERGE_ON_READ there, COPY_ON_WRITE in the file; record key: id"
    ) as e:
        instants.check_table(gateway, other)
    assert "ordering field: updated_at there, none in the file; merge mode: EVENT_TIME_ORDERING there" in str(e.value)
