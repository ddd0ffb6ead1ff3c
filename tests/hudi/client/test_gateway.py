"""What a driver's JVM needs before anything else is done in it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_provider_slshudi.hudi.client.gateway import Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FRESH = """
import os
from pyspark import SparkConf, SparkContext
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.spark.runtime import environment, leave, session_conf

os.environ.update(environment())
conf = SparkConf().setMaster("local[1]").setAppName("fresh").setAll(list(session_conf("local[1]").items()))
gateway = Gateway.of(SparkContext(conf=conf))
schemas = gateway.hudi.common.schema
described = gateway.hudi.avro.model.HoodieMetadataRecord.getClassSchema().toString()
read = schemas.HoodieSchemaCache.intern(schemas.HoodieSchema.parse(described))
record = gateway.hudi.metadata.HoodieMetadataPayload.createPartitionListRecord(gateway.jvm.java.util.ArrayList())
written = schemas.HoodieSchemaCache.intern(schemas.HoodieSchema.parse(described))
print(record.getData().getInsertValue(written.toAvroSchema()).get().get("type"), flush=True)
leave(gateway.jvm)
"""
"""A schema is read from a metadata table, as a rollback does it, and a record written by an equal one, as a commit."""


def test_a_jvm_that_has_read_a_metadata_table_can_write_its_records() -> None:
    done = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr[-3000:]


def test_settings_go_along_with_hudis_closures_without_where_each_came_from(spark: SparkSession) -> None:
    # Not the tests' own: a Hive catalog that another test loaded meanwhile has Hadoop read its settings anew.
    gateway = Gateway.of(spark.sparkContext)
    streams = gateway.jvm.java.io
    written = streams.ByteArrayOutputStream()
    streams.ObjectOutputStream(written).writeObject(gateway.storage_conf)
    arrived = streams.ObjectInputStream(streams.ByteArrayInputStream(written.toByteArray())).readObject().unwrap()
    sent = gateway.storage_conf.unwrap()
    assert sent.size() > 500
    assert sent.getPropertySources("io.file.buffer.size") is None
    assert arrived.getValByRegex(".*").equals(sent.getValByRegex(".*"))
