"""The table's newest committed base files, by Hudi's own view of the file system."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.objectstore import hadoop_path
from airflow_provider_slshudi.storage import Storage


def committed_files(gateway: Gateway, table: Pipeline) -> list[Slice]:
    """The table's newest committed base files."""
    timeline = Timeline.load(Storage(table.table.path))
    active = {instant.time for instant in timeline.completed(*CHANGES)}
    archived = cache(timeline.archived_changes)
    return _newest(gateway, table, lambda instant: instant in active or instant in archived())


def _newest(gateway: Gateway, table: Pipeline, is_completed: Callable[[str], bool]) -> list[Slice]:
    """The table's newest committed base files, by Hudi's own view of the file system.

    `is_completed` has the last word: Hudi's view takes every instant older than all completed ones for completed.
    """
    meta = gateway.meta_client(hadoop_path(table.table.path))
    engine = gateway.hudi.common.engine.HoodieLocalEngineContext(gateway.storage_conf)
    completed = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
    view = gateway.hudi.common.table.view.HoodieTableFileSystemView.fileListingBasedFileSystemView(
        engine, meta, completed
    )
    try:
        view.loadAllPartitions()
        storage = Storage(table.table.path)
        found = []
        for file in view.getLatestBaseFiles().toArray():
            name = storage.relative(str(file.getPath()))
            found.append(Slice(name, str(file.getFileId()), str(file.getCommitTime()), name.rpartition("/")[0]))
    finally:
        view.close()
    return sorted((file for file in found if is_completed(file.instant)), key=lambda file: file.name)
