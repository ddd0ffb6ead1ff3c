"""File groups as the names of files show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi.files.filegroups import Completed, FileGroup, file_groups
from airflow_provider_slshudi.storage.files import Storage

UPSERTED, BULK, LOGGED = (
    "00000001-e500-4d4a-94a4-3b4279d6d1ac-0",
    "00000002-b0bf-488d-a258-626f645fe03b",
    "00000012-1d53-45c5-83c5-c5ac01f75cb7-0",
)
COMPLETED = Completed(frozenset({"20", "30"}), "15")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    for name in (
        f"{UPSERTED}_4-182-424_20.parquet",
        f"{UPSERTED}_0-9-9_30.parquet",
        f"{UPSERTED}_0-9-9_40.parquet",
        f"{BULK}_0-14-15_10.parquet",
        f".{BULK}_20.log.1_0-252-619",
        f".{LOGGED}_30.log.1_0-252-619",
        ".00000003-0000-0000-0000-000000000000-0_40.log.1_0-1-1",
        ".hoodie_partition_metadata",
        f".{UPSERTED}_0-9-9_30.parquet.crc",
    ):
        (tmp_path / name).touch()
    return Storage(f"file://{tmp_path}")


def test_files_of_completed_instants_count_and_the_newest_base_file_is_named(storage: Storage) -> None:
    assert file_groups(storage, "", COMPLETED) == {
        1: FileGroup(UPSERTED, f"{UPSERTED}_0-9-9_30.parquet", "30"),
        2: FileGroup(BULK, f"{BULK}_0-14-15_10.parquet", "10"),
        12: FileGroup(LOGGED, None, None),
    }


def test_a_partition_that_is_not_there_has_none(storage: Storage) -> None:
    assert file_groups(storage, "region=a", COMPLETED) == {}


def test_two_of_a_bucket_are_refused(storage: Storage) -> None:
    storage.write("00000002-ffff-488d-a258-626f645fe03b-0_0-14-15_20.parquet", b"")
    with pytest.raises(TableMismatch, match=r"bucket 2 of a partition has two file groups"):
        file_groups(storage, "", COMPLETED)
