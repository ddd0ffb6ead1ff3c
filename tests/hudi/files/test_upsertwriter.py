"""Files of an upsert, written without Spark, as Hudi's own client, Spark and hudi-rs take them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.exceptions import ManifestError, TableMismatch
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.hudi.client import commit
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files import marking, merge, row_changes
from airflow_provider_slshudi.hudi.files.spill import Spill
from airflow_provider_slshudi.system.points import Point
from tests.hudi.files.upserted import FIRST, Table
from tests.pipelines import customers
from tests.upserts import Change, Model, rows_by_rust, rows_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def table(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> Table:
    made = Table(gateway, customers(tmp_path / "table", request.param))
    instant = made.open()
    made.commit(instant, made.write(instant, FIRST))
    return made


SECOND = [Change(f"c{number}", 2, "a", -number, is_deleted=number % 3 == 0) for number in range(20)]


def model(*batches: list[Change]) -> list[tuple[Any, ...]]:
    upsert = customers("file:///nowhere/table").table.upsert
    assert upsert is not None
    found = Model(upsert)
    for batch in batches:
        found.batch(batch)
    return found.table()


def test_a_rollback_takes_away_what_was_written(spark: SparkSession, table: Table) -> None:
    before, instant = table.files(), table.open()
    table.write(instant, SECOND)
    assert len(table.files()) > len(before)
    commit.roll_back(table.gateway, table.pipeline, instant)
    assert table.files() == before
    assert rows_by_spark(spark, table.storage.full("")) == rows_by_rust(table.storage.uri) == model(FIRST)


def test_what_an_attempt_left_that_was_killed_is_gone_with_the_commit(spark: SparkSession, table: Table) -> None:
    instant = table.open()
    stats = table.write(instant, SECOND)
    for number, stat in enumerate(stats):
        # Another attempt's file, cut off or whole.
        stray = stat["path"].replace("0-1-2", "0-1-1")
        table.storage.write(f".hoodie/.temp/{instant}/{stray}.marker.CREATE", b"")
        content = table.storage.read(stat["path"]) or b""
        table.storage.write(stray, content[: len(content) // 2] if number % 2 else content)
    table.commit(instant, stats)
    assert {name for name in table.files() if "0-1-1" in name} == set()
    assert rows_by_spark(spark, table.storage.full("")) == rows_by_rust(table.storage.uri) == model(FIRST, SECOND)


def test_an_attempt_that_is_no_longer_wanted_leaves_nothing(table: Table) -> None:
    before, instant, asked = table.files(), table.open(), 0

    def wanted() -> None:
        nonlocal asked
        asked += 1
        if asked == 6:
            raise ManifestError("withdrawn", table="", transaction="")

    with pytest.raises(ManifestError):
        table.write(instant, SECOND, wanted)
    assert table.files() == before and asked == 6


@pytest.mark.parametrize("at", [Point.APPEND_TASK_MARKED, Point.APPEND_TASK_ENDED])
def test_a_file_gets_no_name_once_its_instant_is_decided(
    table: Table, at: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, instant = table.files(), table.open()

    def decided(point: Point) -> None:
        if point is at:
            fencing.fence(table.storage, instant)

    monkeypatch.setattr(marking, "reach", decided)
    with pytest.raises(ManifestError, match=f"its instant {instant} was decided meanwhile"):
        table.write(instant, SECOND)
    assert table.files() == before


EVENT = {"ordering_field": "updated_at", "delete_marker": "is_deleted"}
COMMIT = {"ordering_field": None, "delete_marker": "is_deleted"}
PARTIAL = {"delete_marker": None, "partial_update": True}


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize(
    "merging",
    [EVENT, {**EVENT, "delete_marker": None}, COMMIT, {**PARTIAL, "ordering_field": None}, PARTIAL],
    ids=["event time", "without deletes", "commit time", "partial", "partial, event time"],
)
def test_a_task_with_little_memory_writes_what_one_with_much_does(
    gateway: Gateway, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: str, merging: Any
) -> None:
    """Rows that are more than memory holds: many keys, and one key with most of the rows."""
    spilled, append = 0, Spill.append

    def counted(disk: Spill, rows: pa.Table) -> tuple[int, int]:
        nonlocal spilled
        spilled += 1
        return append(disk, rows)

    monkeypatch.setattr(Spill, "append", counted)
    tables = [Table(gateway, customers(tmp_path / name, type_, **merging)) for name in ("much", "little")]
    for number in range(3):
        batch = drawn(random.Random(number), gone=merging["delete_marker"] is not None)
        found = []
        for table, size in zip(tables, (1 << 20, 6_000), strict=True):
            for name, share in (("BUFFER_BYTES", 1), ("PIECE_BYTES", 12), ("WINDOW_BYTES", 4)):
                monkeypatch.setattr(row_changes, name, size // share)
            monkeypatch.setattr(merge, "FOLD_BYTES", size // 4)
            instant = table.open()
            table.commit(instant, table.write(instant, batch))
            found.append(rows_by_spark(spark, table.storage.full("")))
        assert found[0] == found[1] and len(found[0]) > 100
    assert spilled > 20


def drawn(dice: random.Random, gone: bool) -> list[Change]:
    """Changes of two partitions with ordering values that are often equal, and values that are often lacking."""

    def change() -> Change:
        id_ = f"c{dice.randrange(150)}" if dice.random() < 0.4 else "hot"
        number, score = (dice.choice([None, dice.randrange(1_000)]) for _ in range(2))
        name = dice.choice([None, f"n{dice.randrange(1_000)}"])
        is_deleted = gone and dice.random() < 0.2
        return Change(id_, dice.randrange(1, 9), dice.choice("ab"), number, name, score, is_deleted)

    return [change() for _ in range(700)]


def test_two_file_groups_of_a_bucket_are_refused(table: Table) -> None:
    folder = Path(table.storage.full("region=a"))
    base = next(file for file in folder.glob("0000*.parquet"))
    shutil.copy(base, folder / (base.name[:9] + "ffff" + base.name[13:]))
    with pytest.raises(TableMismatch, match=r"bucket \d of a partition has two file groups"):
        table.write(table.open(), SECOND)
