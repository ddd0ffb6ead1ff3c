"""Finds what earlier versions left in a table that makes readers miss rows or stop; see docs/decisions/0028.

Nothing here decides anything: callers hold the leases. A clustering of just the faulty files writes these anew, in the
three parts that every clustering has (`rewriting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi import evolution, properties, statistics
from airflow_provider_slshudi.hudi.client import clustering
from airflow_provider_slshudi.hudi.client.basefiles import committed_files
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.instants import new_instant_time
from airflow_provider_slshudi.hudi.client.rewriting import owner
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.hudi.files.parquet import FOOTER, leaves
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.layout import CLUSTERING
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.notes.mending import Findings
from airflow_provider_slshudi.objectstore import hadoop_path
from airflow_provider_slshudi.storage import Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ESCAPED = "hoodie.datasource.write.partitionpath.urlencode"
MOST_FILES = 500
"""The most files that one clustering writes anew."""
_AT_A_TIME = 16
_OURS = "parquet-cpp"
# Of values before these (days and microseconds, as in Parquet) Spark wants to be told the calendar.
_FIRST = {
    "DATE": (date(1582, 10, 15) - date(1970, 1, 1)).days,
    "TIMESTAMP": (date(1900, 1, 1) - date(1970, 1, 1)).days * 86_400_000_000,
}


def look(gateway: Gateway, pipeline: Pipeline) -> Findings:
    """Reads the table's properties, its indexes and each base file's footer; of older files also floating numbers."""
    storage = Storage(pipeline.table.path)
    timeline = Timeline.load(storage)
    schema = evolution.schema_to_commit(storage, timeline) or avro_schema(pipeline)
    indexes = statistics.Indexes.of(storage)
    wanted = statistics.wanted(pipeline, schema) if indexes.are_told else []
    files = committed_files(gateway, pipeline)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        seen = list(pool.map(lambda file: _seen(storage, file.name), files))
    in_all = set.intersection(*(columns for columns, _ in seen)) if seen else set(indexes.bounded)
    said = (properties.read(storage) or {}).get(ESCAPED)
    return Findings(
        foreign=tuple(indexes.foreign),
        hiding=tuple(name for name in indexes.bounded if name not in wanted or name not in in_all),
        lacking=tuple(name for name in wanted if name not in indexes.bounded and name in in_all),
        escaped=pipeline.table.partition is not None and said == "true" and not pipeline.escapes_folders,
        files=tuple(file.name for file, (_, is_wrong) in zip(files, seen, strict=True) if is_wrong),
        looked=len(files),
    )


def plan(gateway: Gateway, pipeline: Pipeline, names: Sequence[str]) -> None:
    """Puts a clustering on the timeline: the first MOST_FILES of `names` still in the table, each file by itself."""
    left, there = set(names), committed_files(gateway, pipeline)
    files = [file for file in there if file.name in left][:MOST_FILES]
    if not files:
        return
    model, lists = gateway.hudi.avro.model, gateway.jvm.java.util
    # So that the next clustering looks at these partitions too, not only at those that changed since.
    others = lists.ArrayList()
    for partition in sorted({file.partition for file in there}):
        others.add(partition)
    groups = lists.ArrayList()
    for file in files:
        slices = lists.ArrayList()
        slices.add(_slice(gateway, pipeline, file))
        group = model.HoodieClusteringGroup.newBuilder().setSlices(slices).setNumOutputFileGroups(1)
        groups.add(group.setMetrics(lists.HashMap()).setExtraMetadata(lists.HashMap()).setVersion(1).build())
    with client(gateway, pipeline, clustering.options(pipeline)) as writer:
        strategy = (
            model.HoodieClusteringStrategy.newBuilder()
            .setStrategyClassName(writer.getConfig().getClusteringExecutionStrategyClass())
            .setStrategyParams(lists.HashMap())
            .setVersion(1)
            .build()
        )
        planned = (
            model.HoodieClusteringPlan.newBuilder()
            .setInputGroups(groups)
            .setStrategy(strategy)
            .setExtraMetadata(lists.HashMap())
            .setPreserveHoodieMetadata(True)
            .setMissingSchedulePartitions(others)
            .setVersion(1)
            .build()
        )
        asked = (
            model.HoodieRequestedReplaceMetadata.newBuilder()
            .setOperationType("CLUSTER")
            .setExtraMetadata(owner(gateway, pipeline).get())
            .setClusteringPlan(planned)
            .build()
        )
        meta = gateway.meta_client(hadoop_path(pipeline.table.path))
        instant = gateway.requested(meta, new_instant_time(gateway, pipeline.table.path), CLUSTERING)
        meta.getActiveTimeline().saveToPendingClusterCommit(instant, asked)


def _slice(gateway: Gateway, pipeline: Pipeline, file: Slice) -> Any:
    return (
        gateway.hudi.avro.model.HoodieSliceInfo.newBuilder()
        .setDataFilePath(f"{hadoop_path(pipeline.table.path)}/{file.name}")
        .setDeltaFilePaths(gateway.jvm.java.util.ArrayList())
        .setFileId(file.group)
        .setPartitionPath(file.partition)
        .setBootstrapFilePath("")
        .setVersion(1)
        .build()
    )


def _seen(storage: Storage, name: str) -> tuple[set[str], bool]:
    """A file's columns; and whether an older version wrote old dates, or NaN that its statistics leave out."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(storage.full(name), filesystem=storage.filesystem) as file:
        told = file.metadata.metadata or {}
        columns = set(file.schema_arrow.names)
        if not file.metadata.created_by.startswith(_OURS) or next(iter(FOOTER)).encode() in told:
            return columns, False
        return columns, _has_old_dates(file.metadata) or _hides_nan(file)


def _has_old_dates(footer: pq.FileMetaData) -> bool:
    for chunk in _chunks(footer):
        first = _FIRST.get(chunk.statistics.logical_type.type) if chunk.statistics is not None else None
        # The stored numbers, since Python has no year 10000.
        if first is not None and chunk.statistics.has_min_max and chunk.statistics.min_raw < first:
            return True
    return False


def _hides_nan(file: pq.ParquetFile) -> bool:
    """Whether a column of floating numbers with statistics has NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = {
        chunk.path_in_schema.split(".")[0]
        for chunk in _chunks(file.metadata)
        if chunk.physical_type in ("FLOAT", "DOUBLE") and chunk.statistics is not None
    }
    for group in range(file.num_row_groups if names else 0):
        table = file.read_row_group(group, sorted(names))
        for name in table.column_names:
            for _, part in leaves(name, table[name].combine_chunks()):
                if pa.types.is_floating(part.type) and pc.any(pc.is_nan(part)).as_py():
                    return True
    return False


def _chunks(footer: pq.FileMetaData) -> Iterator[Any]:
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            yield footer.row_group(group).column(column)
