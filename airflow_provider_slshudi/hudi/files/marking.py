"""The steps before each file of a task attempt, and the deletion of a failed attempt's files.

A task leaves a marker first: a rollback deletes the files that markers name, and a commit deletes marked files that no
write status lists (hudi.apache.org/docs/markers). Then the task asks whether the file is still wanted, so that anybody
who withdraws the order later finds the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from airflow_provider_slshudi.exceptions import ManifestError
from airflow_provider_slshudi.hudi.markers import folder
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.points import Point, reach

if TYPE_CHECKING:
    from airflow_provider_slshudi.storage import Storage

_log = logging.getLogger(__name__)


class Abandonable(Protocol):
    """A file of an attempt, by its path within the table."""

    path: str

    def abandon(self) -> None:
        """Deletes the file, complete or not."""


def mark(storage: Storage, instant: str, path: str, still_wanted: Callable[[], None], kind: str = "CREATE") -> None:
    """Leaves the marker of a file that is about to be written; `kind` is Hudi's, MERGE for a base file's next version.

    Raises:
        ManifestError: somebody else decided about the instant; no marker stays.
    """
    marker = f"{folder(instant)}/{path}.marker.{kind}"
    # Never under another name first: Hudi reads every name there, and a rollback fails at one that is no marker's.
    with storage.create(marker):
        reach(Point.APPEND_TASK_MARKING)
    try:
        still_wanted()
    except ManifestError:
        storage.delete(marker)
        raise
    reach(Point.APPEND_TASK_MARKED)


def describe_partition(storage: Storage, instant: str, partition: str) -> None:
    """Makes a folder a partition to Hudi, if it is not one yet; `partition` is empty for a table without partitions."""
    metadata = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
    if not storage.exists(metadata):
        text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={1 if partition else 0}\n"
        storage.write(metadata, text.encode(), via=handover.folder(instant))


def abandon(files: Iterable[Abandonable]) -> None:
    """Deletes an attempt's files: the rollback of a decided instant may have looked for them already."""
    for file in files:
        try:
            file.abandon()
        except Exception as error:
            # While the instant is pending, its markers name the file to whoever decides.
            _log.warning("%s could not be deleted: %s", file.path, error)
