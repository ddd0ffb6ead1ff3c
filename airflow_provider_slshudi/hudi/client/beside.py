"""Tables beside the main one and their instants, see `hudi.beside`.

Nothing here decides anything: callers hold the pipeline's lease, or do the append of an instant that is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_provider_slshudi.exceptions import PipelineConflict, TableMismatch
from airflow_provider_slshudi.handover.batch_files import QUARANTINE
from airflow_provider_slshudi.hudi import markers, properties
from airflow_provider_slshudi.hudi.beside import (
    Beside,
    gone,
    is_completed,
    is_pending,
    keep_place,
    may_complete,
    require_known,
    require_there,
)
from airflow_provider_slshudi.hudi.client import commit, instants
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION, PIPELINE_KEY, TRANSACTION_KEY
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.system.points import Point, reach


def make_table(gateway: Gateway, beside: Beside, instant: str) -> None:
    """Makes the table if there never was one, for an instant that is about to be opened; of the main table's version.

    Raises:
        TimelineUnreadable: the table was made here and is missing now.
    """
    require_known(beside)
    if not beside.storage.exists(PROPERTIES):
        version = (properties.read(beside.main) or {}).get(properties.VERSION)
        table = beside.pipeline.table.model_copy(update={"version": version and int(version)})
        instants.create_table(gateway, beside.pipeline.model_copy(update={"table": table}))
    keep_place(beside, instant)


def open_instant(gateway: Gateway, beside: Beside, instant: str) -> None:
    """Puts the main table's instant on the table's timeline, INFLIGHT, before any file of it is written.

    Raises:
        TimelineUnreadable: the table was made here and is missing now.
        TableMismatch: another table is there.
        PipelineConflict: another pipeline's table is there.
    """
    require_there(beside)
    keep_place(beside, instant)
    instants.check_table(gateway, beside.pipeline)
    _refuse_others(beside)
    instants.request(gateway, beside.storage.uri, instant)
    reach(Point.APPEND_QUARANTINE_REQUESTED)
    instants.to_inflight(gateway, beside.storage.uri, instant)
    reach(Point.APPEND_QUARANTINE_OPEN)


def complete(
    gateway: Gateway,
    beside: Beside,
    instant: str,
    stats: Sequence[Mapping[str, Any]],
    transaction: str,
    in_time: Callable[[], None],
) -> None:
    """Commits the table's part of a batch whose main instant is completed; does nothing if that is done.

    Args:
        gateway: of a driver with a SparkContext.
        beside: the table.
        instant: the batch's, in all tables.
        stats: Hudi's write stats of the table's files, as JSON.
        transaction: the batch's id.
        in_time: raises where it is too late to complete.

    Raises:
        TableMismatch: the instant is not there any more.
    """
    require_there(beside)
    timeline = Timeline.load(beside.storage)
    if is_completed(timeline, instant):
        return
    if not may_complete(timeline, instant):
        raise gone(beside, instant)
    extra = {TRANSACTION_KEY: transaction, PIPELINE_KEY: beside.pipeline.name}
    commit.commit(gateway, beside.pipeline, instant, stats, extra, in_time)


def roll_back(gateway: Gateway, beside: Beside, instant: str) -> None:
    """Takes the instant off the table's timeline and deletes its files; does nothing if it is not there.

    Args:
        gateway: of a driver with a SparkContext.
        beside: the table, where the instant was opened.
        instant: the batch's, in all tables.

    Raises:
        TableMismatch: the instant is completed there, although the main table's is not.
    """
    timeline = Timeline.load(beside.storage)
    if is_completed(timeline, instant):
        raise TableMismatch(
            f"{beside.storage.uri}: instant {instant} is completed here, but pending in {beside.main.uri}: a "
            "client restored that table. Restore both tables to the same time, then run `slshudi ledger rebuild`",
            table=beside.storage.uri,
            instant=instant,
        )
    if is_pending(timeline, instant):
        markers.drop_misread(beside.storage, instant)
        commit.roll_back(gateway, beside.pipeline, instant)


def files(gateway: Gateway, beside: Beside) -> list[Slice]:
    """The table's newest committed base files."""
    return committed_files(gateway, beside.pipeline)


def _refuse_others(beside: Beside) -> None:
    timeline, name = Timeline.load(beside.storage), beside.pipeline.name
    for instant in reversed(timeline.completed(COMMIT_ACTION)):
        other = timeline.extra_metadata(instant).get(PIPELINE_KEY, "")
        if other and other != name:
            raise PipelineConflict(
                f"{beside.storage.uri} is the {beside.called} of pipeline {other}: give {name} another by "
                f"{'quarantine.path' if beside.key == QUARANTINE else 'the path of the route'}",
                pipeline=name,
                other=other,
            )
        return
