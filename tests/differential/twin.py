"""The same batches written by Hudi's own writer: what it holds, and what readers get wrong there, too."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client.instants import key_generator
from airflow_provider_slshudi.hudi.client.writer import upsert_options
from airflow_provider_slshudi.storage.files import Storage
from tests.differential.filters import Compare
from tests.differential.readers import OPTIONS, Asked, Spark, ask_rust
from tests.differential.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Without these Hudi's writer and its files' readers stop at old dates, and at NULL in an array.
_CALENDAR = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.datetimeRebaseModeInRead")
_LISTS = "parquet.avro.write-old-list-structure"


def can_be(table: Table) -> bool:
    """Whether Hudi's writer can be given the same: it takes partial updates by batch, and replaces no files as ours."""
    upsert = table.pipeline.table.upsert
    return "rewrite" not in table.acts and not (upsert is not None and upsert.partial_update)


@contextmanager
def written(session: SparkSession, table: Table) -> Iterator[Table]:
    """The table as Hudi's writer makes it of the same batches, beside it, for as long as the block."""
    twin = copy.copy(table)
    twin.storage = Storage(f"{table.storage.uri}_twin")
    spark, hadoop = Spark(session), session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(_LISTS, "false")
    for key in _CALENDAR:
        session.conf.set(key, "CORRECTED")
    try:
        for rows in table.batches:
            frame = spark.plain(table, rows).write.format("hudi").options(**_options(table.pipeline))
            frame.mode("append").save(twin.storage.full(""))
        yield twin
    finally:
        for key in _CALENDAR:
            session.conf.unset(key)
        hadoop.unset(_LISTS)
        shutil.rmtree(f"{table.folder}_twin", ignore_errors=True)


def is_wrong_too(session: SparkSession, twin: Table, asked: Asked) -> bool | None:
    """Whether the reader is wrong of the twin, too; None where it was not asked of the newest rows."""
    if asked.view.split(" ")[0] != "snapshot":
        return None
    rows = twin.versions[-1].rows
    if asked.reader == "hudi-rs":
        assert isinstance(asked.filter, Compare)
        return not ask_rust(twin, rows, [asked.filter])[0].ok
    if not asked.reader.startswith("Spark"):
        return None
    options, setting = OPTIONS[asked.view.partition(" ")[2]], asked.reader[len("Spark (") : -1]
    return not Spark(session).ask(twin, rows, [asked.filter], asked.view, options, setting)[0].ok


def _options(pipeline: Pipeline) -> dict[str, str]:
    table = pipeline.table
    options = {
        "hoodie.table.name": "twin",
        "hoodie.datasource.write.table.type": table.type.upper(),
        "hoodie.datasource.write.operation": "bulk_insert" if table.upsert is None else "upsert",
        "hoodie.datasource.write.keygenerator.class": key_generator(table),
        "hoodie.compact.inline": "false",
        "hoodie.write.table.version": str(table.version_of_new),
    }
    if table.partition is not None:
        options["hoodie.datasource.write.partitionpath.field"] = table.partition.name
        options["hoodie.datasource.write.hive_style_partitioning"] = "true"
        options["hoodie.datasource.write.partitionpath.urlencode"] = str(pipeline.escapes_folders).lower()
    return options if table.upsert is None else options | upsert_options(table.upsert)
