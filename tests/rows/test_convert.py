"""Log values become column values; what does not fit becomes NULL and is counted, and nothing else changes."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.datatypes import SCALARS
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, convert_map, misfits
from airflow_provider_slshudi.rows.documents import at_path
from tests.rows.cases import CASES, How, spec_of


@pytest.mark.parametrize(("type_", "how", "value", "expected"), CASES)
@pytest.mark.parametrize("among", ["alone", "fitting", "misfits"])
def test_a_value_is_the_same_whatever_stands_beside_it(
    type_: str, how: How, value: bytes, expected: Any, among: str
) -> None:
    fitting = next(v for t, f, v, e in CASES if (t, f) == (type_, how) and e is not None)
    neighbours = {"alone": [], "fitting": [fitting, None], "misfits": [b"\xff", b"?", None, fitting]}[among]
    values = pa.array([*neighbours, value, *neighbours], pa.binary())
    after = convert(values, spec_of(type_, how))
    assert after.type == arrow_type(type_)
    assert after[len(neighbours)].as_py() == expected
    assert len(after) == len(values)
    if type_ != "binary":
        lost = {"alone": 0, "fitting": 0, "misfits": 4}[among] + (expected is None)
        assert misfits(values, after) == (lost - 2 if type_ == "string" and among == "misfits" else lost)


@pytest.mark.parametrize(
    ("type_", "text"), [("double", b"-0.0"), ("float", b"-0"), ("struct<a:double>", b'{"a":-0.0}')]
)
def test_there_is_one_zero(type_: str, text: bytes) -> None:
    found = convert(pa.array([text], pa.binary()), ColumnSpec("c", type_, "c"))[0].as_py()
    number = found["a"] if isinstance(found, dict) else found
    assert math.copysign(1, number) == 1 and number == 0


def test_each_type_has_values_that_fit_and_values_that_do_not() -> None:
    types = {type_.split("(")[0].split("<")[0] for type_, _, _, expected in CASES if expected is not None}
    assert types == {*SCALARS, "decimal", "array", "map", "struct"}
    assert types - {type_.split("(")[0].split("<")[0] for type_, *_, expected in CASES if expected is None} == {
        "binary"
    }


@pytest.mark.parametrize(
    "type_", ["int", "decimal(9,2)", "date", "boolean", "array<int>", "struct<a:int>", "map<string,int>"]
)
def test_no_values_and_only_missing_ones(type_: str) -> None:
    for values in ([], [None], [None, None]):
        after = convert(pa.array(values, pa.binary()), spec_of(type_, None))
        assert after.type == arrow_type(type_) and after.to_pylist() == values


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("$.user.id", b'{"user": {"id": 7}}', b"7"),
        ("$.user.id", b'{"user": {"id": 1.10}}', b"1.10"),
        ("$.user", b'{"user": "a \\u00e4\\n"}', "a ä\n".encode()),
        ("$.user", b'{"user": {"id": [1, "x", true, null]}}', b'{"id":[1,"x",true,null]}'),
        ("$.items[1].price", b'{"items": [{}, {"price": 0.5}]}', b"0.5"),
        ("$['odd name'][0]", b'{"odd name": [false]}', b"false"),
        ("$.user.id", b'{"user": {}}', None),
        ("$.user.id", b'{"user": [1]}', None),
        ("$.user.id", b'{"user": {"id": null}}', None),
        ("$[3]", b"[1]", None),
        ("$.user", None, None),
    ],
)
def test_a_path_finds_a_value_or_nothing(path: str, text: bytes | None, expected: bytes | None) -> None:
    picked, found = at_path(pa.array([b"{}", text, None], pa.binary()), path)
    assert picked.to_pylist() == found.to_pylist() == [None, expected, None]


@pytest.mark.parametrize("text", [b"user", b'{"user": 1', b"\xff", b"", b'{"user": "\\ud800"}'])
def test_a_path_into_what_is_no_json_is_a_misfit(text: bytes) -> None:
    picked, found = at_path(pa.array([text, b'{"user": 1}'], pa.binary()), "$.user")
    assert picked.to_pylist() == [None, b"1"]
    assert found.to_pylist() == [text, b"1"]


def test_slices_of_a_larger_array_convert_as_they_read() -> None:
    values = pa.array([b"x", b"1", b"2", b"y", b"3"], pa.binary()).slice(1, 3)
    assert convert(values, ColumnSpec("c", "bigint", "c")).to_pylist() == [1, 2, None]


def test_an_entry_that_is_not_utf8_loses_its_value_and_no_other() -> None:
    maps = pa.array([[(b"a", b"1"), (b"b", b"\xff")], [], [(b"\xfe", b"2")]], pa.map_(pa.binary(), pa.binary()))
    after, lost = convert_map(maps)
    assert after.to_pylist() == [[("a", "1"), ("b", None)], [], [("\\xfe", "2")]]
    assert lost == 1
