"""Log values become column values; what does not fit becomes NULL and is counted, and nothing else changes."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.exceptions import ValueMisfit
from airflow_provider_slshudi.job.convert import ColumnSpec, convert, convert_map, misfits, refuse_misfit


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


CASES: list[tuple[str, str | None, bytes, Any]] = [
    ("string", None, "häß".encode(), "häß"),
    ("string", None, b"", ""),
    ("string", None, b"line\nbreak", "line\nbreak"),
    ("string", None, b"\xff\xfe", None),
    ("string", None, b"cut \xe4\xbd", None),
    ("int", None, b"2147483647", 2147483647),
    ("int", None, b"2147483648", None),
    ("int", None, b" +7 ", 7),
    ("int", None, b"-7", -7),
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
    ("float", None, b"0.25", 0.25),
    ("float", None, b"abc", None),
    ("boolean", None, b"TRUE", True),
    ("boolean", None, b"0", False),
    ("boolean", None, b"maybe", None),
    ("date", None, b"2026-02-28", date(2026, 2, 28)),
    ("date", None, b"2026-02-30", None),
    ("date", None, b"28.02.2026", None),
    ("binary", None, b"\xff\x00", b"\xff\x00"),
    ("timestamp", "seconds", b"1700000000", utc(2023, 11, 14, 22, 13, 20)),
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
    ("timestamp", "iso8601", b"2026-13-02T03:04:05Z", None),
    ("timestamp", "iso8601", b"yesterday", None),
]


@pytest.mark.parametrize(("type_", "format_", "value", "expected"), CASES)
@pytest.mark.parametrize("among", ["alone", "fitting", "misfits"])
def test_a_value_is_the_same_whatever_stands_beside_it(
    type_: str, format_: str | None, value: bytes, expected: Any, among: str
) -> None:
    fitting = next(v for t, f, v, e in CASES if (t, f) == (type_, format_) and e is not None)
    neighbours = {"alone": [], "fitting": [fitting, None], "misfits": [b"\xff", b"?", None, fitting]}[among]
    values = pa.array([*neighbours, value, *neighbours], pa.binary())
    after = convert(values, ColumnSpec("c", type_, "c", format_))
    assert after[len(neighbours)].as_py() == expected
    assert len(after) == len(values)
    if type_ != "binary":
        lost = {"alone": 0, "fitting": 0, "misfits": 4}[among] + (expected is None)
        assert misfits(values, after) == (lost - 2 if type_ == "string" and among == "misfits" else lost)


def test_slices_of_a_larger_array_convert_as_they_read() -> None:
    values = pa.array([b"x", b"1", b"2", b"y", b"3"], pa.binary()).slice(1, 3)
    assert convert(values, ColumnSpec("c", "bigint", "c")).to_pylist() == [1, 2, None]


def test_an_entry_that_is_not_utf8_loses_its_value_and_no_other() -> None:
    maps = pa.array([[(b"a", b"1"), (b"b", b"\xff")], [], [(b"\xfe", b"2")]], pa.map_(pa.binary(), pa.binary()))
    after, lost = convert_map(maps)
    assert after.to_pylist() == [[("a", "1"), ("b", None)], [], [("\\xfe", "2")]]
    assert lost == 1


def test_a_refused_misfit_names_column_value_and_log() -> None:
    values = pa.array([b"1", None, b"ten"], pa.binary())
    spec = ColumnSpec("clicks", "int", "clicks")
    keys = pa.array(["0-1-0", "0-1-1", "0-2-0"])
    with pytest.raises(ValueMisfit, match="column clicks: 'ten' of log 0-2-0 is no int") as refused:
        refuse_misfit(values, convert(values, spec), spec, keys)
    assert (refused.value.column, refused.value.key, refused.value.value) == ("clicks", "0-2-0", "ten")
