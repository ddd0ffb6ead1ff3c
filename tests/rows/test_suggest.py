"""Columns for the keys of sampled logs: of the narrowest type that every value converts to."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.config.columns import Column
from airflow_provider_slshudi.config.datatypes import DEEPEST
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, misfits
from airflow_provider_slshudi.rows.suggest import MOST_KEYS, Suggestion, left_out, suggest
from airflow_provider_slshudi.sls.columns import META, REST

NOW = 1_767_225_600


def logs(*contents: Sequence[tuple[str, bytes]]) -> pa.Table:
    """Logs as the decoder gives them where no key is asked for."""
    count = len(contents)
    columns = {
        "__cursor__": range(count),
        "__index__": [0] * count,
        "__time__": range(NOW, NOW + count),
        "__time_ns_part__": [None] * count,
        "__topic__": [b""] * count,
        "__source__": [b"10.0.0.1"] * count,
        REST.name: [[(key.encode("utf-8", "surrogateescape"), value) for key, value in pairs] for pairs in contents],
    }
    schema = pa.schema([*META, REST])
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


def of_values(*values: str | bytes) -> Suggestion:
    found = suggest(logs(*([("k", v.encode() if isinstance(v, str) else v)] for v in values)), META.names)
    assert [item.key for item in found] == ["k"]
    return found[0]


@pytest.mark.parametrize(
    ("values", "type_", "format_"),
    [
        (["1", "-7", str(2**62)], "bigint", None),
        (["0.00005", "-2.5", "3.0"], "double", None),
        (["1", "2.5"], "string", None),  # a double prints 1 as 1.0
        (["1.08", "1.10"], "string", None),  # a version, which a double makes 1.1
        (["0.1000000000000000000001"], "string", None),
        (["1e3"], "string", None),
        (["-0"], "string", None),
        (["-0.0"], "string", None),
        (["+4915112345678"], "string", None),
        ([" 7"], "string", None),
        (["NaN", "1.5"], "string", None),
        (["NaN", "inf"], "string", None),
        (["007", "8"], "string", None),  # an id, whose zeros would be lost
        (["true", "false"], "boolean", None),
        (["true", "F"], "string", None),
        (["True", "False"], "string", None),
        (["1", "0"], "int", None),
        (["200", "-404"], "int", None),
        (["2147484"], "bigint", None),  # a thousand times it is more than an int takes
        (["99999999999999999999"], "string", None),
        ([str(NOW), str(NOW + 5)], "timestamp", "seconds"),
        ([f"{NOW}123"], "timestamp", "millis"),
        ([f"{NOW}123456"], "timestamp", "micros"),
        ([f"{NOW}.123456", f"{NOW}.5"], "timestamp", "seconds"),
        ([f"{NOW}.4320688"], "double", None),  # a timestamp has no digits below the microsecond
        ([f"{NOW}123456000"], "timestamp", "nanos"),
        ([f"{NOW}123456789"], "bigint", None),
        (["2026-01-31 08:00:05,123"], "timestamp", "iso8601"),
        (["Fri Dec 16 01:46:23.123456 2005"], "timestamp", "EEE MMM dd HH:mm:ss.SSSSSS yyyy"),
        (["Sun, 06 Nov 1994 08:49:37 GMT"], "timestamp", "EEE, dd MMM yyyy HH:mm:ss z"),
        (["Sun, 06 Nov 1994 08:49:37 CST"], "string", None),  # of China, Cuba or Chicago
        ([f"0{NOW}"], "string", None),
        ([f"+{NOW}"], "string", None),
        ([str(NOW), "5"], "bigint", None),
        (["2026-01-31", "1999-12-31"], "date", None),
        (["2026-1-31"], "string", None),
        (["2026-01-31 and more"], "string", None),
        (["2026-01-31T08:00:05Z", "2026-01-31T08:00:05.5Z"], "timestamp", "iso8601"),
        (["2026-01-31T08:00:05Z", "2026-01-31 08:00:05.5"], "string", None),
        (["2026-01-31T08:00:05.123456789Z"], "string", None),  # a timestamp has no nanoseconds
        (["2026-01-31T08:00:05+08:00", "2026-01-31T08:00:05+01:00"], "string", None),
        (["31/Jan/2026:08:00:05 +0800", "31/Jan/2026:08:00:05 +0100"], "string", None),
        (["31/Jan/2026:08:00:05 +0800"], "timestamp", "dd/MMM/yyyy:HH:mm:ss Z"),
        (["[1, 2]", "[]"], "array<bigint>", None),
        (['{"a": 1.5, "b": {"c": "x"}}', '{"b": {"c": null}, "a": 2.5}'], "struct<a:double,b:struct<c:string>>", None),
        (['{"a": 1}', '{"a": 2.5}', '{"a": 1.10}'], "struct<a:string>", None),
        (['{"roleArn": "r"}', '{"bucketName": "b", "roleArn": "r"}'], "map<string,string>", None),
        (['{"a": 1, "b": "x"}', '{"a": 2}'], "map<string,string>", None),
        (['[{"a": 1}, {"b": 2}]'], "array<map<string,bigint>>", None),
        (['{"a": 1, "a": 2}'], "string", None),  # a struct has one of them
        (['{"a": 1}', '{"a": "1"}'], "string", None),  # both would be the text 1
        (['[true, "true"]'], "string", None),
        (['[{"a": [1]}, {"a": "[1]"}]'], "string", None),
        (['{"n": 99999999999999999999}'], "struct<n:string>", None),
        (['{"a-b": 1}', '{"c": null}'], "map<string,bigint>", None),
        (['{"a": 1}', "{}", "{"], "string", None),
        ([b"\xff", b"a"], "binary", None),
        (["Ulm", ""], "string", None),
    ],
)
def test_the_narrowest_type_that_all_values_fit(values: list[str | bytes], type_: str, format_: str | None) -> None:
    found = of_values(*values)
    assert (found.type, found.format) == (type_, format_)


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([*map(str, range(100)), "-"], "bigint but for 1 values like '-'"),
        ([*map(str, range(100)), "007"], "bigint but for 1 values like '007'"),
        (["1.08", "1.10"], "a double would make 1.1 of '1.10'"),
        (["+4915112345678"], "a double would make 4915112345678.0 of '+4915112345678'"),
        (["NaN"], ""),
    ],
)
def test_what_stands_in_the_way_of_a_narrower_type_is_said(values: list[str], note: str) -> None:
    found = of_values(*values)
    assert (found.type, found.note) == ("string", note)


def test_keys_are_counted_by_logs_and_named_as_columns_are() -> None:
    sampled = logs(
        [("City", b"Ulm"), ("9lives", b"1"), ("city", b"x"), ("__tag__:__host name__", b"h")],
        [("City", b"Ulm"), ("City", b"5")],
        [],
    )
    found = {item.key: item for item in suggest(sampled, [], ["city"])}
    assert {key: (item.name, item.logs) for key, item in found.items()} == {
        "__time__": ("log_time", 3),
        "__source__": ("source", 3),
        "City": ("city_2", 2),
        "city": ("city_3", 1),
        "9lives": ("c_9lives", 1),
        "__tag__:__host name__": ("host_name", 1),
    }
    # Of a key that a log holds twice the last value counts, as when rows are made.
    assert found["City"].type == "string" and found["City"].share == 2 / 3
    assert found["__time__"].column() == {
        "name": "log_time",
        "type": "timestamp",
        "format": "seconds",
        "key": "__time__",
    }
    assert suggest(logs(), []) == []


def test_keys_that_no_column_can_name_are_left_out() -> None:
    unnamed = ("", "__rest__", "__cursor__", "__time__", "\udcff")
    sampled = logs([*((key, b"1") for key in unnamed), ("k", b"1")], [("k", b"2")])
    found = suggest(sampled)
    assert {item.key: item.logs for item in found} == {"__time__": 2, "__source__": 2, "k": 2}
    assert left_out(sampled, found) == len(unnamed)


def test_a_producer_that_writes_values_as_keys_gets_columns_for_the_most_frequent_ones() -> None:
    sampled = logs(*([("k", b"1"), (f"id-{number}", b"1")] for number in range(MOST_KEYS + 50)))
    found = suggest(sampled)
    assert [item.key for item in found[:3]] == ["__source__", "__time__", "k"]
    assert len(found) == MOST_KEYS + 2 and left_out(sampled, found) == 51
    # A pipeline that has them gets the next ones.
    assert len(suggest(sampled, {item.key for item in found})) == 51


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("城市", "column"),
        ("_", "column"),
        ("_tmp_metadata_row_index", "c__tmp_metadata_row_index"),
        ("_hoodie_file_name", "c__hoodie_file_name"),
        ("k" * 3_000, "k" * 100),
    ],
)
def test_any_key_gets_a_name_that_a_column_may_have(key: str, name: str) -> None:
    (found,) = suggest(logs([(key, b"v")]), META.names)
    assert found.name == name
    assert Column.model_validate(found.column()).source_key == key


@pytest.mark.parametrize("depth", [DEEPEST - 1, DEEPEST, DEEPEST + 1, 101, 5_000, 100_000])
def test_json_of_any_depth_gets_a_type_that_takes_it(depth: int) -> None:
    value = "[" * depth + "]" * depth
    found = of_values(value)
    assert Column.model_validate(found.column()).type == found.type
    values = pa.array([value.encode()], pa.binary())
    assert not misfits(values, convert(values, ColumnSpec("", found.type, "")))


NUMBERS = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.floats().map(str),
    st.from_regex(r"\A[+-]?[0-9]{1,20}(\.[0-9]{0,20})?\Z"),
)


@settings(max_examples=200)
@given(st.lists(NUMBERS, min_size=1, max_size=3))
def test_a_suggested_number_prints_as_every_text_that_was_seen(values: list[str]) -> None:
    found = of_values(*values)
    if found.type in ("int", "bigint", "double"):
        numbers = convert(pa.array([v.encode() for v in values], pa.binary()), ColumnSpec("", found.type, ""))
        printed = [format(Decimal(repr(number)), "f") for number in numbers.to_pylist()]
        if found.type == "double":
            printed = [text if "." in text else f"{text}.0" for text in printed]
        assert printed == values


VALUES = st.one_of(
    st.text(max_size=8),
    st.integers().map(str),
    st.floats().map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.sampled_from(["true", "", "-", "[1]", '{"a": null}', '{"a": [{"b": 1e400}]}', "[[true, 0]]", " 7 ", "+1"]),
    st.binary(max_size=4),
)


@settings(max_examples=50)
@given(st.lists(VALUES, min_size=1, max_size=6))
def test_a_suggested_column_is_one_and_takes_every_value(values: list[str | bytes]) -> None:
    found = of_values(*(value.encode("utf-8", "replace") if isinstance(value, str) else value for value in values))
    column = Column.model_validate(found.column())
    assert column.source_key == "k"
    given_values = pa.array([v.encode("utf-8", "replace") if isinstance(v, str) else v for v in values], pa.binary())
    spec = ColumnSpec(column.name, column.type, "k", column.format)
    assert not misfits(given_values, convert(given_values, spec))
