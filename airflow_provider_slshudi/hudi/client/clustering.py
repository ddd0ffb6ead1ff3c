"""Clustering (hudi.apache.org/docs/clustering, read in 1.2.0), in the three parts of `rewriting`."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_slshudi.config.maintenance import Clustering
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.rewriting import FILES, by_todays_calendar, completing, owner, write_stats
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.notes.rewrite import Written
from airflow_provider_slshudi.storage import Storage

_METADATA = "org.apache.hudi.common.model.HoodieReplaceCommitMetadata"
# The pipeline file's sort orders -> Hudi's names.
_ORDERS = {"linear": "linear", "zorder": "z-order"}


def plan(gateway: Gateway, pipeline: Pipeline) -> None:
    """Puts a clustering on the timeline, REQUESTED, if a partition has small files; raises Hudi's errors."""
    with client(gateway, pipeline, options(pipeline)) as writer:
        writer.scheduleClustering(owner(gateway, pipeline))


def write(gateway: Gateway, pipeline: Pipeline, instant: str, inflight: Callable[[], None]) -> Written:
    """Writes the files of a planned clustering, with every row as it was; `inflight` is called once it is INFLIGHT.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is clustered.
        instant: the planned clustering.
        inflight: is called once the instant is INFLIGHT.

    Raises:
        TableError: the new files hold more or fewer rows than the old ones, or do not replace all of these.
    """
    with client(gateway, pipeline, options(pipeline)) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(config, engine)
        planned = gateway.hudi.common.util.ClusteringUtils.getPendingClusteringPlan(table.getMetaClient(), instant)
        slices = [item for group in planned.getInputGroups() for item in group.getSlices()]
        with by_todays_calendar(engine):
            made = table.cluster(engine, instant)
            inflight()
            stats = write_stats(gateway, pipeline, instant, made)
        metadata = made.getCommitMetadata().get()
        for stat in stats:
            metadata.addWriteStat(stat.getPartitionPath(), stat)
        made.setWriteStats(stats)
        replaced = gateway.hudi.util.CommonClientUtils.getPartitionToReplacedFileIds(planned, made, config)
        metadata.setPartitionToReplaceFileIds(replaced)
        storage = Storage(pipeline.table.path)
        read = [storage.relative(item.getDataFilePath()) for item in slices]
        written = Written.of(storage, metadata, stats, read)
        there, rows = _rows(storage, read), sum(stat.getNumWrites() for stat in stats)
        if there != rows or sum(len(ids) for ids in replaced.values()) != len(read):
            storage.delete_files(written.paths)
            raise TableError(
                f"{storage.uri}: clustering {instant} wrote {rows} rows where the {len(read)} files that it replaces "
                f"have {there}, or did not replace all of them; it is not completed, and the next run rolls it back",
                table=storage.uri,
                instant=instant,
            )
        return written


def complete(gateway: Gateway, pipeline: Pipeline, instant: str, metadata: str, in_time: Callable[[], None]) -> None:
    """Completes an INFLIGHT clustering as Hudi does; `in_time` is called before, and raises where it is too late.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is clustered.
        instant: the clustering.
        metadata: Hudi's commit metadata, as JSON.
        in_time: raises where it is too late to complete.
    """
    found = gateway.hudi.common.model.HoodieCommitMetadata.fromJsonString(metadata, gateway.java_class(_METADATA))
    with completing(gateway, pipeline, instant, found, in_time) as table:
        timeline, generator = table.getActiveTimeline(), table.getMetaClient().getInstantGenerator()
        utils = gateway.hudi.common.util.ClusteringUtils
        inflight = utils.getInflightClusteringInstant(instant, timeline, generator).get()
        timeline.transitionClusterInflightToComplete(False, inflight, found)


def _rows(storage: Storage, files: list[str]) -> int:
    """Rows of base files, from their footers."""
    from pyarrow import dataset

    found = dataset.dataset([storage.full(file) for file in files], filesystem=storage.filesystem, format="parquet")
    return int(found.count_rows())


def options(pipeline: Pipeline) -> dict[str, str]:
    """The options of Hudi's client for clustering."""
    wanted = pipeline.maintenance.clustering or Clustering()
    options = {
        "hoodie.clustering.plan.strategy.small.file.limit": str(wanted.small_file),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(wanted.target_file),
        # A file that is alone in its partition would be written anew for nothing, each time.
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "false",
        **FILES,
    }
    if wanted.sort:
        options["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(wanted.sort)
        options["hoodie.layout.optimize.strategy"] = _ORDERS[wanted.order]
    return options
