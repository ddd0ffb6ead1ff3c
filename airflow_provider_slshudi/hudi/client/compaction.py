"""Compaction of Merge-On-Read (hudi.apache.org/docs/compaction, read in 1.2.0), in the three parts of `rewriting`.

A log file belongs to the newest file slice that was requested before the log file was committed. So a batch that is in
preparation when a compaction is planned, and is committed later, goes on top of the compacted files
(hudi.apache.org/docs/timeline, completion times).
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.actions import COMPACTION as ACTION
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.instants import new_instant_time
from airflow_provider_slshudi.hudi.client.rewriting import FILES, by_todays_calendar, completing, owner, write_stats
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.notes.rewrite import Written
from airflow_provider_slshudi.objectstore import hadoop_path
from airflow_provider_slshudi.storage import Storage

COMPACT_AFTER = "hoodie.compact.inline.max.delta.commits"
_METADATA = "org.apache.hudi.common.model.HoodieCommitMetadata"


def plan(gateway: Gateway, pipeline: Pipeline) -> None:
    """Puts a compaction on the timeline, REQUESTED, after enough commits since the last; raises Hudi's errors."""
    with client(gateway, pipeline, _options(pipeline)) as writer:
        writer.scheduleCompaction(owner(gateway, pipeline))


def write(gateway: Gateway, pipeline: Pipeline, instant: str, inflight: Callable[[], None]) -> Written:
    """Writes the base files of a planned compaction; `inflight` is called once it is INFLIGHT.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is compacted.
        instant: the planned compaction.
        inflight: is called once the instant is INFLIGHT.
    """
    with client(gateway, pipeline, _options(pipeline)) as writer:
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
            made = table.compact(engine, instant)
            inflight()
            stats = write_stats(gateway, pipeline, instant, made)
        stitched = gateway.hudi.util.CommonClientUtils.stitchCompactionHoodieWriteStats(made, stats)
        return Written.of(storage, stitched.getCommitMetadata().get(), stats, read)


def complete(gateway: Gateway, pipeline: Pipeline, instant: str, metadata: str, in_time: Callable[[], None]) -> None:
    """Completes an INFLIGHT compaction as Hudi does; `in_time` is called before, and raises where it is too late.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table is compacted.
        instant: the compaction.
        metadata: Hudi's commit metadata, as JSON.
        in_time: raises where it is too late to complete.
    """
    found = gateway.hudi.common.model.HoodieCommitMetadata.fromJsonString(metadata, gateway.java_class(_METADATA))
    with completing(gateway, pipeline, instant, found, in_time) as table:
        helpers = gateway.hudi.table.action.compact.CompactHelpers.getInstance()
        helpers.completeInflightCompaction(table, instant, found)


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Takes a pending compaction off the timeline and deletes its files, or finishes a rollback of it that has begun.

    Hudi's client never does that: it would put the compaction back to REQUESTED and run it again.
    """
    base, timeline = pipeline.table.path, Timeline.load(Storage(pipeline.table.path))
    found, begun = timeline.get(instant), timeline.rolling_back.get(instant)
    meta = gateway.meta_client(hadoop_path(base))
    if begun is None and found is not None and found.phase is Phase.REQUESTED:
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


def _options(pipeline: Pipeline) -> dict[str, str]:
    return {
        "hoodie.compact.inline.trigger.strategy": "NUM_COMMITS",
        COMPACT_AFTER: str(pipeline.maintenance.compact_after),
        **FILES,
    }
