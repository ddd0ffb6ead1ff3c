"""Columns by expressions: where they cannot be computed, and what a condition keeps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.rows.trial import fates, table_of
from airflow_provider_slshudi.shaping.conditions import LEFT_OUT, Condition, described, restored
from airflow_provider_slshudi.shaping.evaluation import ARROW, Evaluation, Value
from airflow_provider_slshudi.shaping.grammar import parse

LATEST = "to_timestamp('9999-12-31T23:00:00Z')"
COLUMNS: list[dict[str, Any]] = [{"name": "n", "type": "int"}, {"name": "s"}]


def pipeline(*columns: dict[str, Any], **fields: Any) -> Pipeline:
    plain = {"name": "p", "source": {"project": "p", "logstore": "l"}, "table": {"path": "file:///t", "name": "t"}}
    return Pipeline.model_validate({**plain, "columns": [*COLUMNS, *columns], **fields})


def column(type_: str, expr: str, **fields: Any) -> dict[str, Any]:
    return {"name": "e", "type": type_, "expr": expr, **fields}


def logs(*numbers: str | None) -> list[dict[str, Any]]:
    return [{"n": number, "s": f"text {number}"} for number in numbers]


@pytest.mark.parametrize(
    ("expr", "type_", "values", "failed"),
    [
        ("10 / n", "double", [10.0, None, 5.0, None], [1]),
        ("if(n = 0, -1, 10 div n)", "bigint", [10, -1, 5, None], []),
        ("n = 0 or 10 / n > 6", "boolean", [True, True, False, None], []),
        ("n <> 0 and 10 / n > 6", "boolean", [True, False, False, None], []),
        ("coalesce(10 div n, 7)", "bigint", [10, None, 5, 7], [1]),
        ("cast(split_part(s, ' ', 2) as bigint)", "bigint", [1, 0, 2, None], [3]),
        ("try_cast(split_part(s, ' ', 2) as bigint)", "bigint", [1, 0, 2, None], []),
        ("n * 9223372036854775807", "bigint", [2**63 - 1, 0, None, None], [2]),
        ("get_json_object(key('j'), '$.a')", "string", ["1", None, None, None], [2]),
        ("1 / 0", "double", [None] * 4, [0, 1, 2, 3]),
        ("cast(s as bigint) is not null and true", "boolean", [None] * 4, [0, 1, 2, 3]),
        ("not (cast(s as bigint) is null or false)", "boolean", [None] * 4, [0, 1, 2, 3]),
        ("if(cast(s as bigint) > 3, 1, 2)", "bigint", [None] * 4, [0, 1, 2, 3]),
        ("greatest(10 div n, 3)", "bigint", [10, None, 5, 3], [1]),
        ("coalesce(10 div n, 7) = 10 or n = 0", "boolean", [True, True, False, None], []),
        ("n % 0", "bigint", [None] * 4, [0, 1, 2]),
        ("-9223372036854775807 - 1 - n", "bigint", [None, -(2**63), None, None], [0, 2]),
        ("9223372036854775807 + n", "bigint", [None, 2**63 - 1, None, None], [0, 2]),
        ("4611686018427387904 * n", "bigint", [2**62, 0, None, None], [2]),
        ("floor(n * 1e19)", "bigint", [None, 0, None, None], [0, 2]),
        ("timestamp_seconds(n * 1000000000000) is null", "boolean", [None, False, None, True], [0, 2]),
        (f"from_utc_timestamp({LATEST}, 'Asia/Shanghai') is null", "boolean", [None] * 4, [0, 1, 2, 3]),
        ("is_null", "", [], []),
        ("'a'", "string", ["a"] * 4, []),
        ("`__cursor__`", "", [], []),
        ("to_timestamp(s) is null", "boolean", [None] * 4, [0, 1, 2, 3]),
    ],
)
def test_it_is_told_for_which_logs_an_expression_cannot_be_computed(
    expr: str, type_: str, values: list[Any], failed: list[int]
) -> None:
    table = table_of([{"j": '{"a":1}'}, {}, {"j": "{"}, {"j": "{}"}], ["j"])
    columns = {"n": pa.array([1, 0, 2, None], pa.int32()), "s": pa.array(["t 1", "t 0", "t 2", "t x"])}
    if not type_:
        with pytest.raises(ValueError):
            parse(expr, {"n": "int", "s": "string"})
        return
    read = parse(expr, {"n": "int", "s": "string"})
    found, mask = Evaluation(table, lambda name: Value(columns[name])).array(read.tree, ARROW[read.type])
    assert read.type == type_
    got = [None if mask is not None and mask[place] else value for place, value in enumerate(found.to_pylist())]
    assert got == values
    assert ([] if mask is None else np.nonzero(mask)[0].tolist()) == failed


def test_an_expression_that_fails_is_a_misfit_by_the_files_rule() -> None:
    failing = column("double", "10 / n")
    (fine, zero, text) = fates(pipeline(failing), logs("5", "0", "x"))
    assert (fine.columns["e"], zero.columns["e"], text.columns["e"]) == (2.0, None, None)
    assert zero.misfits == ["column e: '0' is what its expression cannot be computed of"]
    assert len(text.misfits) == 2
    assert fates(pipeline(failing, misfits="quarantine"), logs("0"))[0].becomes == "quarantine"
    assert fates(pipeline(failing, misfits="fail"), logs("0"))[0].becomes == "fails the batch"
    required = column("string", "nullif(s, 'text 1')", required=True)
    assert [fate.becomes for fate in fates(pipeline(required, misfits="quarantine"), logs("1", "2"))] == [
        "quarantine",
        "row",
    ]


def test_each_misfit_is_counted_once() -> None:
    spec = RowSpec.of(pipeline(column("int", "cast(s as int)", required=True)))
    maker = RowMaker(spec)
    maker.rows(table_of(logs("1", "2"), spec.keys), 0)
    assert dict(maker.misfits) == {"e": 2} and maker.unfit == 2


@pytest.mark.parametrize(
    ("type_", "expr", "value"),
    [
        ("int", "n + 1", 6),
        ("decimal(5,2)", "cast(n as string)", 5),
        ("float", "n / 2", 2.5),
        ("date", "to_date('2026-01-02')", "2026-01-02"),
        ("array<int>", "concat('[', key('n'), ']')", [5]),
        ("int", "n * 1000000000", None),
        ("timestamp", "timestamp_seconds(n)", "1970-01-01 00:00:05+00:00"),
        ("string", "concat(`__topic__`, key('none-such'))", None),
    ],
)
def test_a_value_becomes_the_columns_type_or_a_misfit(type_: str, expr: str, value: Any) -> None:
    (fate,) = fates(pipeline(column(type_, expr)), logs("5"))
    assert fate.columns["e"] == value or str(fate.columns["e"]) == str(value)
    assert bool(fate.misfits) == (expr == "n * 1000000000")


def test_a_condition_keeps_what_it_cannot_judge_and_leaves_out_what_has_no_value() -> None:
    of = pipeline(where="n > 3 and s <> 'text 9'", misfits="quarantine")
    becomes = [fate.becomes for fate in fates(of, logs("5", "1", "9", "x", None))]
    assert becomes == ["row", "filtered", "filtered", "quarantine", "filtered"]


def test_a_condition_told_as_json_keeps_the_same_logs() -> None:
    derived = [column("int", "n % 3"), {"name": "f", "type": "boolean", "expr": "e = 1"}]
    of = pipeline(*derived, where="f or contains(s, '5')")
    told = described(of)
    condition = Condition.of(of)
    assert told is not None and condition is not None
    table = table_of(logs(*map(str, range(12))), condition.keys)
    assert np.array_equal(condition.kept(table), restored(told).tables(table) != LEFT_OUT)  # type: ignore[arg-type]
    kept = condition.kept(table)
    assert kept is not None and np.nonzero(kept)[0].tolist() == [1, 4, 5, 7, 10]
    assert described(pipeline()) is None


def test_columns_come_in_the_order_of_the_file_whatever_names_which() -> None:
    of = pipeline(
        {"name": "last", "type": "bigint", "expr": "first + 1"}, {"name": "first", "type": "bigint", "expr": "n"}
    )
    (fate,) = fates(of, logs("5"))
    assert list(fate.columns) == ["n", "s", "last", "first"] and fate.columns["last"] == 6


def test_a_condition_and_a_column_want_different_groups_of_a_pattern() -> None:
    split = "regexp_extract(s, '(.)e(.)', {})"
    of = pipeline(column("string", split.format(1)), where=f"e = 't' and {split.format(2)} = 'x'")
    assert [fate.becomes for fate in fates(of, logs("5"))] == ["row"]


def test_expressions_that_fail_for_all_logs_are_computed_a_column_at_a_time() -> None:
    """By halves, 100,000 logs would take half a minute."""
    count = 100_000
    numbers = {"n": pa.array([0, 2**62] * (count // 2), pa.int64()), "x": pa.array([float("nan")] * count)}
    table = table_of([{}], []).take(pa.array([0] * count))
    for text in (
        "10 / n",
        "10 div n",
        "n % n",
        "n * n",
        "n + n + n",
        "floor(x)",
        "cast(n as int)",
        "timestamp_seconds(n)",
    ):
        read = parse(text, {"n": "bigint", "x": "double"})
        start = time.process_time()
        Evaluation(table, lambda name: Value(numbers[name])).array(read.tree, ARROW[read.type])
        assert time.process_time() - start < 2, text
