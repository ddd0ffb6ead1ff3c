"""Lies that are planted while a table is made, or in its files afterwards: what asks readers has to find each."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_slshudi.config.options import BOUNDS, BOUNDS_OF
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi import statistics
from airflow_provider_slshudi.hudi.client import commit
from airflow_provider_slshudi.hudi.client.metadata_table import committed_files
from airflow_provider_slshudi.hudi.files import parquet
from airflow_provider_slshudi.rows.keys import bucket_ids
from tests.differential import tables
from tests.differential.tables import Table

_COMMIT, _BUCKETS, _OF = commit.commit, bucket_ids, parquet.Encodings.of
Plant = Callable[[Table], None]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _least_too_high(table: Table) -> None:
    """The least `n` of a file is said to be its greatest."""

    def changed(footer: bytes, least: bytes, most: bytes, _: int) -> bytes:
        return footer.replace(b"\x18\x08" + least, b"\x18\x08" + most)

    _in_footers(table, changed)


def _all_null(table: Table) -> None:
    """All `n` of a file are said to be NULL."""

    def changed(footer: bytes, least: bytes, _: bytes, rows: int) -> bytes:
        head = b"\x18\x08" + least + b"\x16"
        return re.sub(re.escape(head) + rb"\x00", lambda _: head + bytes([2 * rows]), footer)

    _in_footers(table, changed)


def _in_footers(table: Table, change: Callable[[bytes, bytes, bytes, int], bytes]) -> None:
    for file in committed_files(table.gateway, table.pipeline):
        path = Path(table.storage.full(file.name))
        bounds = pq.ParquetFile(path).metadata.row_group(0).column(5).statistics
        content, rows = path.read_bytes(), pq.ParquetFile(path).metadata.num_rows
        if bounds is None or bounds.min == bounds.max or rows > 60:
            continue
        begin = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
        least, most = (struct.pack("<q", value) for value in (bounds.min, bounds.max))
        footer = change(content[begin:-8], least, most, rows)
        assert len(footer) == len(content) - 8 - begin
        _put(path, content[:begin] + footer + content[-8:])


def _empty_logs(table: Table) -> None:
    """Log files have no blocks."""
    for path in table.folder.rglob(".*.log.*"):
        if ".hoodie" not in path.parts and path.suffix != ".crc":
            _put(path, b"")


def _doubled(table: Table) -> None:
    """A file is there a second time, as one of a file group of its own."""
    for file in committed_files(table.gateway, table.pipeline)[:1]:
        path = Path(table.storage.full(file.name))
        group = path.name.split("_")[0]
        _put(
            path.with_name(path.name.replace(group, group[:-3] + ("1" if group[-3] != "1" else "2") + group[-2:])),
            path.read_bytes(),
        )


def _other_value(table: Table) -> None:
    """One text of one file is another."""
    for file in committed_files(table.gateway, table.pipeline):
        path = Path(table.storage.full(file.name))
        rows = pq.ParquetFile(path).read()
        if "s" in rows.column_names and rows["s"].null_count < rows.num_rows:
            texts = pa.array([f"{text}!" if text is not None else None for text in rows["s"].to_pylist()])
            changed = pa.BufferOutputStream()
            pq.write_table(rows.set_column(rows.column_names.index("s"), "s", texts), changed)
            _put(path, changed.getvalue().to_pybytes())
            return


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _off_by_one(*arguments: Any) -> Any:
    """A bucket off by one, now and then."""
    found = _BUCKETS(*arguments)
    return (found + np.uint32(found.sum() % 2)) % np.uint32(arguments[3])


def _fewer_files(gateway: Any, pipeline: Any, instant: str, stats: list[Any], extra: Any) -> None:
    """A commit that leaves one of several files out."""
    _COMMIT(gateway, pipeline, instant, stats[1:] or stats, extra)


def _with_floats(self: parquet.Encodings, table: pa.Table) -> dict[str, Any]:
    """Statistics of floating numbers, which leave NaN out."""
    return {**_OF(self, table), "write_statistics": True}


def _bounds_of_texts(pipeline: Pipeline, schema: str, columns: Any = None) -> dict[str, str]:
    """Bounds of each text in Hudi's index."""
    return {BOUNDS: "true", BOUNDS_OF: ",".join(name for name, type_ in _typed(pipeline) if type_ == "string")}


def _typed(pipeline: Pipeline) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in pipeline.columns]


def _not_in_order(rows: list[Any]) -> Any:
    """The places of a batch's rows, backwards."""
    return np.arange(len(rows))[::-1].copy()


LIES: dict[str, tuple[Callable[[], Any], Plant | None]] = {
    "a least value too high": (_nothing, _least_too_high),
    "a number of NULLs wrong": (_nothing, _all_null),
    "log files without blocks": (_nothing, _empty_logs),
    "a file twice": (_nothing, _doubled),
    "another value": (_nothing, _other_value),
    "a bucket off by one": (lambda: patch.object(tables, "bucket_ids", _off_by_one), None),
    "a footer without its key": (lambda: patch.object(parquet, "FOOTER", {}), None),
    "statistics of floating numbers": (lambda: patch.object(parquet.Encodings, "of", _with_floats), None),
    "bounds of texts": (lambda: patch.object(statistics, "options", _bounds_of_texts), None),
    "folders said to be escaped": (lambda: patch.object(Pipeline, "escapes_folders", True), None),
    "a file that no commit names": (lambda: patch.object(commit, "commit", _fewer_files), None),
    "rows of a batch out of order": (lambda: patch.object(tables, "places_of", _not_in_order), None),
}
"""Each: what is planted while the table is made, and in its files afterwards."""
