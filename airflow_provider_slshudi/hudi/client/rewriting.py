"""The steps that clustering and compaction share: both replace files by others, in three parts.

The first puts a plan on the timeline, the second writes the files and leaves a manifest, the third makes them the
table's. The manifest is Hudi's own commit metadata, as JSON, beside the timeline. Nothing here decides anything:
callers hold the leases and have read the timeline. A plan of ours carries the pipeline's name, to tell it from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_slshudi.config.maintenance import Clustering
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.handover.rewrite_plan import Written
from airflow_provider_slshudi.hudi.client import commit
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.instants import new_instant_time
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.hudi.instant_metadata import COMPACTION as ACTION
from airflow_provider_slshudi.hudi.instant_metadata import OWNER
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

FILES = {
    "hoodie.parquet.compression.codec": "zstd",
    # Hudi puts a filter of keys into each file, by default of 430 KB; nothing here looks rows up by it.
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.5",
}
"""Options by which Hudi writes base files."""
_CALENDAR = {
    f"spark.sql.parquet.{what}RebaseModeIn{way}": "CORRECTED"
    for what in ("datetime", "int96")
    for way in ("Read", "Write")
}


@contextmanager
def by_todays_calendar(engine: Any) -> Iterator[None]:
    """In the block Spark reads and writes old dates and times as they stand.

    Otherwise it refuses dates before 1582 and times before 1900 when it writes, and when it reads a file whose footer
    does not name the calendar (spark.apache.org/docs/3.5.9/sql-data-sources-parquet).
    """
    settings, context = engine.getSqlContext(), engine.getJavaSparkContext()
    before = {name: settings.getConf(name) for name in _CALENDAR}

    def put(name: str, value: str, of_jobs: str | None) -> None:
        settings.setConf(name, value)
        # Tasks outside a query see these settings only.
        context.setLocalProperty(name, of_jobs)

    for name, value in _CALENDAR.items():
        put(name, value, value)
    try:
        yield
    finally:
        for name, value in before.items():
            put(name, value, None)


def owner(gateway: Gateway, pipeline: Pipeline) -> Any:
    """The extra metadata of this pipeline's plans."""
    extra = gateway.jvm.java.util.HashMap()
    extra.put(OWNER, pipeline.name)
    return gateway.hudi.common.util.Option.of(extra)


def write_stats(gateway: Gateway, pipeline: Pipeline, instant: str, made: Any) -> Any:
    """Writes the files, which Spark does only when asked for results; returns their write stats.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is rewritten.
        instant: the clustering or compaction.
        made: Hudi's write metadata (HoodieWriteMetadata), not computed yet.
    """
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


@contextmanager
def completing(
    gateway: Gateway, pipeline: Pipeline, instant: str, manifest: tuple[str, str], in_time: Callable[[], None]
) -> Iterator[tuple[Any, Any]]:
    """`commit.completing` with `in_time` for both of its looks; gives the table, and the manifest as Hudi's object.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is rewritten.
        instant: the clustering or compaction.
        manifest: Hudi's commit metadata, as JSON, and its class.
        in_time: raises where it is too late to complete.
    """
    text, kind = manifest
    metadata = gateway.hudi.common.model.HoodieCommitMetadata.fromJsonString(text, gateway.java_class(kind))
    with client(gateway, pipeline) as writer:
        storage = Storage(pipeline.table.path)
        # Readers take the columns from the newest instant: so today's, not those of when the files were written.
        schema = writer.getConfig().getSchema()
        metadata.addMetadata(gateway.hudi.common.model.HoodieCommitMetadata.SCHEMA_KEY, schema)
        with commit.completing(gateway, writer, storage, instant, metadata, in_time, in_time) as table:
            yield table, metadata


_REPLACE_METADATA = "org.apache.hudi.common.model.HoodieReplaceCommitMetadata"
# The pipeline file's sort orders -> Hudi's names.
_ORDERS = {"linear": "linear", "zorder": "z-order"}


def plan_clustering(gateway: Gateway, pipeline: Pipeline) -> None:
    """Puts a clustering on the timeline, REQUESTED, if a partition has small files; raises Hudi's errors."""
    with client(gateway, pipeline, clustering_options(pipeline)) as writer:
        writer.scheduleClustering(owner(gateway, pipeline))


def cluster(gateway: Gateway, pipeline: Pipeline, instant: str, inflight: Callable[[], None]) -> Written:
    """Writes the files of a planned clustering, with every row as it was; `inflight` is called once it is INFLIGHT.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is clustered.
        instant: the planned clustering.
        inflight: is called once the instant is INFLIGHT.

    Raises:
        TableError: the new files hold more or fewer rows than the old ones, or do not replace all of these.
    """
    with client(gateway, pipeline, clustering_options(pipeline)) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
        planned = gateway.hudi.common.util.ClusteringUtils.getPendingClusteringPlan(table.getMetaClient(), instant)
        slices = [item for group in planned.getInputGroups() for item in group.getSlices()]
        with by_todays_calendar(engine):
            write_metadata = table.cluster(engine, instant)
            inflight()
            stats = write_stats(gateway, pipeline, instant, write_metadata)
        metadata = write_metadata.getCommitMetadata().get()
        for stat in stats:
            metadata.addWriteStat(stat.getPartitionPath(), stat)
        write_metadata.setWriteStats(stats)
        replaced = gateway.hudi.util.CommonClientUtils.getPartitionToReplacedFileIds(planned, write_metadata, config)
        metadata.setPartitionToReplaceFileIds(replaced)
        storage = Storage(pipeline.table.path)
        read = [storage.relative(item.getDataFilePath()) for item in slices]
        written = Written.of(storage, metadata, stats, read)
        old_rows, rows = _rows(storage, read), sum(stat.getNumWrites() for stat in stats)
        if old_rows != rows or sum(len(ids) for ids in replaced.values()) != len(read):
            storage.delete_files(written.paths)
            raise TableError(
                f"{storage.uri}: clustering {instant} wrote {rows} rows where the {len(read)} files that it replaces "
                f"have {old_rows}, or did not replace all of them; it is not completed, and the next run rolls it back",
                table=storage.uri,
                instant=instant,
            )
        return written


def complete_clustering(
    gateway: Gateway, pipeline: Pipeline, instant: str, metadata: str, in_time: Callable[[], None]
) -> None:
    """Completes an INFLIGHT clustering as Hudi does; `in_time` is called before, and raises where it is too late.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is clustered.
        instant: the clustering.
        metadata: Hudi's commit metadata, as JSON.
        in_time: raises where it is too late to complete.
    """
    with completing(gateway, pipeline, instant, (metadata, _REPLACE_METADATA), in_time) as (table, commit_metadata):
        timeline, generator = table.getActiveTimeline(), table.getMetaClient().getInstantGenerator()
        utils = gateway.hudi.common.util.ClusteringUtils
        inflight = utils.getInflightClusteringInstant(instant, timeline, generator).get()
        timeline.transitionClusterInflightToComplete(False, inflight, commit_metadata)


def _rows(storage: Storage, files: list[str]) -> int:
    """Rows of base files, from their footers."""
    from pyarrow import dataset

    base_files = dataset.dataset(
        [storage.full(file) for file in files], filesystem=storage.filesystem, format="parquet"
    )
    return int(base_files.count_rows())


def clustering_options(pipeline: Pipeline) -> dict[str, str]:
    """The options of Hudi's client for clustering."""
    clustering = pipeline.maintenance.clustering or Clustering()
    options = {
        "hoodie.clustering.plan.strategy.small.file.limit": str(clustering.small_file),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(clustering.target_file),
        # A file that is alone in its partition would be written anew for nothing, each time.
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "false",
        **FILES,
    }
    if clustering.sort:
        options["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(clustering.sort)
        options["hoodie.layout.optimize.strategy"] = _ORDERS[clustering.order]
    return options


COMPACT_AFTER = "hoodie.compact.inline.max.delta.commits"
_COMMIT_METADATA = "org.apache.hudi.common.model.HoodieCommitMetadata"


def plan_compaction(gateway: Gateway, pipeline: Pipeline) -> None:
    """Puts a compaction on the timeline, REQUESTED, after enough commits since the last; raises Hudi's errors."""
    with client(gateway, pipeline, _compaction_options(pipeline)) as writer:
        writer.scheduleCompaction(owner(gateway, pipeline))


def compact(gateway: Gateway, pipeline: Pipeline, instant: str, inflight: Callable[[], None]) -> Written:
    """Writes the base files of a planned compaction; `inflight` is called once it is INFLIGHT.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is compacted.
        instant: the planned compaction.
        inflight: is called once the instant is INFLIGHT.
    """
    with client(gateway, pipeline, _compaction_options(pipeline)) as writer:
        engine, storage = writer.getEngineContext(), Storage(pipeline.table.path)
        table = gateway.hudi.table.HoodieSparkTable.create(writer.getConfig(), engine)
        planned = gateway.hudi.common.util.CompactionUtils.getCompactionPlan(table.getMetaClient(), instant)
        read = [
            f"{operation.getPartitionPath()}/{name}".lstrip("/")
            for operation in planned.getOperations()
            for name in (*operation.getDeltaFilePaths(), operation.getDataFilePath())
            if name
        ]
        with by_todays_calendar(engine):
            write_metadata = table.compact(engine, instant)
            inflight()
            stats = write_stats(gateway, pipeline, instant, write_metadata)
        stitched = gateway.hudi.util.CommonClientUtils.stitchCompactionHoodieWriteStats(write_metadata, stats)
        return Written.of(storage, stitched.getCommitMetadata().get(), stats, read)


def complete_compaction(
    gateway: Gateway, pipeline: Pipeline, instant: str, metadata: str, in_time: Callable[[], None]
) -> None:
    """Completes an INFLIGHT compaction as Hudi does; `in_time` is called before, and raises where it is too late.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is compacted.
        instant: the compaction.
        metadata: Hudi's commit metadata, as JSON.
        in_time: raises where it is too late to complete.
    """
    with completing(gateway, pipeline, instant, (metadata, _COMMIT_METADATA), in_time) as (table, commit_metadata):
        helpers = gateway.hudi.table.action.compact.CompactHelpers.getInstance()
        helpers.completeInflightCompaction(table, instant, commit_metadata)


def roll_back_compaction(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending compaction off the timeline and deletes its files, or finishes a rollback of it that has begun.

    Hudi's client never does that: it would put the compaction back to REQUESTED and run it again.
    """
    base, timeline = pipeline.table.path, Timeline.load(Storage(pipeline.table.path))
    compaction, begun = timeline.get(instant), timeline.rolling_back.get(instant)
    meta = gateway.meta_client(hadoop_path(base))
    if begun is None and compaction is not None and compaction.phase is Phase.REQUESTED:
        # It wrote nothing; and Hudi cannot read the table while a plan is there that was cut off.
        meta.getActiveTimeline().deleteCompactionRequested(gateway.requested(meta, instant, ACTION))
        return
    with client(gateway, pipeline) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
        inflight = gateway.inflight(meta, instant, ACTION)
        time = begun.time if begun else new_instant_time(gateway, base)
        if begun is None:
            table.scheduleRollback(engine, time, inflight, False, config.shouldRollbackUsingMarkers(), False)
        table.rollback(engine, time, inflight, True, False)


def _compaction_options(pipeline: Pipeline) -> dict[str, str]:
    return {
        "hoodie.compact.inline.trigger.strategy": "NUM_COMMITS",
        COMPACT_AFTER: str(pipeline.maintenance.compact_after),
        **FILES,
    }
