"""Log files of a merge-on-read table, written from Arrow (hudi.apache.org/docs/1.2.0/tech-specs, "Log Files").

A file has up to two blocks: rows as Parquet, and the keys of deleted rows with their ordering values.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from airflow_provider_slshudi.hudi.files.marking import AttemptFile

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.hudi.files.parquet import Encodings
    from airflow_provider_slshudi.storage.files import Storage

_MAGIC = b"#HUDI#"
_FORMAT = 1
_DELETES, _PARQUET = 1, 5
_INSTANT, _SCHEMA = 0, 2
_DELETES_FORMAT = 3
# Places in the union of `HoodieDeleteRecord.orderingVal`.
_INT, _LONG = 2, 3


class LogFile(AttemptFile):
    """The log file of one file group, with all changes that an instant makes to the group."""

    def __init__(self, storage: Storage, instant: str, write_token: str, partition: str, file_id: str) -> None:
        super().__init__(storage, instant, partition, f".{file_id}_{instant}.log.1_{write_token}")
        self.file_id = file_id
        self._rows = self._deletes = self._bytes = 0

    def write(self, schema: str, rows: pa.Table, encodings: Encodings, deletes: pa.Array, deleted: int) -> None:
        """Writes the file.

        Args:
            schema: the Avro schema of `rows`.
            rows: the upserted rows, with Hudi's five columns.
            encodings: of the Parquet block.
            deletes: the deleted keys, as `delete_records` gives them.
            deleted: the number of deleted keys.
        """
        import pyarrow as pa

        sink = self.open()
        if rows.num_rows:
            content = pa.BufferOutputStream()
            with encodings.writer(content, rows) as writer:
                writer.write_table(rows, row_group_size=rows.num_rows)
            self._block(_PARQUET, schema, content.getvalue())
        if deleted:
            body = b"".join([bytes(varints(np.array([deleted]))[0].as_py()), bytes(deletes), b"\0"])
            self._block(_DELETES, schema, struct.pack(">ii", _DELETES_FORMAT, len(body)) + body)
        self._rows, self._deletes, self._bytes = rows.num_rows, deleted, sink.tell()

    def stat(self) -> dict[str, Any]:
        """Its write stat, as Hudi's HoodieDeltaWriteStat."""
        return {
            "fileId": self.file_id,
            "path": self.path,
            "partitionPath": self.partition,
            "prevCommit": self._instant,
            "numWrites": self._rows,
            "numInserts": 0,
            "numDeletes": self._deletes,
            "numUpdateWrites": self._rows,
            "totalWriteBytes": self._bytes,
            "fileSizeInBytes": self._bytes,
            "totalWriteErrors": 0,
            "logVersion": 1,
            "logOffset": 0,
            "baseFile": "",
            "logFiles": [self.name],
        }

    def _block(self, kind: int, schema: str, content: bytes | pa.Buffer) -> None:
        assert self._sink is not None  # noqa: S101
        header = struct.pack(">i", 2)
        for name, value in ((_SCHEMA, schema.encode()), (_INSTANT, self._instant.encode())):
            header += struct.pack(">ii", name, len(value)) + value
        before = struct.pack(">ii", _FORMAT, kind) + header + struct.pack(">q", len(content))
        # No footer. The last number leads back from the block's end to its begin.
        size = len(before) + len(content) + 4 + 8
        self._sink.write(_MAGIC + struct.pack(">q", size) + before)
        self._sink.write(content)
        self._sink.write(struct.pack(">iq", 0, size + len(_MAGIC)))


def delete_records(keys: pa.Array, partition: str, ordering: pa.Array | None) -> bytes:
    """Deleted keys as Avro's `HoodieDeleteRecord`, one after the other; no `ordering` counts as 0, as in Hudi."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(keys)
    if ordering is None:
        wrapper, values = _INT, np.zeros(count, np.int64)
    else:
        wrapper = _INT if pa.types.is_int32(ordering.type) else _LONG
        values = ordering.cast(pa.int64()).to_numpy(zero_copy_only=False)
    key = keys.cast(pa.binary())
    place = partition.encode()
    # Each union begins with the number of its branch: 1 is the text.
    where = b"\x02" + varints(np.array([len(place)]))[0].as_py() + place + varints(np.array([wrapper]))[0].as_py()
    lengths = varints(pc.binary_length(key).to_numpy(zero_copy_only=False))
    parts = [pa.scalar(b"\x02", pa.binary()), lengths, key, pa.scalar(where, pa.binary()), varints(values)]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    return b"".join(joined.to_pylist())


def varints(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Avro's form of each number: zigzag, seven bits a byte."""
    import pyarrow as pa

    signed = numbers.astype(np.int64)
    coded = ((signed << 1) ^ (signed >> 63)).astype(np.uint64)
    groups = coded[:, None] >> (np.arange(10, dtype=np.uint64) * np.uint64(7))
    lengths = np.maximum((groups > 0).sum(axis=1), 1)
    place = np.arange(10)
    more = place[None, :] < (lengths - 1)[:, None]
    bytes_ = ((groups & np.uint64(0x7F)) | np.where(more, np.uint64(0x80), np.uint64(0))).astype(np.uint8)
    data = bytes_[place[None, :] < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(signed), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
