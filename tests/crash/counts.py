"""What tables and their ledger hold once everything is decided: counted by readers that know nothing of the protocol.

A pipeline's tables are the main one and, where logs that do not fit go there, the quarantine.
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.hudi.archive import archive_of
from airflow_provider_slshudi.hudi.layout import LAYOUT_1
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import is_stored
from airflow_provider_slshudi.transaction.context import Work

S3_KEY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
_TIMELINE = ".hoodie/timeline"
_DATA_FILE = re.compile(r"\.?(?P<id>[^_]+)_(?:[^_]+_)?(?P<instant>\d+)\.(?P<kind>parquet|log\.[\d_-]+)")
_COMPLETED = re.compile(r"(\d+)(?:_\d+)?\.(?!inflight|requested)([a-z]+)")


def faults(work: Work, logs: int) -> list[str]:
    """All that is wrong with the table and ledger of a pipeline that nobody works on; `logs` were put, from 0 on."""
    found = [*_row_faults(work, logs), *ledger_faults(work)]
    for table in tables(work):
        found += [f"{table.uri}: {fault}" for fault in (*timeline_faults(table), *file_faults(table))]
    return found


def tables(work: Work) -> list[Storage]:
    """The main table, and the quarantine if there is one."""
    aside = Storage(work.pipeline.quarantine_path)
    return [work.storage, *([aside] if aside.exists(".hoodie/hoodie.properties") else [])]


def lost_and_doubled(work: Work, logs: int) -> tuple[int, int]:
    """Logs that are in no table, and rows too many, as hudi-rs reads them."""
    found = Counter(events(work))
    lost = sum(1 for number in range(logs) if f"event-{number}" not in found)
    return lost, sum(times - 1 for times in found.values())


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


def _row_faults(work: Work, logs: int) -> list[str]:
    lost, doubled = lost_and_doubled(work, logs)
    keys = [key for table in tables(work) for key in column(table, "_hoodie_record_key")]
    found = [f"{lost} logs lost"] if lost else []
    if doubled or len(set(keys)) != len(keys):
        found.append(f"{doubled} logs doubled, {len(keys) - len(set(keys))} keys")
    return found


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
    name = work.pipeline.name
    live = work.ledger.live(name)
    recorded = sum(item.rows or 0 for item in work.ledger.recorded(name))
    rows = len(events(work))
    found = [f"live transactions: {live}"] if live else []
    return [*found, *([f"the ledger counts {recorded} rows, the tables have {rows}"] if recorded != rows else [])]


def events(work: Work) -> list[str]:
    """The `event_id` of each row: a column of the main table, among the contents of a log in the quarantine."""
    main, *aside = tables(work)
    found = column(main, "event_id")
    for pairs in (pairs for table in aside for pairs in column(table, "contents")):
        found += [pair["value"].decode() for pair in pairs if pair["key"] == b"event_id"]
    return found


BEHIND = "TESTS_STORE"
"""Names the store itself, where hudi-rs does not find what stands before it."""


def as_url(path: str) -> str:
    """A table's path as hudi-rs takes it: a URL, where Hadoop and Arrow take a name."""
    return quote(path.replace("oss://", "s3://"), safe=":/")


def column(table: Storage, name: str) -> list[Any]:
    """A column of all rows, as hudi-rs reads them."""
    from hudi import HudiReadOptions, HudiTableBuilder

    with _asked_itself(), _reached(table) as place:
        builder = HudiTableBuilder.from_base_uri(as_url(place))
        reader = builder.with_storage_options(reader_options(table)).build()
        options = HudiReadOptions(projection=[name])
        return [value for batch in reader.read_stream(options) for value in batch.column(name).to_pylist()]


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
