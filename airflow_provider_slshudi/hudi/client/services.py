"""Table services with Hudi's write client (hudi.apache.org/docs/cleaning, /docs/archival, read in 1.2.0).

Their client has the protocol's options like all our clients, so it clears no failed writes: pending instants stay.
Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.hudi import moving
from airflow_provider_slshudi.hudi.client import instants, metadata_table
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.instants import new_instant_time
from airflow_provider_slshudi.hudi.client.rewriting import COMPACT_AFTER, by_todays_calendar
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, METADATA_FOLDER
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path

# A table that only grows has nothing to clean. Without a clean once in a while each plan would look at all partitions.
_EMPTY_CLEAN_HOURS = "24"


def plan_clean(gateway: Gateway, pipeline: Pipeline, keep: str = "") -> None:
    """Puts a clean on the timeline, REQUESTED, where there is something to delete.

    It never names whole partition folders: a batch may be writing there.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: whose table it is.
        keep: files stay that a snapshot of this instant or of a later one has; empty: as the pipeline's file says.
    """
    with client(gateway, pipeline, {**_options(pipeline), **_kept_longer(pipeline, keep)}) as writer:
        engine = writer.getEngineContext()
        table = gateway.hudi.table.HoodieSparkTable.create(writer.getConfig(), engine)
        option = gateway.hudi.common.util.Option
        planned = table.createCleanerPlan(engine, option.empty())
        if not planned.isPresent():
            return
        plan = planned.get()
        if plan.getPartitionsToBeDeleted():
            plan.setPartitionsToBeDeleted(gateway.jvm.java.util.ArrayList())
            if not any(len(files) for files in plan.getFilePathsToBeDeletedPerPartition().values()):
                return
        instant = gateway.requested(table.getMetaClient(), new_instant_time(gateway, pipeline.table.path), "clean")
        table.getActiveTimeline().saveToCleanRequested(instant, option.of(plan))


def clean(gateway: Gateway, pipeline: Pipeline) -> None:
    """Carries out the pending clean, and plans no other."""
    with client(gateway, pipeline, _options(pipeline)) as writer:
        writer.clean()


def archive(gateway: Gateway, pipeline: Pipeline, keep: str = "") -> None:
    """Moves the oldest instants from the active timeline into the archive, none from the oldest pending one on.

    `keep` is an instant that stays, with all later ones; empty: as the pipeline's file says.

    Hudi archives only what the metadata table has compacted. It compacts when its client starts a commit, which ours
    never does. So this compacts, cleans and archives the metadata table itself first; in layout 1 only while nothing is
    pending, see `metadata_table.require_none_later`.
    """
    tables = pipeline.table.path, f"{pipeline.table.path}/{METADATA_FOLDER}"
    timeline, of_metadata = (Timeline.load(Storage(table)) for table in tables)
    for one in (timeline, of_metadata):
        one.require_archive()
    options = _options(pipeline)
    if keep:
        needed = sum(instant.time >= keep for instant in timeline.completed(*CHANGES))
        options |= _archival(max(needed, pipeline.maintenance.min_commits), pipeline.maintenance.max_commits)
    with client(gateway, pipeline, options) as writer:
        if timeline.layout is not LAYOUT_1 or not timeline.pending():
            _serve_metadata_table(gateway, writer)
        writer.archive()


def _serve_metadata_table(gateway: Gateway, writer: Any) -> None:
    config, engine = writer.getConfig(), writer.getEngineContext()
    table_config = gateway.hudi.table.HoodieSparkTable.create(config, engine).getMetaClient().getTableConfig()
    if not config.isMetadataTableEnabled() or not table_config.isMetadataTableAvailable():
        return
    # The class goes by the table's version: that of version 6 compacts at the time of its newest entry, not of now.
    metadata = gateway.hudi.metadata.SparkMetadataWriterFactory.create(
        gateway.storage_conf, config, engine, table_config
    )
    try:
        metadata.performTableServices(gateway.hudi.common.util.Option.empty(), True)
    finally:
        metadata.close()


def _kept_longer(pipeline: Pipeline, needed: str) -> dict[str, str]:
    """Options by which Hudi keeps as much as the pipeline's file says, not less, and all from `needed` on.

    Hudi counts from the time at which an instant was planned. Readers may read files that a clustering replaces until
    it is completed, minutes or hours later, so they would have that much less time.
    """
    keep, timeline = pipeline.maintenance.keep, Timeline.load(Storage(pipeline.table.path))
    times = sorted((item.completion or "", item.time) for item in timeline.completed(*CHANGES))
    if keep.commits is not None:
        first = min((planned for _, planned in times[-keep.commits :]), default="")
        first = min(first, needed or first)
        count = max(keep.commits, sum(planned >= first for _, planned in times))
        options = {"hoodie.clean.commits.retained": str(count)}
        # Hudi demands that archival keeps more commits; this client does not archive.
        return options | _archival(count + 1)
    longest = max((_time(completed) - _time(planned) for completed, planned in times), default=timedelta())
    hours = (keep.hours or 0) + math.ceil(longest / timedelta(hours=1))
    if needed:
        # Tables' times are of UTC, see `client.clock`. A part of an hour passes until Hudi counts.
        age = datetime.now(timezone.utc).replace(tzinfo=None) - _time(needed)
        hours = max(hours, math.ceil(age / timedelta(hours=1)) + 1)
    return {"hoodie.clean.hours.retained": str(hours)}


def _archival(least: int, most: int = 0) -> dict[str, str]:
    """Options by which archival begins beyond so many commits, more than the least, and leaves the least."""
    return {"hoodie.keep.min.commits": str(least), "hoodie.keep.max.commits": str(max(most, least + 1))}


def _time(instant: str) -> datetime:
    return datetime.strptime(instant[:14], "%Y%m%d%H%M%S")


def _options(pipeline: Pipeline) -> dict[str, str]:
    maintenance = pipeline.maintenance
    if maintenance.keep.commits is not None:
        keep = {
            "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
            "hoodie.clean.commits.retained": str(maintenance.keep.commits),
        }
    else:
        keep = {
            "hoodie.clean.policy": "KEEP_LATEST_BY_HOURS",
            "hoodie.clean.hours.retained": str(maintenance.keep.hours),
        }
    return {
        **keep,
        "hoodie.write.empty.clean.interval.hours": _EMPTY_CLEAN_HOURS,
        **_archival(maintenance.min_commits, maintenance.max_commits),
        # Archival leaves this many commits whose log files no compaction has read.
        **({COMPACT_AFTER: str(maintenance.compact_after)} if pipeline.compacts else {}),
    }


def change(gateway: Gateway, pipeline: Pipeline, changed: Callable[[], None]) -> None:
    """Makes the table one of the version that `pipeline.table.version` says; calls `changed` after Hudi's own steps.

    Hudi drops the bounds of columns on the way to version 8, so the metadata table is made anew with them; version 6
    has none. If this is cut off, it may be repeated, from or to version 6 after `moving.put_back`; `slshudi table mend`
    adds bounds that are lost then.

    Raises:
        TableError: as `moving.end`.
    """
    storage, to = Storage(pipeline.table.path), pipeline.table.version
    upgrade, versions = gateway.hudi.table.upgrade, gateway.hudi.common.table.HoodieTableVersion
    bounded = Indexes.of(storage).bounded
    timeline = Timeline.load(storage)
    moves = timeline.layout is LAYOUT_1 or to == FORMER_VERSION
    before = moving.completed(storage) if moves else set()
    with client(gateway, pipeline, timeline=timeline) as writer, by_todays_calendar(writer.getEngineContext()):
        if moves:
            moving.begin(storage)
        config = writer.getConfig()
        config.setValue("hoodie.write.auto.upgrade", "true")
        meta = gateway.meta_client(hadoop_path(pipeline.table.path))
        helper = upgrade.SparkUpgradeDowngradeHelper.getInstance()
        steps = upgrade.UpgradeDowngrade(meta, config, writer.getEngineContext(), helper)
        steps.run(versions.fromVersionCode(to), None)
    changed()
    if moves:
        storage.sync()
        moving.end(storage, before)
    instants.name_ordering(storage, pipeline.table)
    if Indexes.of(storage).bounded != bounded and to != FORMER_VERSION:
        metadata_table.rebuild(gateway, pipeline, lambda: None, bounded)
