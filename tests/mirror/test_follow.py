"""After every event readers of Iceberg and Delta see exactly the rows of the Hudi table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY
from airflow_provider_slshudi.mirror.table_changes import INSTANT_KEY
from tests.mirror.conftest import Mirrored

Make = Callable[..., Mirrored]


def rows(day: str | None, *numbers: int) -> list[dict[str, Any]]:
    return [{"n": number, "day": day} for number in numbers]


def test_each_instant_gets_one_snapshot_that_names_it_and_its_transaction(mirrored: Make) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1, 2))
    assert {name: done.reconciled for name, done in table.follow().items()} == {"iceberg": True, "delta": True}
    table.require(rows("a", 1, 2))
    appended = table.made.append(rows("a", 3), rows("b", 4, 5))
    table.made.update(first[0], rows("a", 1, 20))
    done = table.follow()
    assert [len(followed.instants) for followed in done.values()] == [2, 2]
    assert all(not followed.reconciled for followed in done.values())
    table.require([*rows("a", 1, 20, 3), *rows("b", 4, 5)])
    newest = table.iceberg.current_snapshot().summary
    assert newest[INSTANT_KEY] == done["iceberg"].instants[-1]
    assert newest[TRANSACTION_KEY] == f"of-{newest[INSTANT_KEY]}"
    (entry,) = table.delta.history(1)
    assert (entry[INSTANT_KEY], entry[TRANSACTION_KEY]) == (newest[INSTANT_KEY], newest[TRANSACTION_KEY])
    assert len(table.iceberg.metadata.snapshots) == 3 and table.delta.version() == 2
    table.made.cluster([first[0], appended[0]], rows("a", 1, 3, 20))
    table.follow()
    table.require([*rows("a", 1, 20, 3), *rows("b", 4, 5)])
    table.follow()
    assert len(table.iceberg.metadata.snapshots) == 4 and table.delta.version() == 3


def test_a_file_whose_rows_are_all_deleted_goes(mirrored: Make) -> None:
    table = mirrored()
    first = table.made.append(rows("a", 1), rows("b", 2))
    table.follow()
    emptied = table.made.update(first[0], [])
    table.follow()
    table.require(rows("b", 2))
    table.made.update(emptied, rows("a", 7))
    table.follow()
    table.require([*rows("b", 2), *rows("a", 7)])


@pytest.mark.parametrize("days", [["a/b", "50%", "Köln #1", "x=y", "c d", None]])
def test_partitions_have_their_values_however_folders_spell_them(mirrored: Make, days: list[str | None]) -> None:
    table = mirrored()
    expected = []
    for number, day in enumerate(days):
        table.made.append(rows(day, number))
        expected += rows(day, number)
        table.follow()
        table.require(expected)
    assert table.iceberg.scan("day = 'a/b'").to_arrow().num_rows == 1
    assert table.delta.to_pyarrow_table([("day", "=", "Köln #1")]).num_rows == 1


@pytest.mark.parametrize(("type_", "values"), [("date", ["2026-01-31", "1969-12-31"]), ("bigint", [-5, 2**40])])
def test_partitions_may_be_days_and_numbers(mirrored: Make, type_: str, values: list[Any]) -> None:
    from datetime import date

    table = mirrored(columns=[{"name": "n", "type": "int"}, {"name": "day", "type": type_}])
    days = [date.fromisoformat(value) if type_ == "date" else value for value in values]
    for number, day in enumerate(days):
        table.made.append([{"n": number, "day": day}])
    table.follow()
    for number, day in enumerate(days):
        table.made.append([{"n": number + 10, "day": day}])
    table.follow()
    table.require([{"n": number + more, "day": day} for number, day in enumerate(days) for more in (0, 10)])
    assert table.iceberg.scan(f"day = {values[0]!r}").to_arrow().num_rows == 2


def test_a_table_without_partitions(mirrored: Make) -> None:
    table = mirrored(table={"path": f"{mirrored().made.storage.uri}_flat", "name": "flat"})
    first = table.made.append(rows("a", 1, 2))
    table.follow()
    table.made.update(first[0], rows("a", 1, 3))
    table.made.append(rows("b", 9))
    table.follow()
    table.require([*rows("a", 1, 3), *rows("b", 9)])
