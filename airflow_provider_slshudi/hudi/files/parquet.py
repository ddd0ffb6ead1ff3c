"""One base file: Hudi's five columns, then the table's, as Parquet (parquet.apache.org/docs)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.hudi.files.marking import AttemptFile
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, RECORD_KEY
from airflow_provider_slshudi.system.native import numbered

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_slshudi.storage.files import Storage

SEQUENCE, KEY = " sequence", " key"
"""Two columns that rows have beside the table's: their number within the task, their row key."""

FOOTER = {"org.apache.spark.version": "3.5.0"}
"""Says to Spark that old dates and times are by today's calendar, as Arrow's are; without it Spark refuses them.

Any version from 3.0 on says so (spark.apache.org/docs/3.5.7/sql-data-sources-parquet.html).
"""

_SAMPLE_ROWS = 20_000
_LEAST_SAMPLE_ROWS = 1_000


class Encodings:
    """The column encodings of a task's files; its rows are alike, so one large enough sample decides."""

    def __init__(self) -> None:
        self._found: dict[str, Any] | None = None

    def writer(self, sink: Any, table: pa.Table) -> pq.ParquetWriter:
        """A ParquetWriter for `table` and further rows like its own."""
        import pyarrow.parquet as pq

        writer = pq.ParquetWriter(
            sink,
            table.schema,
            compression="zstd",
            compression_level=1,
            store_schema=False,
            use_deprecated_int96_timestamps=False,
            **self.of(table),
        )
        writer.add_key_value_metadata(FOOTER)
        return writer

    def of(self, table: pa.Table) -> dict[str, Any]:
        """The ParquetWriter's arguments that depend on the table's values."""
        if self._found is not None:
            return self._found
        encodings = _encodings(table)
        if table.num_rows >= _LEAST_SAMPLE_ROWS:
            self._found = encodings
        return encodings


class BaseFile(AttemptFile):
    """A base file that is being written; rows know its name from the start."""

    def __init__(
        self,
        storage: Storage,
        instant: str,
        write_token: str,
        partition: str,
        encodings: Encodings,
        file_id: str | None = None,
    ) -> None:
        self.file_id = file_id or f"{uuid.uuid4()}-0"
        super().__init__(storage, instant, partition, f"{self.file_id}_{write_token}_{instant}.parquet")
        self.rows = self.arrow_bytes = 0
        self._task = write_token.split("-")[0]
        self._encodings = encodings
        self._writer: pq.ParquetWriter | None = None

    @property
    def written(self) -> int:
        """The bytes written so far."""
        return int(self._sink.tell()) if self._sink is not None else 0

    def named(self, rows: pa.Table) -> pa.Table:
        """Rows that have Hudi's columns already, with this file's name in the last of these."""
        names = constant(self.name, rows.num_rows)
        column = META_COLUMNS[-1]
        return rows.set_column(rows.schema.get_field_index(column), column, names)

    def write(self, rows: pa.Table, arrow_bytes: int) -> None:
        """Adds a row group: gives the rows Hudi's columns first."""
        self.write_complete(self._with_meta_columns(rows), arrow_bytes)

    def write_complete(self, table: pa.Table, arrow_bytes: int) -> None:
        """Adds a row group of rows that have Hudi's columns already."""
        if self._writer is None:
            self._writer = self._encodings.writer(self._sink, table)
        # A file may have no row at all: those of its bucket are all deleted.
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows
        self.arrow_bytes += arrow_bytes

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def stat(self) -> dict[str, Any]:
        """Its write stat, as Hudi's HoodieWriteStat."""
        size = self._storage.size(self.path)
        return {
            "fileId": self.file_id,
            "path": self.path,
            "partitionPath": self.partition,
            "prevCommit": "null",
            "numWrites": self.rows,
            "numInserts": self.rows,
            "numDeletes": 0,
            "numUpdateWrites": 0,
            "totalWriteBytes": size,
            "fileSizeInBytes": size,
            "totalWriteErrors": 0,
        }

    def _with_meta_columns(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        count = rows.num_rows
        meta = [
            constant(self._instant, count),
            numbered(f"{self._instant}_{self._task}", "_", rows[SEQUENCE]),
            rows[KEY],
            constant(self.partition, count),
            constant(self.name, count),
        ]
        data = rows.drop_columns([SEQUENCE, KEY])
        return pa.table([*meta, *data.columns], names=[*META_COLUMNS, *data.column_names])


def constant(value: str, count: int) -> pa.Array:
    """A column that repeats one text."""
    import numpy as np
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


def _encodings(table: pa.Table) -> dict[str, Any]:
    """Dictionaries where values repeat; DELTA encodings where a dictionary would cost hashing and save nothing.

    Floating numbers have neither a dictionary nor statistics: readers that filter by these miss rows. Statistics leave
    NaN out, which Spark takes for the greatest number, and a dictionary with -0.0 has no 0.0, to which it is equal.
    """
    import pyarrow as pa

    encodings = {"_hoodie_commit_seqno": "DELTA_BYTE_ARRAY", RECORD_KEY: "DELTA_BYTE_ARRAY"}
    dictionaries, statistics = list[str](), list(encodings)
    for field_ in table.schema:
        if field_.name in encodings:
            continue
        for path, part in leaves(field_.name, table[field_.name].slice(0, _SAMPLE_ROWS).combine_chunks()):
            if pa.types.is_floating(part.type):
                continue
            statistics.append(path)
            encoding = _encoding(part)
            if encoding is None:
                dictionaries.append(path)
            else:
                encodings[path] = encoding
    return {"use_dictionary": dictionaries, "column_encoding": encodings, "write_statistics": statistics}


def leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The Parquet columns of one table column, with their values: several if its type is nested."""
    import pyarrow as pa

    if pa.types.is_struct(values.type):
        for number, field in enumerate(values.type):
            yield from leaves(f"{path}.{field.name}", values.field(number))
    elif pa.types.is_map(values.type):
        yield from leaves(f"{path}.key_value.key", values.keys)
        yield from leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_list(values.type):
        yield from leaves(f"{path}.list.element", values.values)
    else:
        yield path, values


def _encoding(values: pa.Array) -> str | None:
    """The encoding of a Parquet column; None means a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type_, sample = values.type, values.slice(0, _SAMPLE_ROWS)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        encoding, share = "DELTA_LENGTH_BYTE_ARRAY", 0.5
    elif pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        encoding, share = "DELTA_BINARY_PACKED", 0.1
    else:
        return None
    return encoding if pc.count_distinct(sample).as_py() > share * len(sample) else None
