"""Snapshots that are kept can be read: neither our cleaning nor another engine's takes their files."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.beside import table_of
from airflow_provider_slshudi.services.mirrors import release
from tests.mirror.conftest import TABLE, Mirrored
from tests.mirror.test_follow import rows

Make = Callable[..., Mirrored]


def readable(table: Mirrored) -> list[int]:
    """The rows of each snapshot that is kept, the oldest first."""
    kept = sorted(table.iceberg.metadata.snapshots, key=lambda one: one.sequence_number)
    return [table.iceberg.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in kept]


def test_a_clean_takes_its_files_out_of_the_mirrors_first(mirrored: Make) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1), rows("b", 2))
    table.follow()
    second = table.made.update(first[0], rows("a", 1, 10))
    table.follow()
    table.made.append(rows("c", 3))
    table.follow()
    table.made.update(second, rows("a", 1, 10, 100))  # not mirrored when the clean begins
    leaving = [str(first[0]["path"]), str(second["path"])]
    release(table.work, leaving[:1])
    table.made.storage.delete_files(leaving[:1])
    assert readable(table) == [3, 4, 5]
    release(table.work, leaving[1:])
    table.made.storage.delete_files(leaving[1:])
    assert readable(table) == [5]
    table.require([*rows("a", 1, 10, 100), *rows("b", 2), *rows("c", 3)])


def test_a_tag_of_somebody_keeps_its_snapshot_and_a_warning_names_it(
    mirrored: Make, caplog: pytest.LogCaptureFixture
) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1))
    table.follow()
    table.iceberg.manage_snapshots().create_tag(table.iceberg.current_snapshot().snapshot_id, "audit").commit()
    table.made.update(first[0], rows("a", 2))
    release(table.work, [str(first[0]["path"])])
    assert "audit will miss files that a clean deletes" in caplog.text
    assert readable(table) == [1, 1]


def test_metadata_files_of_snapshots_that_expired_go(mirrored: Make) -> None:
    table = mirrored(keep=2)
    first = table.made.append(rows("a", 1), rows("b", 1))
    for number in range(30):
        first[0] = table.made.update(first[0], rows("a", number))
        table.follow()
        assert 1 <= len(table.iceberg.metadata.snapshots) <= 4
    names = {file.name for file in (table.iceberg_folder / "metadata").iterdir()}
    assert sum(name.endswith(".metadata.json") for name in names) <= 11
    snapshots, io = table.iceberg.metadata.snapshots, table.iceberg.io
    used = {one.manifest_list for one in snapshots} | {m.manifest_path for one in snapshots for m in one.manifests(io)}
    assert {name for name in names if name.endswith(".avro")} == {path.rpartition("/")[2] for path in used}
    assert readable(table) == [2] * len(table.iceberg.metadata.snapshots)


def test_dropping_the_mirror_leaves_the_tables_folder_alone(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    table.follow()
    before = sorted(table.made.storage.walk())
    assert not table.iceberg.location().startswith(f"{table.made.storage.uri}/")
    table.iceberg.catalog.drop_table(TABLE)
    shutil.rmtree(table.iceberg_folder)  # as Trino's DROP does
    assert sorted(table.made.storage.walk()) == before
    table.follow()
    table.require(rows("a", 1))


def test_a_vacuum_takes_nothing_that_readers_of_hudi_need(mirrored: Make) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1))
    pending = table.made.begin()
    table.made.write(pending, rows("a", 7))
    table.made.update(first[0], rows("a", 2))
    table.follow()
    before = sorted(table.made.storage.walk())
    assert table.delta.vacuum(dry_run=False) == []
    assert sorted(table.made.storage.walk()) == before


def test_a_quarantine_has_no_mirror(mirrored: Make) -> None:
    assert table_of(mirrored().made.pipeline).mirror is None


@pytest.mark.parametrize("location", ["file:///lake/events/iceberg", "file:///lake", "file:///lake/events"])
def test_the_mirrors_location_lies_outside_of_the_tables_folder(mirrored: Make, location: str) -> None:
    described = mirrored().made.pipeline.model_dump(mode="json")
    described["table"]["path"] = "file:///lake/events"
    described["mirror"]["iceberg"]["location"] = location
    with pytest.raises(ValueError, match="share a folder"):
        Pipeline.model_validate(described)
    described["mirror"]["iceberg"]["location"] = "file:///lake/events_iceberg"
    Pipeline.model_validate(described)
