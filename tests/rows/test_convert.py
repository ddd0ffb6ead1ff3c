"""Log values become column values; what does not fit becomes NULL and is counted, and nothing else changes."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, convert_map, misfits
from airflow_provider_slshudi.rows.documents import at_path
from airflow_provider_slshudi.types.arrow import arrow_type
from airflow_provider_slshudi.types.datatypes import SCALARS


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


How = str | dict[str, str] | None
"""A column's format, or all of its settings beside type and key."""

NEW_YORK = {"format": "iso8601", "timezone": "America/New_York"}
ACCESS_LOG = "dd/MMM/yyyy:HH:mm:ss Z"
STRUCT = "struct<id:bigint,Tags:array<string>,at:timestamp>"
CASES: list[tuple[str, How, bytes, Any]] = [
    ("string", None, "häß".encode(), "häß"),
    ("string", None, b"", ""),
    ("string", None, b"line\nbreak", "line\nbreak"),
    ("string", None, b"\xff\xfe", None),
    ("string", None, b"cut \xe4\xbd", None),
    ("int", None, b"2147483647", 2147483647),
    ("int", None, b"2147483648", None),
    ("int", None, b" +7 ", 7),
    ("int", None, b"\x00\t7\x7f\n", 7),
    ("int", None, "7\u00a0".encode(), None),
    ("int", None, "\u0667".encode(), None),
    ("int", None, b"-7", -7),
    ("int", None, b"+-7", None),
    ("int", None, b"0000000000000000000000000000007", 7),
    ("int", None, b"7.0", None),
    ("int", None, b"", None),
    ("int", None, b"0x10", None),
    ("bigint", None, b"-9223372036854775808", -(2**63)),
    ("bigint", None, b"9223372036854775808", None),
    ("bigint", None, b"99999999999999999999", None),
    ("double", None, b"1e3", 1000.0),
    ("double", None, b"-.5", -0.5),
    ("double", None, b"12.", 12.0),
    ("double", None, b"1,5", None),
    ("double", None, b"Infinity", float("inf")),
    ("double", None, b"+inf", float("inf")),
    ("double", None, b"1e400", float("inf")),
    ("double", None, b"1.5d", None),
    ("double", None, b"0x1p3", None),
    ("double", None, b"-nan", None),
    ("double", None, b"nan(1)", None),
    ("double", None, b"1\x7f", None),
    ("float", None, b"0.25", 0.25),
    ("float", None, b"abc", None),
    ("decimal(7,2)", None, b"12.5", Decimal("12.50")),
    ("decimal(7,2)", None, b" +.5 ", Decimal("0.50")),
    ("decimal(7,2)", None, b"1.005", Decimal("1.01")),
    ("decimal(7,2)", None, b"-1.005", Decimal("-1.01")),
    ("decimal(7,2)", None, b"1.00499999999999999999999999999999999999999999999", Decimal("1.00")),
    ("decimal(7,2)", None, b"99999.994", Decimal("99999.99")),
    ("decimal(7,2)", None, b"99999.995", None),
    ("decimal(7,2)", None, b"100000", None),
    ("decimal(7,2)", None, b"1.5E3", Decimal("1500.00")),
    ("decimal(7,2)", None, b"5e-3", Decimal("0.01")),
    ("decimal(7,2)", None, b"1e-400", Decimal("0.00")),
    ("decimal(7,2)", None, b"1e400", None),
    ("decimal(7,2)", None, b"0e40", None),
    ("decimal(7,2)", None, b"one", None),
    ("decimal(7,2)", None, b".", None),
    ("decimal(7,2)", None, b"-+1.005", None),
    ("decimal(38,0)", None, b"99999999999999999999999999999999999999", Decimal("9" * 38)),
    ("decimal(38,0)", None, b"99999999999999999999999999999999999999.5", None),
    ("decimal(38,38)", None, b"0.5", Decimal("0.5")),
    ("decimal(38,38)", None, b"1", None),
    ("decimal(38,38)", None, b"11", None),
    ("decimal(38,38)", None, b"010", None),
    ("decimal(38,38)", None, b"0" * 300 + b"." + b"4" * 38 + b"5" * 300, Decimal("0." + "4" * 37 + "5")),
    ("boolean", None, b"TRUE", True),
    ("boolean", None, b" y\n", True),
    ("boolean", None, b"0", False),
    ("boolean", None, b"maybe", None),
    ("date", None, b"2026-02-28", date(2026, 2, 28)),
    ("date", None, b"2026-2-8", date(2026, 2, 8)),
    ("date", None, b"2026-02", date(2026, 2, 1)),
    ("date", None, b"2026-02-28T23:59:59Z", date(2026, 2, 28)),
    ("date", None, b"2026-02-30", None),
    ("date", None, b"28.02.2026", None),
    ("date", None, b"20260228", None),
    ("date", "dd.MM.yyyy", b"28.02.2026", date(2026, 2, 28)),
    ("date", "dd.MM.yyyy", b"30.02.2026", None),
    ("date", "dd.MM.yyyy", b"2026-02-28", None),
    ("binary", None, b"\xff\x00", b"\xff\x00"),
    ("timestamp", "seconds", b"1700000000", utc(2023, 11, 14, 22, 13, 20)),
    ("timestamp", "seconds", b" 1700000000", utc(2023, 11, 14, 22, 13, 20)),
    ("timestamp", "millis", b"1700000000123", utc(2023, 11, 14, 22, 13, 20, 123000)),
    ("timestamp", "micros", b"-1", utc(1969, 12, 31, 23, 59, 59, 999999)),
    ("timestamp", "seconds", b"9223372036854775807", None),
    ("timestamp", "seconds", b"soon", None),
    ("timestamp", "iso8601", b"2026-01-02T03:04:05Z", utc(2026, 1, 2, 3, 4, 5)),
    ("timestamp", "iso8601", b"2026-01-02T03:04:05.123456789+08:00", utc(2026, 1, 1, 19, 4, 5, 123456)),
    ("timestamp", "iso8601", b"2026-01-02 03:04:05.5", utc(2026, 1, 2, 3, 4, 5, 500000)),
    ("timestamp", "iso8601", b"2026-01-02", utc(2026, 1, 2)),
    ("timestamp", "iso8601", b"2026-01-02T03", utc(2026, 1, 2, 3)),
    ("timestamp", "iso8601", b"2026-01-02T03:04+0530", utc(2026, 1, 1, 21, 34)),
    ("timestamp", "iso8601", b"2026-01-02T03:04:05+08", utc(2026, 1, 1, 19, 4, 5)),
    ("timestamp", "iso8601", b"2026-01-02T03:04:05+18:30", None),
    ("timestamp", "iso8601", b"2026-13-02T03:04:05Z", None),
    ("timestamp", "iso8601", b"2026-01-02T24:00:00", None),
    ("timestamp", "iso8601", b"yesterday", None),
    ("timestamp", NEW_YORK, b"2026-07-01 12:00:00", utc(2026, 7, 1, 16)),
    ("timestamp", NEW_YORK, b"2050-07-01 12:00:00", utc(2050, 7, 1, 16)),
    ("timestamp", NEW_YORK, b"2026-07-01 12:00:00+02:00", utc(2026, 7, 1, 10)),
    ("timestamp", NEW_YORK, b"2026-03-08 02:30:00", utc(2026, 3, 8, 7, 30)),  # skipped: an hour later
    ("timestamp", NEW_YORK, b"2026-11-01 01:30:00", utc(2026, 11, 1, 5, 30)),  # twice: the first
    ("timestamp", NEW_YORK, b"noon", None),
    ("timestamp", ACCESS_LOG, b"02/Jan/2026:03:04:05 +0800", utc(2026, 1, 1, 19, 4, 5)),
    ("timestamp", ACCESS_LOG, b"02/jan/2026:03:04:05 +0800", utc(2026, 1, 1, 19, 4, 5)),
    ("timestamp", ACCESS_LOG, b"30/Feb/2026:03:04:05 +0800", None),
    ("timestamp", ACCESS_LOG, b"02/Jan/2026:03:04:05", None),
    ("timestamp", "MM/dd/yyyy h:mm a", b"01/02/2026 12:05 AM", utc(2026, 1, 2, 0, 5)),
    ("timestamp", "MM/dd/yyyy h:mm a", b"01/02/2026 12:05 pm", utc(2026, 1, 2, 12, 5)),
    ("timestamp", "MM/dd/yyyy h:mm a", b"01/02/2026 13:05 PM", None),
    ("timestamp", "yyyyMMdd'T'HHmmss.SSS", b"20260102T030405.1239", None),
    ("timestamp", "yyyyMMdd'T'HHmmss.SSS", b"20260102T030405.123", utc(2026, 1, 2, 3, 4, 5, 123000)),
    ("array<int>", None, b" [1, null,\t3] ", [1, None, 3]),
    ("array<int>", None, b"[]", []),
    ("array<int>", None, b'["7"]', [7]),
    ("array<int>", None, b'[1, "x"]', None),
    ("array<int>", None, b"[1.0]", None),
    ("array<int>", None, b'{"a": 1}', None),
    ("array<int>", None, b"[1] [2]", None),
    ("array<int>", None, b"[1", None),
    ("array<int>", None, b"null", None),
    ("map<string,double>", None, b'{"a": 1.5, "b": -Infinity, "a": 2}', [("a", 2.0), ("b", float("-inf"))]),
    ("map<string,double>", None, b"{}", []),
    ("map<string,double>", None, b"[1]", None),
    ("map<string,array<decimal(5,1)>>", None, b'{"a": [1.25], "b": null}', [("a", [Decimal("1.3")]), ("b", None)]),
    ("map<string,array<decimal(5,1)>>", None, b'{"a": [1.25], "b": [99999]}', None),
    (STRUCT, "seconds", b'{"id": 1, "Tags": ["a", {"b": 1.10}], "at": 60, "more": {}}',
     {"id": 1, "Tags": ["a", '{"b":1.10}'], "at": utc(1970, 1, 1, 0, 1)}),
    (STRUCT, "seconds", b"{}", {"id": None, "Tags": None, "at": None}),
    (STRUCT, "seconds", b'{"id": 1, "Tags": "a"}', None),
    (STRUCT, "seconds", b'{"id": 1, "at": "soon"}', None),
    (STRUCT, "seconds", b'{"id": 1, "Tags": ["\\ud800"]}', None),
    ("struct<b:binary>", None, b'{"b": "AQI="}', {"b": b"\x01\x02"}),
    ("struct<b:binary>", None, b'{"b": "AQI"}', None),
]  # fmt: skip


def spec_of(type_: str, how: How) -> ColumnSpec:
    settings = how if isinstance(how, dict) else {"format": how}
    return ColumnSpec("c", type_, "c", **settings)


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
