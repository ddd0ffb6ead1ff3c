"""Ways to make a table that is not what its ledger says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.basefile import BaseFileWriter
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.transaction import steps
from tests.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def damaged_batch(pipeline: Scenario, change: Callable[[list[str]], list[str]]) -> Transaction:
    """A batch whose append left other row keys than it said, as a writer with a fault in it would.

    `change` gives the keys that the first file shall have: some of its own, or `KEY OTHER` for a row under another key.
    """
    work = pipeline.by("run-2")
    opened = pipeline.open(work)
    steps.append(work, opened.id, opened.token)
    manifest, _ = Attempt(work.storage, opened.id, opened.instant or "", opened.token).manifest()
    path = Path(work.storage.full(manifest.stats[0]["path"]))
    table = pq.read_table(path, partitioning=None)
    keys = table["_hoodie_record_key"].to_pylist()
    wanted = change(keys)
    rows = [keys.index(key.partition(" ")[0]) for key in wanted]
    changed = [key.rpartition(" ")[2] for key in wanted]
    table = table.take(rows).set_column(2, "_hoodie_record_key", pa.array(changed))
    pq.write_table(table, path, store_schema=False)
    manifest.stats[0]["fileSizeInBytes"] = manifest.stats[0]["totalWriteBytes"] = path.stat().st_size
    batch_files.write_manifest(work.storage, manifest)
    recorded = steps.record(work, opened.id, opened.token)
    return steps.commit(work, recorded.id, recorded.token)


def write_as_somebody_else(spark: SparkSession, pipeline: Scenario, rows: pa.Table) -> str:
    """Commits rows under an instant of its own with Hudi's client, as a program that knows no ledger would."""
    gateway, work = Gateway.of(spark.sparkContext), pipeline.work
    instant = instants.new_instant_time(gateway, work.storage.uri)
    instants.request(gateway, work.storage.uri, instant)
    instants.to_inflight(gateway, work.storage.uri, instant)
    writer = BaseFileWriter(work.storage, instant, "0-0-0", 1 << 20, still_wanted=lambda: None)
    keys, partition = rows["_hoodie_record_key"].combine_chunks(), rows["event_date"].combine_chunks()
    writer.write(rows.drop_columns(list(META_COLUMNS)), keys, "event_date", partition.dictionary_encode())
    commit.commit(gateway, work.pipeline, instant, writer.close(), {})
    return instant


def some_rows(pipeline: Scenario, count: int, key: Callable[[str], str] = str) -> pa.Table:
    """Rows of one of the table's files, under keys that are made from theirs."""
    file = next(Path(pipeline.work.storage.full("")).glob("event_date=*/*.parquet"))
    table = pq.read_table(file, partitioning=None).slice(0, count)
    return table.set_column(
        2, "_hoodie_record_key", pa.array([key(k) for k in table["_hoodie_record_key"].to_pylist()])
    )
