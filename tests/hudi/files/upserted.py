"""A table of customers, and batches that one task writes into it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.filegroups import Completed
from airflow_provider_slshudi.hudi.files.merge import PLACE
from airflow_provider_slshudi.hudi.files.row_changes import BUCKET, PARTITION, Changes
from airflow_provider_slshudi.hudi.files.upsertwriter import UpsertWriter
from airflow_provider_slshudi.hudi.instant_metadata import action as action_of
from airflow_provider_slshudi.hudi.schema import RECORD_KEY, arrow_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.rows.keys import bucket_ids
from airflow_provider_slshudi.spark.driver.upsert import upsert_spec
from airflow_provider_slshudi.storage.files import Storage
from tests.upserts import Change

FIRST = [Change(f"c{number}", 1, "a", number) for number in range(40)]


class Table:
    """A table of customers, and batches written into it by one task."""

    def __init__(self, gateway: Gateway, pipeline: Pipeline) -> None:
        self.gateway, self.pipeline, self.storage = gateway, pipeline, Storage(pipeline.table.path)
        instants.create_table(gateway, pipeline)

    def open(self) -> str:
        action, uri = action_of(self.pipeline.table), self.storage.uri
        instant = instants.new_instant_time(self.gateway, uri)
        instants.request(self.gateway, uri, instant, action)
        instants.to_inflight(self.gateway, uri, instant, action)
        return instant

    def write(
        self, instant: str, changes: list[Change], wanted: Any = lambda: None, **more: Any
    ) -> list[dict[str, Any]]:
        spec = upsert_spec(self.pipeline, instant, Completed.of(Timeline.load(self.storage)))
        table = pa.Table.from_pylist([{**change.row, **more} for change in changes], arrow_schema(self.pipeline))
        for name in PLACE:
            table = table.append_column(name, pa.array(range(len(changes)), pa.int64()))
        keys = table["id"].combine_chunks()
        table = table.append_column(RECORD_KEY, keys)
        table = table.append_column(PARTITION, pc.binary_join_element_wise("region", table["region"], "="))
        table = table.append_column(BUCKET, pa.array(bucket_ids(["id"], [keys], keys, spec.merge.buckets)))
        packets = [table.slice(begin, 7) for begin in range(0, len(changes), 7)]
        random.Random(1).shuffle(packets)
        with Changes(spec.merge) as kept, UpsertWriter(self.storage, spec, "0-1-2", wanted) as writer:
            for packet in packets:
                kept.add(packet)
            for partition, bucket, parts in kept.buckets():
                writer.write(partition, bucket, parts)
        return writer.stats

    def commit(self, instant: str, stats: list[dict[str, Any]]) -> None:
        commit.commit(self.gateway, self.pipeline, instant, stats, {})

    def files(self) -> set[str]:
        folder = Path(self.storage.full("region=a"))
        return {file.name for file in folder.glob("*0*") if not file.name.endswith(".crc")}
