"""Rows of one key become one, within a batch and with what is there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.hudi.files.merge import PLACE, MergeSpec, after, merge, reduce_rows

EVENT = MergeSpec(("k",), "at", "gone", False, 1)
COMMIT = MergeSpec(("k",), None, "gone", False, 1)
PARTIAL = MergeSpec(("k",), "at", None, True, 1)


def rows(*values: tuple[Any, ...]) -> pa.Table:
    """Rows of (key, ordering value, deleted, a value); the first come first."""
    schema = pa.schema([("k", pa.string()), ("at", pa.int64()), ("gone", pa.bool_()), ("v", pa.string())])
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)
    place = {" shard": [0] * len(values), " cursor": range(len(values)), " index": [0] * len(values)}
    for name in PLACE:
        table = table.append_column(name, pa.array(list(place[name]), pa.int64()))
    return table


def reduced(spec: MergeSpec, table: pa.Table) -> list[tuple[Any, ...]]:
    kept, keys = reduce_rows(table, table["k"].combine_chunks(), spec)
    assert kept["k"].to_pylist() == keys.to_pylist()
    return sorted(tuple(row.values())[:4] for row in kept.to_pylist())


BATCH = rows(("a", 5, None, "first"), ("b", 1, None, None), ("a", 3, True, "older"), ("a", 5, None, "equal"))


def test_the_greatest_ordering_value_is_left_and_of_equal_ones_the_last() -> None:
    assert reduced(EVENT, BATCH) == [("a", 5, None, "equal"), ("b", 1, None, None)]


def test_without_ordering_the_last_one_is_left() -> None:
    assert reduced(COMMIT, BATCH.slice(0, 3)) == [("a", 3, True, "older"), ("b", 1, None, None)]


def test_the_order_is_that_of_the_logs_however_they_are_cut() -> None:
    assert reduced(COMMIT, BATCH.take([2, 1, 0])) == reduced(COMMIT, BATCH.slice(0, 3))


def test_nulls_are_filled_from_the_rows_before_and_what_comes_late_fills_only_nulls() -> None:
    table = rows(
        ("a", 1, None, "x"), ("a", 3, None, None), ("a", 2, None, "late"), ("a", 3, True, None),
        ("b", 2, None, None), ("b", 1, None, "late"), ("b", 0, None, "later"),
        ("c", 1, None, None), ("c", 2, None, None),
    )  # fmt: skip
    assert reduced(PARTIAL, table) == [("a", 3, True, "x"), ("b", 2, None, "late"), ("c", 2, None, None)]


def test_what_is_there_comes_before_a_batch() -> None:
    there, batch = rows(("a", 2, None, "x"), ("b", 9, None, "y")), rows(("a", 3, None, None), ("a", 1, True, "late"))
    table, keys = after(there, there["k"].combine_chunks(), batch, batch["k"].combine_chunks())
    kept, _ = reduce_rows(table, keys, PARTIAL)
    assert [tuple(row.values())[:4] for row in kept.to_pylist()] == [("a", 3, True, "x")]


@pytest.mark.parametrize(
    ("spec", "left", "counts"),
    [
        (EVENT, [("a", 5, None, "there"), ("d", 5, None, "new")], (1, 0, 1)),
        (COMMIT, [("a", 4, None, "older"), ("d", 5, None, "new")], (1, 1, 1)),
        (
            PARTIAL,
            [("a", 5, None, "there"), ("b", 9, True, "x"), ("c", 1, True, None), ("d", 5, None, "new")],
            (2, 2, 0),
        ),
    ],
)
def test_what_is_there_is_updated_deleted_and_added_to(
    spec: MergeSpec, left: list[tuple[Any, ...]], counts: tuple[int, int, int]
) -> None:
    there = rows(("a", 5, None, "there"), ("b", 5, None, "x"))
    batch = rows(("a", 4, None, "older"), ("b", 9, True, None), ("c", 1, True, None), ("d", 5, None, "new"))
    merged = merge(there, there["k"].combine_chunks(), batch, batch["k"].combine_chunks(), spec)
    assert sorted(tuple(row.values())[:4] for row in merged.rows.to_pylist()) == left
    assert (merged.inserted, merged.updated, merged.deleted) == counts


@pytest.mark.parametrize(("spec", "left"), [(EVENT, "newest"), (COMMIT, "late")])
def test_of_a_key_that_another_writer_inserted_twice_one_row_is_left(spec: MergeSpec, left: str) -> None:
    there = rows(("b", 1, None, "other"), ("a", 7, None, "newest"), ("b", 2, None, "other"), ("a", 6, None, "second"))
    there = there.drop_columns(list(PLACE))
    batch = rows(("a", 3, None, "late")).drop_columns(list(PLACE))
    merged = merge(there, there["k"].combine_chunks(), batch, batch["k"].combine_chunks(), spec)
    assert sorted(merged.rows["v"].to_pylist()) == sorted(["other", "other", left])
