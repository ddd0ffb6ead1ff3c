"""Files of an upsert, written without Spark, as Hudi's own client, Spark and hudi-rs take them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.exceptions import ManifestError, TableMismatch
from airflow_provider_slshudi.hudi.client import rollback
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files import marking
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.points import Point
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
    rollback.roll_back(table.gateway, table.pipeline, instant)
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
            handover.fence(table.storage, instant)

    monkeypatch.setattr(marking, "reach", decided)
    with pytest.raises(ManifestError, match=f"its instant {instant} was decided meanwhile"):
        table.write(instant, SECOND)
    assert table.files() == before


def test_two_file_groups_of_a_bucket_are_refused(table: Table) -> None:
    folder = Path(table.storage.full("region=a"))
    base = next(file for file in folder.glob("0000*.parquet"))
    shutil.copy(base, folder / (base.name[:9] + "ffff" + base.name[13:]))
    with pytest.raises(TableMismatch, match=r"bucket \d of partition region=a has two file groups"):
        table.write(table.open(), SECOND)
