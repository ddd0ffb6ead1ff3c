"""Brings a table to another of Hudi's table versions, by Hudi's own steps (hudi.apache.org/docs/deployment, read in
1.2.0). Hudi never does that by itself: `config.options.PROTOCOL_OPTIONS` forbids it.

Nothing here decides anything: callers hold the pipeline's lease, and nothing is pending on the timelines.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.hudi import moving
from airflow_provider_slshudi.hudi.client import instants, metadata
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.rewriting import by_todays_calendar
from airflow_provider_slshudi.hudi.client.writer import client
from airflow_provider_slshudi.hudi.layout import LAYOUT_1
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.objectstore import hadoop_path
from airflow_provider_slshudi.storage import Storage


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
        metadata.rebuild(gateway, pipeline, lambda: None, bounded)
