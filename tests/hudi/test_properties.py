"""The table's own file, as Java writes and reads it, and as drivers that died left it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.storage.files import Storage

COPY = f"{PROPERTIES}.backup"
WHOLE = b"#Updated\nhoodie.table.name=clicks\nhoodie.table.version=9\n"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path.as_uri())


@pytest.mark.parametrize(
    "text",
    ["hoodie.table.name: clicks", " hoodie.table.name clicks\n", "# \u00dc\r\nhoodie.table.\\\n  name=clicks\n"],
)
def test_what_java_reads_is_whole(storage: Storage, text: str) -> None:
    content = f"{text}\nhoodie.table.version=9\n".encode("latin-1")
    storage.write(PROPERTIES, content)
    assert properties.read(storage) == {"hoodie.table.name": "clicks", "hoodie.table.version": "9"}
    properties.restore(storage)
    assert storage.read(PROPERTIES) == content


@pytest.mark.parametrize("there", [None, b"", b"hoodie.table.name", WHOLE[:30], WHOLE[:-5]])
def test_what_was_cut_off_is_put_back(storage: Storage, there: bytes | None) -> None:
    if there is not None:
        storage.write(PROPERTIES, there)
    storage.write(COPY, WHOLE)
    assert properties.is_cut_off(storage)
    properties.restore(storage)
    assert storage.read(PROPERTIES) == WHOLE and not properties.is_cut_off(storage)


def test_a_change_that_was_written_stays_beside_its_copy(storage: Storage) -> None:
    changed = WHOLE + b"hoodie.table.metadata.partitions=files\n"
    storage.write(PROPERTIES, changed)
    storage.write(COPY, WHOLE)
    assert not properties.is_cut_off(storage)
    properties.restore(storage)
    assert storage.read(PROPERTIES) == changed


def test_a_file_cut_at_any_byte_is_put_back_and_a_cut_copy_never_is(storage: Storage) -> None:
    changed = WHOLE + b"hoodie.table.metadata.partitions=files\n"
    for length in range(len(WHOLE)):
        storage.write(PROPERTIES, changed[:length])
        storage.write(COPY, WHOLE)
        assert properties.is_cut_off(storage), length
        properties.restore(storage)
        assert storage.read(PROPERTIES) == WHOLE
        storage.write(COPY, WHOLE[:length])
        properties.restore(storage)
        assert storage.read(PROPERTIES) == WHOLE and not properties.is_cut_off(storage), length


@pytest.mark.parametrize("copy", [None, b"", WHOLE[:12]])
@pytest.mark.parametrize(
    "there", [b"", b"\xff\xfe", b"hoodie.table.name=\n", b"hoodie.table.name=clicks\nhoodie.table.vers", WHOLE[:-1]]
)
def test_where_no_copy_describes_a_table_nothing_is_changed(storage: Storage, there: bytes, copy: bytes | None) -> None:
    storage.write(PROPERTIES, there)
    if copy is not None:
        storage.write(COPY, copy)
    assert properties.is_cut_off(storage)
    with pytest.raises(TableMismatch, match="delete the file, and the next batch makes it anew"):
        properties.restore(storage)
    assert (storage.read(PROPERTIES), storage.read(COPY)) == (there, copy)


def test_a_value_is_set_beside_bytes_of_other_encodings(storage: Storage) -> None:
    storage.write(PROPERTIES, b"# \xdc\n" + WHOLE)
    properties.put(storage, "hoodie.table.timeline.timezone", "UTC")
    assert storage.read(PROPERTIES) == b"# \xdc\n" + WHOLE + b"hoodie.table.timeline.timezone=UTC\n"
