"""Columns of every type, columns that are added or become wider, and tables whose log files no mirror can show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import MirrorRefused
from airflow_provider_slshudi.hudi.schema import arrow_schema, avro_schema
from airflow_provider_slshudi.mirror.following import COMPACTED, ROWS_KEY
from tests.mirror.conftest import Mirrored
from tests.mirror.test_follow import rows

Make = Callable[..., Mirrored]
DAY = {"name": "day"}
VALUES: dict[str, Any] = {
    "string": "ü 😀",
    "int": 2**31 - 1,
    "bigint": -(2**63),
    "float": 1.5,
    "double": -0.1,
    "boolean": True,
    "date": date(1582, 1, 1),
    "timestamp": datetime(2026, 1, 1, 12, 30, 0, 123456, timezone.utc),
    "binary": b"\x00\xff",
    "decimal(38,10)": Decimal("1234567890.0123456789"),
    "decimal(5,2)": Decimal("-1.50"),
    "array<int>": [1, None, 3],
    "map<string,string>": [("a", "b"), ("c", None)],
    "struct<x:int,y:struct<z:array<string>>>": {"x": 1, "y": {"z": ["z"]}},
    "array<struct<k:string,v:bigint>>": [{"k": "k", "v": 1}],
}


def columns(*types: str) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = [{"name": f"c{number}", "type": type_} for number, type_ in enumerate(types)]
    return [{**one, "format": "millis"} if one["type"] == "timestamp" else one for one in described]


def plain(value: Any) -> Any:
    """A value with its maps as dictionaries and its times in UTC, however a reader gives them."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    if isinstance(value, list) and value and isinstance(value[0], dict) and set(value[0]) == {"key", "value"}:
        return {pair["key"]: pair["value"] for pair in value}
    return value


def plainly(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts, sorted."""
    return sorted(str({name: plain(value) for name, value in row.items()}) for row in rows)


def test_values_of_every_type_and_nulls(mirrored: Make) -> None:
    table = mirrored(columns=[*columns(*VALUES), DAY])
    row = {f"c{number}": value for number, value in enumerate(VALUES.values())} | {"day": "a"}
    # pyiceberg 0.12.0 reads a NULL list of structs as an empty one, from any file.
    nothing = dict.fromkeys(row, None) | {"day": "a", f"c{len(VALUES) - 1}": []}
    for _ in range(2):
        table.made.append([row, nothing])
        table.follow()
    for reader, seen in table.read().items():
        assert plainly(seen) == plainly([row, nothing] * 2), reader


def evolve(table: Mirrored, *described: dict[str, Any]) -> None:
    """Gives the pipeline other columns."""
    fields = table.made.pipeline.model_dump(mode="json")
    pipeline = Pipeline.model_validate({**fields, "columns": [*described, DAY]})
    table.made.pipeline = pipeline
    object.__setattr__(table.work, "pipeline", pipeline)


WIDER = [
    ("int", "bigint", 1, 2**40),
    ("float", "double", 1.5, 1e300),
    ("decimal(5,2)", "decimal(6,2)", Decimal("1.50"), Decimal("1000.25")),
]


@pytest.mark.parametrize("flat", [False, True], ids=["partitions", "no partitions"])
@pytest.mark.parametrize(("before", "after", "old", "new"), WIDER, ids=[f"{one} to {two}" for one, two, *_ in WIDER])
def test_columns_are_added_and_become_wider(
    mirrored: Make, before: str, after: str, old: Any, new: Any, flat: bool
) -> None:
    places = {"path": f"{mirrored().made.storage.uri}_flat", "name": "flat"}
    table = mirrored(columns=[*columns(before), DAY], **({"table": places} if flat else {}))
    table.made.append([{"c0": old, "day": "a"}])
    table.follow()
    evolve(table, *columns(after, "string"))
    table.made.append([{"c0": new, "c1": "new", "day": "a"}])
    table.follow()
    expected = [{"c0": old, "c1": None, "day": "a"}, {"c0": new, "c1": "new", "day": "a"}]
    table.require(expected)
    # A batch that was planned before the change writes narrow files still.
    instant = table.made.begin()
    narrow = arrow_schema(table.made.pipeline).remove(1).set(0, pa.field("c0", arrow_schema_type(before)))
    table.made.complete(instant, [table.made.write(instant, [{"c0": old, "day": "b"}], schema=narrow)])
    table.follow()
    table.require([*expected, {"c0": old, "c1": None, "day": "b"}])


def arrow_schema_type(type_: str) -> Any:
    from airflow_provider_slshudi.config.arrow import arrow_type

    return arrow_type(type_)


def test_a_struct_gets_fields(mirrored: Make) -> None:
    table = mirrored(columns=[*columns("struct<x:int>"), DAY])
    table.made.append([{"c0": {"x": 1}, "day": "a"}])
    table.follow()
    evolve(table, *columns("struct<x:int,y:string>"))
    table.made.append([{"c0": {"x": 2, "y": "y"}, "day": "a"}])
    table.follow()
    expected = [{"c0": {"x": 1, "y": None}, "day": "a"}, {"c0": {"x": 2, "y": "y"}, "day": "a"}]
    seen = table.read()
    del seen["polars, Delta"]  # reads no struct with a field that its file lacks
    for reader, found in seen.items():
        assert plainly(found) == plainly(expected), reader


def test_a_column_that_iceberg_cannot_make_wider_is_told(mirrored: Make) -> None:
    table = mirrored(columns=[*columns("int"), DAY])
    table.made.append([{"c0": 1, "day": "a"}])
    table.follow()
    evolve(table, *columns("double"))
    table.made.append([{"c0": 1.5, "day": "a"}])
    with pytest.raises(MirrorRefused, match=r"Iceberg table lake\.events: .*int -> double.* drop the table"):
        table.follow()
    assert table.iceberg.scan().to_arrow().num_rows == 1


def test_of_a_merge_on_read_table_mirrors_show_what_is_compacted_and_say_so(mirrored: Make) -> None:
    path = mirrored().made.storage.uri
    by = {"by": "field", "column": "day"}
    keyed = {"record_key": "n", "buckets": 1}
    table = mirrored(
        table={"path": path, "name": "events", "type": "merge_on_read", "partition": by, "upsert": keyed},
        columns=[{"name": "n", "type": "bigint"}, DAY],
    )
    group = "00000000-1111-2222-3333-444444444444-0"
    log = {"fileId": group, "prevCommit": "null", "numWrites": 2, "fileSizeInBytes": 9}
    instant = table.made.begin("deltacommit")
    table.made.complete(instant, [{**log, "path": f"day=a/.{group}_{instant}.log.1_0-0-0"}], "deltacommit")
    table.follow()
    assert table.iceberg.scan().to_arrow().num_rows == 0 == table.delta.count()
    compaction = table.made.begin("compaction")
    stat = {**table.made.write(compaction, rows("a", 1, 2), group), "prevCommit": instant}
    table.made.complete(compaction, [stat])
    table.follow()
    table.require(rows("a", 1, 2))
    again = table.made.begin("compaction")
    table.made.complete(again, [{**table.made.write(again, rows("a", 1, 2, 3), group), "prevCommit": compaction}])
    table.follow()
    table.require(rows("a", 1, 2, 3))
    assert table.iceberg.current_snapshot().summary[ROWS_KEY] == COMPACTED == table.delta.history(1)[0][ROWS_KEY]


def test_hudis_own_columns_are_not_shown(mirrored: Make) -> None:
    table = mirrored()
    table.made.append(rows("a", 1))
    assert "_hoodie" not in avro_schema(table.made.pipeline)
    table.follow()
    assert table.iceberg.schema().column_names == ["n", "day"]
