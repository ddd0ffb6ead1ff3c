"""The quarantine's table and its instants, see `hudi.quarantine`.

Nothing here decides anything: callers hold the pipeline's lease, or do the append of an instant that is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import PipelineConflict, TableMismatch
from airflow_provider_slshudi.hudi import markers, properties
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION, PIPELINE_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.hudi.quarantine import (
    gone,
    is_completed,
    is_pending,
    keep_place,
    may_complete,
    require_known,
    require_there,
    table_of,
)
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point, reach


def make_table(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Makes the quarantine if there never was one, for an instant that is about to be opened; of its table's version.

    Raises:
        TimelineUnreadable: a quarantine was made here and is missing now.
    """
    quarantine, main = table_of(pipeline), Storage(pipeline.table.path)
    aside = Storage(quarantine.table.path)
    require_known(main, aside)
    if not aside.exists(PROPERTIES):
        version = (properties.read(main) or {}).get(properties.VERSION)
        table = quarantine.table.model_copy(update={"version": version and int(version)})
        instants.create_table(gateway, quarantine.model_copy(update={"table": table}))
    keep_place(main, aside, instant)


def open_instant(gateway: Gateway, pipeline: Pipeline, instant: str) -> None:
    """Puts the main table's instant on the quarantine's timeline, INFLIGHT, before any file of it is written.

    Raises:
        TimelineUnreadable: a quarantine was made here and is missing now.
        TableMismatch: another table is there.
        PipelineConflict: another pipeline's quarantine is there.
    """
    quarantine, main = table_of(pipeline), Storage(pipeline.table.path)
    require_there(main, Storage(quarantine.table.path))
    keep_place(main, Storage(quarantine.table.path), instant)
    instants.check_table(gateway, quarantine)
    _refuse_others(pipeline, Storage(quarantine.table.path))
    instants.request(gateway, quarantine.table.path, instant)
    reach(Point.APPEND_QUARANTINE_REQUESTED)
    instants.to_inflight(gateway, quarantine.table.path, instant)
    reach(Point.APPEND_QUARANTINE_OPEN)


def complete(
    gateway: Gateway,
    pipeline: Pipeline,
    instant: str,
    stats: Sequence[Mapping[str, Any]],
    transaction: str,
    in_time: Callable[[], None],
) -> None:
    """Commits the quarantine's part of a batch whose main instant is completed; does nothing if that is done.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: the batch's.
        instant: the batch's, in both tables.
        stats: Hudi's write stats of the quarantine's files, as JSON.
        transaction: the batch's id.
        in_time: raises where it is too late to complete.

    Raises:
        TableMismatch: the instant is not there any more.
    """
    quarantine = table_of(pipeline)
    require_there(Storage(pipeline.table.path), Storage(quarantine.table.path))
    timeline = Timeline.load(Storage(quarantine.table.path))
    if is_completed(timeline, instant):
        return
    if not may_complete(timeline, instant):
        raise gone(quarantine.table.path, instant)
    extra = {TRANSACTION_KEY: transaction, PIPELINE_KEY: pipeline.name}
    commit.commit(gateway, quarantine, instant, stats, extra, in_time)


def roll_back(gateway: Gateway, pipeline: Pipeline, instant: str, path: str) -> None:
    """Takes the instant off the quarantine's timeline and deletes its files; does nothing if it is not there.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: the batch's.
        instant: the batch's, in both tables.
        path: the quarantine that the instant was opened with; empty: the pipeline's.

    Raises:
        TableMismatch: the instant is completed there, although the main table's is not.
    """
    quarantine = table_of(pipeline, path)
    timeline = Timeline.load(Storage(quarantine.table.path))
    if is_completed(timeline, instant):
        raise TableMismatch(
            f"{quarantine.table.path}: instant {instant} is completed here, but pending in {pipeline.table.path}: a "
            "client restored that table. Restore both tables to the same time, then run `slshudi ledger rebuild`",
            table=quarantine.table.path,
            instant=instant,
        )
    if is_pending(timeline, instant):
        markers.drop_misread(Storage(quarantine.table.path), instant)
        commit.roll_back(gateway, quarantine, instant)


def files(gateway: Gateway, pipeline: Pipeline) -> list[Slice]:
    """The quarantine's newest committed base files."""
    return committed_files(gateway, table_of(pipeline))


def _refuse_others(pipeline: Pipeline, storage: Storage) -> None:
    timeline = Timeline.load(storage)
    for instant in reversed(timeline.completed(COMMIT_ACTION)):
        other = timeline.extra_metadata(instant).get(PIPELINE_KEY, "")
        if other and other != pipeline.name:
            raise PipelineConflict(
                f"{storage.uri} is the quarantine of pipeline {other}: give {pipeline.name} another by quarantine.path",
                pipeline=pipeline.name,
                other=other,
            )
        return
