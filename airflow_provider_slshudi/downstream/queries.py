"""How engines read just the rows of what a consumer was given, from the Hudi table and from its mirrors.

A consumer's commits are those that it lacks, in the order in which the ledger heard of them. That order is not the one
of their times: a batch that was recovered late may be older than one that was given before. So no range of times alone
holds just these commits, and what reads by a range needs `where` as well.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.downstream.changes import Changes
from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from deltalake import DeltaTable
    from pyiceberg.table import Table

COMMIT_TIME = "_hoodie_commit_time"
"""Hudi's column with the instant of the commit that wrote a row; clustering and compaction keep it."""
_DIGITS = "%Y%m%d%H%M%S%f"
# What is the same text in the folder's name and in each engine's SQL; the folder of NULL begins with an underscore.
_PLAIN = re.compile(r"(?P<column>\w+)=(?P<value>[A-Za-z0-9][\w.-]*)", re.ASCII)


def where(changes: Changes, column: str = "event_date") -> str:
    """The condition of a query for just these rows, as SQL that Spark and DuckDB take alike.

    Of a table without `upsert` it finds all rows of the commits for as long as the table has them, also after
    clustering, cleaning and archival. Of one with `upsert` it finds each row that no later commit has changed; a
    changed one comes with the commit that changed it last. A mirror has no column of Hudi's: see `iceberg_scans`.

    Args:
        changes: what the consumer was given. Of commits that went with a table that was restored, or is gone, nothing
            is left, and no row is found.
        column: the column of the table's partitions; for a consumer of partitions alone.
    """
    if changes.partitions:
        return f"{column} IN ({_texts(item.partition for item in changes.partitions)})"
    if not changes.commits:
        return "1 = 0"  # an empty list is no SQL
    condition = f"{COMMIT_TIME} IN ({_texts(changes.instants)})"
    values = partitions(changes)
    return condition if values is None else f"{condition} AND {values[0]} IN ({_texts(values[1])})"


def partitions(changes: Changes) -> tuple[str, list[str]] | None:
    """The column of the table's partitions, and its values in those that the commits wrote to, sorted.

    By these an engine skips folders. None where not all are known, or a value is written in several ways, that of rows
    without a value for one: then it has to read all.

    Args:
        changes: commits that the consumer was given.
    """
    paths = {path for item in changes.commits for path in item.partitions or ()}
    plain = [match for path in sorted(paths) if (match := _PLAIN.fullmatch(path))]
    if not plain or len(plain) < len(paths) or any(item.partitions is None for item in changes.commits):
        return None
    return plain[0]["column"], [match["value"] for match in plain]


def expression(changes: Changes) -> pc.Expression:
    """What `where` says of commits, for a dataset or a table of pyarrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.field(COMMIT_TIME).isin(pa.array(changes.instants, pa.string()))


def incremental(changes: Changes, version: int) -> dict[str, str]:
    """Options of Spark's reader for Hudi's incremental query (read in Hudi 1.2.0), whose result `where` has to filter.

        spark.read.format("hudi").options(**incremental(changes, 9)).load(path).where(where(changes))

    It reads files that these commits wrote, where a plain query with `where` looks at all files of their partitions.
    Where they are archived or cleaned, Hudi looks at all files by itself. Of a table with `upsert` it gives rows as
    these commits wrote them, also those that later commits have changed, which a plain query does not find any more.

    A table of version 6 has no completion times. Hudi goes by the instants there, and refuses (`hollow commit`) while a
    batch is pending that is older than one of the commits. So of such a table, and of commits that it got before it was
    moved to a later version, there are no options, and the query is a plain one.

    Args:
        changes: commits that the consumer was given; without any there are no options.
        version: the table's.
    """
    times = [item.completed for item in changes.commits if item.completed != item.instant]
    if version == FORMER_VERSION or not times or len(times) < len(changes.commits):
        return {}
    return {
        "hoodie.datasource.query.type": "incremental",
        # It reads what is later than this.
        "hoodie.datasource.read.begin.instanttime": _before(min(times)),
        "hoodie.datasource.read.end.instanttime": max(times),
        "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true",
    }


def iceberg_scans(table: Table, changes: Changes) -> Iterator[dict[str, int | None]]:
    """For each commit the snapshots of the Iceberg mirror between which its rows came, as pyiceberg's scan takes them.

        for snapshots in iceberg_scans(table, changes):
            table.incremental_append_scan(**snapshots).to_arrow()

    Of a table with `upsert` a snapshot replaces files, and no such scan tells which rows of them are new.

    Args:
        table: pyiceberg's, loaded after the mirror has followed.
        changes: commits that the consumer was given.

    Raises:
        TableError: a commit has no snapshot of its own.
    """
    snapshots = {
        snapshot.summary.additional_properties.get(TRANSACTION_KEY): snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None
    }
    for id_ in _mirrored(changes, snapshots, "Iceberg", "snapshot"):
        own = snapshots[id_]
        yield {"from_snapshot_id_exclusive": own.parent_snapshot_id, "to_snapshot_id_inclusive": own.snapshot_id}


def delta_versions(table: DeltaTable, changes: Changes) -> Iterator[int]:
    """For each commit the version of the Delta mirror that has its rows first: they are in the files that the version
    before it lacks. Of a table with `upsert` these hold unchanged rows as well.

    Args:
        table: deltalake's, loaded after the mirror has followed.
        changes: commits that the consumer was given.

    Raises:
        TableError: a commit has no version of its own.
    """
    versions = {entry.get(TRANSACTION_KEY): int(entry["version"]) for entry in table.history()}
    for id_ in _mirrored(changes, versions, "Delta", "version"):
        yield versions[id_]


def _mirrored(changes: Changes, mirrored: Container[str | None], name: str, kind: str) -> list[str]:
    """The transactions of the changes, each of which has to be among those that a mirror has."""
    for item in changes.commits:
        if item.transaction not in mirrored:
            raise TableError(
                f"pipeline {changes.pipeline}: the {name} mirror has no {kind} of commit {item.instant} (place "
                f"{item.place}, transaction {item.transaction}): it has not followed yet, it followed several commits "
                f"at once, or the {kind} expired. Let it follow, or read the rows from the Hudi table",
                table="",
                instant=item.instant,
            )
    return [item.transaction for item in changes.commits]


def _before(time: str) -> str:
    """The latest time of Hudi's before this one."""
    return (datetime.strptime(time, _DIGITS) - timedelta(milliseconds=1)).strftime(_DIGITS)[: len(time)]


def _texts(values: Iterable[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
