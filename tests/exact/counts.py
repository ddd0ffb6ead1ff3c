"""What tables and their ledger hold once everything is decided, by readers that know nothing of the protocol.

A pipeline's tables are the main one, those of routes (`tests.pipelines.FIFTHS`) and, where logs that do not fit go
there, the quarantine.
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.hudi.archive import archive_of
from airflow_provider_slshudi.hudi.layout import LAYOUT_1
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path, is_stored
from airflow_provider_slshudi.transaction.context import Work
from tests.exact.outcome import Outcome, compared
from tests.pipelines import fifth_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3_KEY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
Reader = Callable[..., Iterable[tuple[Any, ...]]]
"""Gives the named columns of a table's rows."""
_KEY = "_hoodie_record_key"
_TIMELINE = ".hoodie/timeline"
_DATA_FILE = re.compile(r"\.?(?P<id>[^_]+)_(?:[^_]+_)?(?P<instant>\d+)\.(?P<kind>parquet|log\.[\d_-]+)")
_COMPLETED = re.compile(r"(\d+)(?:_\d+)?\.(?!inflight|requested)([a-z]+)")


def count(work: Work, logs: int, spark: SparkSession | None = None) -> Outcome:
    """All that hudi-rs, and Spark where there is a session, show of a pipeline that no run works on.

    Args:
        work: the pipeline; its table holds the events 0 to `logs`, each under a key.
        logs: how many were put.
        spark: reads the tables, too.
    """
    names = {f"event-{number}" for number in range(logs)}
    outcome = count_events(work, names, spark)
    outcome.wrong += ledger_faults(work)
    outcome.wrong += route_faults(work)
    for table in tables(work):
        outcome.wrong += [f"{table.uri}: {fault}" for fault in (*timeline_faults(table), *file_faults(table))]
    return outcome


def count_events(
    work: Work, names: Collection[str], spark: SparkSession | None = None, excused: Collection[str] = ()
) -> Outcome:
    """Compares the events in a pipeline's tables with those that were put.

    Args:
        work: the pipeline.
        names: the `event_id` of each log that was put.
        spark: reads the tables, too, where it is given.
        excused: names of logs that the service deleted before a batch had read them.
    """
    readers = {"hudi-rs": rows_of, **({"Spark": by_spark(spark)} if spark is not None else {})}
    outcome = Outcome(len(names))
    for reader, read in readers.items():
        rows = [*keyed_events(work, read)]
        outcome.match(compared(reader, (event for _, event in rows), names, excused))
        if (keys := len({key for key, _ in rows})) != len(rows):
            outcome.wrong.append(f"{reader}: {len(rows)} rows have {keys} keys")
    return outcome


def tables(work: Work) -> list[Storage]:
    """The main table, those of routes, and the quarantine if there is one."""
    aside = Storage(work.pipeline.quarantine_path)
    return [*sorted_tables(work), *([aside] if aside.exists(".hoodie/hoodie.properties") else [])]


def sorted_tables(work: Work) -> list[Storage]:
    """The main table, and those of routes that there are."""
    routes = [Storage(work.pipeline.path_of(route)) for route in work.pipeline.routes]
    return [work.storage, *(table for table in routes if table.exists(".hoodie/hoodie.properties"))]


def route_faults(work: Work) -> list[str]:
    """Events that are in another table than their route's."""
    if not work.pipeline.routes:
        return []
    rows = [
        (place, event) for place, table in enumerate(sorted_tables(work)) for (event,) in rows_of(table, "event_id")
    ]
    wrong = [f"{event} in table {place}" for place, event in rows if fifth_of(event) != place]
    return [f"{len(wrong)} events in the wrong table: {', '.join(wrong[:5])}"] if wrong else []


def completed_files(table: Storage) -> dict[str, int]:
    """How many completed files each instant has."""
    return Counter(match[1] for match in _completed(table))


def _completed(table: Storage) -> list[re.Match[str]]:
    """Path, time and action of each completed file; a table of version 6 has them in `.hoodie` itself."""
    names = [match for name in table.names(_TIMELINE) or [] if (match := _COMPLETED.fullmatch(name))]
    return names or [match for name in table.names(".hoodie") or [] if (match := _COMPLETED.fullmatch(name))]


def data_files(table: Storage) -> set[str]:
    """The data files in the table's folders, whoever wrote them: base files and log files."""
    return {path for path, _ in table.walk() if _DATA_FILE.fullmatch(Path(path).name)}


def listed_files(table: Storage) -> set[str]:
    """The files that the table's completed commits list, archived ones included."""
    written = (stats for commit in _commits(table) for stats in commit["partitionToWriteStats"].values())
    return {stat["path"] for stats in written for stat in stats}


def replaced_files(table: Storage) -> set[str]:
    """Of these, the files that a clustering replaced or a compaction merged: they stay until they are cleaned."""
    ids = {
        id_
        for commit in _commits(table)
        for ids in (commit.get("partitionToReplaceFileIds") or {}).values()
        for id_ in ids
    }
    listed = {path: _DATA_FILE.fullmatch(Path(path).name) for path in listed_files(table)}
    newest: dict[str, str] = {}
    for match in listed.values():
        if match and match["kind"] == "parquet":
            newest[match["id"]] = max(match["instant"], newest.get(match["id"], ""))
    return {
        path
        for path, match in listed.items()
        if match and (match["id"] in ids or match["instant"] < newest.get(match["id"], ""))
    }


def _commits(table: Storage) -> list[dict[str, Any]]:
    completed = [match for match in _completed(table) if match[2] in CHANGES]
    folder = _TIMELINE if any("_" in match[0] for match in completed) else ".hoodie"
    commits = [_record(table.read(f"{folder}/{match[0]}") or b"") for match in completed]
    if folder == ".hoodie":
        commits += [dict(one.record) for one in archive_of(table, LAYOUT_1).instants() if one.action in CHANGES]
    for path in table.files(f"{_TIMELINE}/history"):
        if not path.endswith(".parquet"):
            continue
        rows = pq.read_table(io.BytesIO(table.read(path) or b""), columns=["action", "metadata"]).to_pylist()
        commits += [_record(row["metadata"]) for row in rows if row["action"] in CHANGES]
    return commits


def timeline_faults(table: Storage) -> list[str]:
    """Instants that are completed twice, or pending."""
    twice = {time: count for time, count in completed_files(table).items() if count > 1}
    if twice:
        return [f"completed more than once: {twice}"]
    pending = Timeline.load(table).pending()
    return [f"pending: {pending}"] if pending else []


def file_faults(table: Storage) -> list[str]:
    """Files that no commit lists, and listed ones that are not there."""
    there, listed = data_files(table), listed_files(table)
    gone = listed - there - replaced_files(table)
    found = [f"files that no commit lists: {sorted(there - listed)}"] if there - listed else []
    return [*found, *([f"listed files that are not there: {sorted(gone)}"] if gone else [])]


def ledger_faults(work: Work) -> list[str]:
    """Transactions that nobody decided, and rows that the ledger counts otherwise."""
    recorded = sum(item.rows or 0 for item in work.ledger.recorded(work.pipeline.name))
    rows = len(events(work))
    wrong = [f"the ledger counts {recorded} rows, the tables have {rows}"] if recorded != rows else []
    return [*live_faults(work), *wrong]


def live_faults(work: Work) -> list[str]:
    """Transactions that no run decided."""
    live = work.ledger.live(work.pipeline.name)
    return [f"live transactions: {live}"] if live else []


def events(work: Work) -> list[str]:
    """The `event_id` of each row, as hudi-rs reads it."""
    return [event for _, event in keyed_events(work, rows_of)]


def keyed_events(work: Work, read: Reader) -> Iterator[tuple[str, str]]:
    """Key and `event_id` of each row: a column of the main table, among the contents of a log in the quarantine."""
    ours = sorted_tables(work)
    for table in ours:
        yield from read(table, _KEY, "event_id")
    for key, contents in (row for table in tables(work)[len(ours) :] for row in read(table, _KEY, "contents")):
        yield key, next(bytes(pair["value"]).decode() for pair in contents if bytes(pair["key"]) == b"event_id")


def by_spark(spark: SparkSession) -> Reader:
    """Columns of all rows, as Spark reads them."""

    def read(table: Storage, *names: str) -> list[tuple[Any, ...]]:
        path = table.full("") if table.is_local else hadoop_path(table.uri)
        return [*map(tuple, spark.read.format("hudi").load(path).select(*names).collect())]

    return read


BEHIND = "TESTS_STORE"
"""Names the store itself, where hudi-rs does not find what stands before it."""


def as_url(path: str) -> str:
    """A table's path as hudi-rs takes it: a URL, where Hadoop and Arrow take a name."""
    return quote(path.replace("oss://", "s3://"), safe=":/")


def rows_of(table: Storage, *names: str) -> list[tuple[Any, ...]]:
    """Columns of all rows, as hudi-rs reads them."""
    from hudi import HudiReadOptions, HudiTableBuilder

    rows: list[tuple[Any, ...]] = []
    with _asked_itself(), _reached(table) as place:
        builder = HudiTableBuilder.from_base_uri(as_url(place))
        reader = builder.with_storage_options(reader_options(table)).build()
        for batch in reader.read_stream(HudiReadOptions(projection=[*names])):
            rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return rows


def reader_options(table: Storage) -> dict[str, str]:
    """What hudi-rs has to be told of a table's store."""
    if not is_stored(table.uri):
        return {}
    names = {"aws_endpoint": "AWS_ENDPOINT_URL", **{name.lower(): name for name in S3_KEY}}
    return {option: os.environ[name] for option, name in names.items()} | {"aws_allow_http": "true"}


@contextmanager
def _reached(table: Storage) -> Iterator[str]:
    """Where hudi-rs, which knows no HDFS, reads a table: itself, or a copy."""
    if table.is_local or not table.renames:
        yield table.uri
        return
    with tempfile.TemporaryDirectory(prefix="slshudi-copy-") as folder:
        for path in table.files(""):
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(table.read(path) or b"")
        yield f"file://{folder}"


@contextmanager
def _asked_itself() -> Iterator[None]:
    """Where hudi-rs, which follows variables too, does not find what stands before a store, it asks the store."""
    with pytest.MonkeyPatch.context() as patch:
        if BEHIND in os.environ:
            patch.setenv("AWS_ENDPOINT_URL", os.environ[BEHIND])
            patch.setenv("AWS_REGION", "us-east-1")
        yield


def _record(content: bytes) -> dict[str, Any]:
    record = json.loads(content) if content.startswith(b"{") else next(iter(fastavro.reader(io.BytesIO(content))))
    assert isinstance(record, dict)
    return record
