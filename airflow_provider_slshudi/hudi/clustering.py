"""Clustering (hudi.apache.org/docs/clustering, read in 1.2.0), in three parts.

A plan is put on the timeline; files are written as it says; the files become the table's. In between a manifest lies
beside the timeline: Hudi's own commit metadata, as JSON. Nothing here decides anything: callers hold the leases and
have read the timeline. A plan carries the pipeline's name, so that nobody else's is taken for ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.config import Clustering, Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableError
from airflow_provider_slshudi.hudi import exchange
from airflow_provider_slshudi.hudi.commit import client
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Instant, Timeline

_OWNER = "slshudi.service"
_METADATA = "org.apache.hudi.common.model.HoodieReplaceCommitMetadata"
# Hudi's order of columns that lies along a curve.
_ORDERS = {"linear": "linear", "zorder": "z-order"}

# Hudi's row writer puts a filter of keys into each file, 430 KB as it comes; nothing here looks rows up by it.
_SMALL_FILTER = {
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.5",
}


@dataclass(frozen=True)
class Written:
    """What a clustering made of what.

    Attributes:
        metadata: Hudi's own commit metadata, as its JSON.
        read_files, read_bytes: the files that were read, and their bytes.
        paths, bytes: the files that were written, by their paths within the table, and their bytes.
    """

    metadata: str
    read_files: int
    read_bytes: int
    paths: list[str]
    bytes: int


def plan_clustering(gateway: Gateway, pipeline: Pipeline) -> None:
    """Puts a clustering on the timeline, REQUESTED, where a partition has small files; raises as Hudi."""
    with client(gateway, pipeline, _clustering_options(pipeline)) as writer:
        writer.scheduleClustering(_owner(gateway, pipeline))


def cluster(gateway: Gateway, pipeline: Pipeline, instant: str, inflight: Callable[[], None]) -> Written:
    """Writes the files of a planned clustering, with every row as it was; `inflight` is called once it is INFLIGHT.

    Raises:
        TableError: the files hold other rows than those they are to replace.
    """
    with client(gateway, pipeline, _clustering_options(pipeline)) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
        plan = gateway.hudi.common.util.ClusteringUtils.getPendingClusteringPlan(table.getMetaClient(), instant)
        slices = [item for group in plan.getInputGroups() for item in group.getSlices()]
        made = table.cluster(engine, instant)
        inflight()
        stats = _stats(gateway, pipeline, instant, made)
        metadata = made.getCommitMetadata().get()
        for stat in stats:
            metadata.addWriteStat(stat.getPartitionPath(), stat)
        made.setWriteStats(stats)
        replaced = gateway.hudi.util.CommonClientUtils.getPartitionToReplacedFileIds(plan, made, config)
        metadata.setPartitionToReplaceFileIds(replaced)
        storage = Storage(pipeline.table.path)
        read = [storage.relative(item.getDataFilePath()) for item in slices]
        files, size = [str(stat.getPath()) for stat in stats], sum(stat.getFileSizeInBytes() for stat in stats)
        there, written = _rows(storage, read), sum(stat.getNumWrites() for stat in stats)
        if there != written or sum(len(ids) for ids in replaced.values()) != len(read):
            storage.delete_files(files)
            raise TableError(
                f"{storage.uri}: clustering {instant} wrote {written} rows in the place of {there} in {len(read)} "
                "files; it is not completed, and the next run rolls it back",
                table=storage.uri,
                instant=instant,
            )
        return Written(str(metadata.toJsonString()), len(read), sum(map(storage.size, read)), files, size)


def complete_clustering(
    gateway: Gateway, pipeline: Pipeline, instant: str, metadata: str, in_time: Callable[[], None]
) -> None:
    """Completes an INFLIGHT clustering as Hudi does; `in_time` is called before, and raises where it is too late.

    Files that are marked and not listed go, the metadata table is told, the instant is completed, the markers go.
    """
    found = gateway.hudi.common.model.HoodieCommitMetadata.fromJsonString(metadata, gateway.java_class(_METADATA))
    with client(gateway, pipeline) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
        # The newest instant says what the table's columns are: those of now, not of when the files were written.
        found.addMetadata(gateway.hudi.common.model.HoodieCommitMetadata.SCHEMA_KEY, config.getSchema())
        in_time()
        table.finalizeWrite(engine, instant, found.getWriteStats())
        metadata_writer = table.getMetadataWriter(instant)
        if metadata_writer.isPresent():
            try:
                metadata_writer.get().update(found, instant)
            finally:
                metadata_writer.get().close()
        timeline, generator = table.getActiveTimeline(), table.getMetaClient().getInstantGenerator()
        utils = gateway.hudi.common.util.ClusteringUtils
        inflight = utils.getInflightClusteringInstant(instant, timeline, generator).get()
        timeline.transitionClusterInflightToComplete(False, inflight, found)
        markers = gateway.hudi.table.marker.WriteMarkersFactory.get(config.getMarkersType(), table, instant)
        markers.quietDeleteMarkerDir(engine, config.getMarkersDeleteParallelism())


def read_manifest(storage: Storage, instant: str) -> Written:
    """What a clustering left.

    Raises:
        ManifestError: it did not end well.
    """
    content = storage.read(_path(instant))
    if content is None:
        raise ManifestError(
            f"{storage.uri}: no manifest for instant {instant}: what was to write its files did not end well",
            table=storage.uri,
            transaction="",
            instant=instant,
        )
    return Written(**json.loads(content))


def write_manifest(storage: Storage, instant: str, written: Written) -> None:
    """Leaves what a clustering wrote: its last act."""
    storage.write(_path(instant), json.dumps(asdict(written)).encode())


def manifests(storage: Storage) -> list[str]:
    """The instants that have one; those of completed clusterings too, where their run died before it removed it."""
    names = storage.names(exchange.folder("").rstrip("/")) or []
    return [name for name in names if name.isdigit() and has_manifest(storage, name)]


def has_manifest(storage: Storage, instant: str) -> bool:
    """Whether the instant's files are all written."""
    return storage.exists(_path(instant))


def planned_by_us(timeline: Timeline, instant: Instant, pipeline: str) -> bool:
    """Whether this pipeline's services planned a pending instant; a plan that was cut off is nobody else's work."""
    plan = timeline.plan(instant)
    return not plan or (plan.get("extraMetadata") or {}).get(_OWNER) == pipeline


def _path(instant: str) -> str:
    return f"{exchange.folder(instant)}/clustering.json"


def _owner(gateway: Gateway, pipeline: Pipeline) -> Any:
    extra = gateway.jvm.java.util.HashMap()
    extra.put(_OWNER, pipeline.name)
    return gateway.hudi.common.util.Option.of(extra)


def _stats(gateway: Gateway, pipeline: Pipeline, instant: str, made: Any) -> Any:
    """The write stats of all files; this is where they are written."""
    stats = gateway.jvm.java.util.ArrayList()
    for status in made.getWriteStatuses().collectAsList():
        if status.hasErrors():
            raise TableError(
                f"{pipeline.table.path}: instant {instant} could not write {status.getTotalErrorRecords()} rows",
                table=pipeline.table.path,
                instant=instant,
            )
        stats.add(status.getStat())
    return stats


def _rows(storage: Storage, files: list[str]) -> int:
    """Rows of base files, from their footers."""
    from pyarrow import dataset

    found = dataset.dataset([storage.full(file) for file in files], filesystem=storage.filesystem, format="parquet")
    return int(found.count_rows())


def _clustering_options(pipeline: Pipeline) -> dict[str, str]:
    wanted = pipeline.maintenance.clustering or Clustering()
    options = {
        "hoodie.clustering.plan.strategy.small.file.limit": str(wanted.small_file),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(wanted.target_file),
        # A file that is alone in its partition would be written anew for nothing, each time.
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "false",
        "hoodie.parquet.compression.codec": "zstd",
        **_SMALL_FILTER,
    }
    if wanted.sort:
        options["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(wanted.sort)
        options["hoodie.layout.optimize.strategy"] = _ORDERS[wanted.order]
    return options
