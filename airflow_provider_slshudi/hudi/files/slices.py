"""A base file's next version with fewer rows, as an update of a Copy-On-Write table leaves it.

The file group stays, the file belongs to another instant (hudi.apache.org/docs/file_layouts). As with any base file, a
marker comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.hudi.files.marking import mark
from airflow_provider_slshudi.hudi.files.parquet import BaseFile, Encodings
from airflow_provider_slshudi.storage.files import Storage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Slice:
    """The newest committed base file of a file group: its path within the table, group, instant and partition."""

    name: str
    group: str
    instant: str
    partition: str = ""


def rewrite(
    storage: Storage,
    instant: str,
    write_token: str,
    old: Slice,
    row_groups: Iterable[pa.Table],
    still_wanted: Callable[[], None],
) -> dict[str, Any]:
    """Writes the next version of `old` with the rows of `row_groups`; returns its write stat.

    Args:
        storage: the table's file system.
        instant: the instant that the version belongs to.
        write_token: see `hudi.files.basefile`.
        old: the version that is replaced.
        row_groups: whole rows of it, with Hudi's columns; at least one group, which may be empty.
        still_wanted: raises ManifestError once another run decided about the instant.
    """
    file = BaseFile(storage, instant, write_token, old.partition, Encodings(), old.group)
    mark(storage, instant, file.path, still_wanted, "MERGE")
    try:
        file.open()
        for rows in row_groups:
            file.write_complete(file.named(rows), rows.nbytes)
        file.close()
        # Asked again: a rollback between the first answer and now may have looked before the file was there.
        still_wanted()
    except BaseException:
        file.abandon()
        raise
    return {**file.stat(), "prevCommit": old.instant, "numInserts": 0}
