"""How the columns of a base file are encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.files.parquet import KEY, SEQUENCE, BaseFile, Encodings
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.native import numbered

ROWS = 30_000


@pytest.fixture
def rows() -> pa.Table:
    """Columns whose values are all different, and such whose values repeat."""
    numbers = pa.array(np.arange(ROWS, dtype=np.int64))
    requests = pa.MapArray.from_arrays(
        np.arange(ROWS + 1, dtype=np.int32), pa.array(["request"] * ROWS), numbered("r", "", numbers)
    )
    parts = pa.StructArray.from_arrays(
        [numbered("sku", "-", numbers), pa.array([1, 2, 3] * (ROWS // 3), pa.int32())], ["sku", "count"]
    )
    return pa.table(
        {
            "id": numbered("id", "-", numbers),
            "country": pa.array(["cn", "de", "br"] * (ROWS // 3)),
            "at": numbers.cast(pa.timestamp("us", "UTC")),
            "user": numbers,
            "status": pa.array([200, 404] * (ROWS // 2), pa.int32()),
            "price": pa.array(np.arange(ROWS) / 8),
            "rest": requests,
            "items": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), parts),
            SEQUENCE: numbers,
            KEY: numbered("0", "-", numbers, numbers),
        }
    )


def begun(table: Path) -> BaseFile:
    storage, instant = Storage(f"file://{table}"), "20260101000000000"
    fencing.admit(storage, instant)
    file = BaseFile(storage, instant, "0-0-0", "", Encodings())
    file.open()
    return file


def test_a_file_that_cannot_be_completed_does_not_come_into_being_after_its_deletion(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = begun(tmp_path)
    file.write(rows, rows.nbytes)

    def refuse(_: pq.ParquetWriter) -> None:
        raise OSError("no space")

    monkeypatch.setattr(pq.ParquetWriter, "close", refuse)
    with pytest.raises(OSError, match="no space"):
        file.close()
    # An open stream to an object store makes the object when it is collected.
    assert file._sink is not None and file._sink.closed
    file.abandon()
    assert file._writer is not None
    file._writer.is_open = False  # collected, it would try once more
    assert not (tmp_path / file.path).exists()


def test_a_column_is_encoded_as_its_values_are(rows: pa.Table, tmp_path: Path) -> None:
    file = begun(tmp_path)
    file.write(rows, rows.nbytes)
    file.close()
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    found = {column.path_in_schema: column.encodings[-1] for column in columns}
    # Where a dictionary became too large in between, its column has PLAIN pages, too.
    assert found == {
        "_hoodie_commit_time": "RLE_DICTIONARY",
        "_hoodie_commit_seqno": "DELTA_BYTE_ARRAY",
        "_hoodie_record_key": "DELTA_BYTE_ARRAY",
        "_hoodie_partition_path": "RLE_DICTIONARY",
        "_hoodie_file_name": "RLE_DICTIONARY",
        "id": "DELTA_LENGTH_BYTE_ARRAY",
        "country": "RLE_DICTIONARY",
        "at": "DELTA_BINARY_PACKED",
        "user": "DELTA_BINARY_PACKED",
        "status": "RLE_DICTIONARY",
        "price": "PLAIN",
        "rest.key_value.key": "RLE_DICTIONARY",
        "rest.key_value.value": "DELTA_LENGTH_BYTE_ARRAY",
        "items.list.element.sku": "DELTA_LENGTH_BYTE_ARRAY",
        "items.list.element.count": "RLE_DICTIONARY",
    }
    assert pq.read_table(tmp_path / file.path, columns=rows.column_names[:-2]).equals(rows.drop([SEQUENCE, KEY]))
