"""A base file's next version with fewer rows, as an update of a Copy-On-Write table leaves it.

The file group stays, the file belongs to another instant (hudi.apache.org/docs/file_layouts). As with any base file, a
marker comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.hudi.files.marking import mark
from airflow_provider_slshudi.hudi.files.parquet import Encodings
from airflow_provider_slshudi.storage import Storage

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
        still_wanted: raises ManifestError once somebody else decided about the instant.
    """
    import pyarrow as pa

    file = f"{old.group}_{write_token}_{instant}.parquet"
    name = f"{old.partition}/{file}" if old.partition else file
    mark(storage, instant, name, still_wanted, "MERGE")
    kept, writer = 0, None
    try:
        with storage.create(name) as sink:
            for rows in row_groups:
                at = rows.schema.get_field_index("_hoodie_file_name")
                rows = rows.set_column(at, "_hoodie_file_name", pa.repeat(pa.scalar(file), rows.num_rows))
                writer = writer or Encodings().writer(sink, rows)
                if rows.num_rows:
                    writer.write_table(rows)
                kept += rows.num_rows
            if writer is not None:
                writer.close()
        still_wanted()
    except BaseException:
        storage.delete(name)
        raise
    size = storage.size(name)
    return {
        "fileId": old.group,
        "path": name,
        "partitionPath": old.partition,
        "prevCommit": old.instant,
        "numWrites": kept,
        "numInserts": 0,
        "numDeletes": 0,
        "numUpdateWrites": 0,
        "totalWriteBytes": size,
        "fileSizeInBytes": size,
        "totalWriteErrors": 0,
    }
