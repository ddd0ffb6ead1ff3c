"""Finds what other clients left in a table that makes readers miss rows or stop; see docs/decisions/0028.

Nothing here decides anything: callers hold the leases.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi import evolution, properties, statistics
from airflow_provider_slshudi.hudi.client.basefiles import committed_files
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.notes.mending import Findings
from airflow_provider_slshudi.storage import Storage

ESCAPED = "hoodie.datasource.write.partitionpath.urlencode"
_AT_A_TIME = 16


def look(gateway: Gateway, pipeline: Pipeline) -> Findings:
    """Reads the table's properties, its indexes and each base file's footer."""
    storage = Storage(pipeline.table.path)
    timeline = Timeline.load(storage)
    schema = evolution.schema_to_commit(storage, timeline) or avro_schema(pipeline)
    indexes = statistics.Indexes.of(storage)
    wanted = statistics.wanted(pipeline, schema) if indexes.are_told else []
    files = committed_files(gateway, pipeline)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        columns = list(pool.map(lambda file: _columns(storage, file.name), files))
    in_all = set.intersection(*columns) if columns else set(indexes.bounded)
    said = (properties.read(storage) or {}).get(ESCAPED)
    return Findings(
        foreign=tuple(indexes.foreign),
        hiding=tuple(name for name in indexes.bounded if name not in wanted or name not in in_all),
        lacking=tuple(name for name in wanted if name not in indexes.bounded and name in in_all),
        escaped=pipeline.table.partition is not None and said == "true" and not pipeline.escapes_folders,
        looked=len(files),
    )


def _columns(storage: Storage, name: str) -> set[str]:
    import pyarrow.parquet as pq

    return set(pq.read_schema(storage.full(name), filesystem=storage.filesystem).names)
