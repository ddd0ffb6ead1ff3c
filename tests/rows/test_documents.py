"""JSON is the same whether slshudi-native reads it or Python does."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.rows import documents, plain_json
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert
from tests.needs import NATIVE

pytest.importorskip("slshudi_native", reason=NATIVE)

TYPES = (
    "array<int>",
    "array<array<string>>",
    "map<string,map<string,double>>",
    "struct<a:bigint,b:string,c:array<struct<a:boolean,b:map<string,string>>>>",
    "array<struct<a:int,a_b:string>>",
    "map<string,string>",
)
PATHS = ("$.a", "$.b.a", "$[0]", "$.c[1].a", "$['a b']")

names = st.sampled_from(["a", "b", "c", "a b", ""]) | st.text(max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
written = st.builds(
    lambda value, spaces, ascii_: json.dumps(value, ensure_ascii=ascii_, indent=spaces),
    values,
    st.sampled_from([None, 1]),
    st.booleans(),
)
WORDS = (
    '{ } [ ] : , " "a" "b" null true false nul 0 -1 01 1. .5 1e3 1E+ -Infinity NaN +1 "\\u00e4" "\\ud83d\\ude00" '
    '"\\ud800" "\\udc00\\ud800" "\\u12" "\\x" "\\/\\b\\f\\n\\r\\t\\"\\\\" "\x00" "\x7f" \t \n \x0b \u00a0 \ufeff'
)
scraps = st.lists(st.sampled_from([*WORDS.split(" "), " "]), max_size=9).map("".join)
spoilt = st.builds(lambda text, at, by: text[: at % (len(text) + 1)] + by + text[at % (len(text) + 1) + 1 :], written,
                   st.integers(0, 200), st.sampled_from(["", '"', "\\", "}", "]", ",", "0", "{", "\x1f"]))  # fmt: skip
twice = st.builds('{{"a": {}, "b": {}, "a": {}}}'.format, written, written, written)
many = st.lists(names, min_size=17, max_size=30).map(
    lambda keys: "{" + ",".join(f"{json.dumps(key)}:{number}" for number, key in enumerate(keys)) + "}"
)
texts = st.lists(st.none() | written | scraps | spoilt | twice | many, max_size=20)


def without_native(of: Any, *arguments: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "native", None)
        return of(*arguments)


def encoded(listed: list[str | None]) -> pa.Array:
    # Half a surrogate pair becomes bytes that are no UTF-8.
    return pa.array([text and text.encode("utf-8", "surrogatepass") for text in listed], pa.binary())


@settings(max_examples=300)
@given(texts, st.integers(0, 3))
def test_values_of_every_shape(listed: list[str | None], first: int) -> None:
    column = encoded(listed).slice(min(first, len(listed)))
    for type_ in TYPES:
        spec = ColumnSpec("c", type_, "c")
        one, other = convert(column, spec), without_native(convert, column, spec)
        assert one.type == other.type and repr(one.to_pylist()) == repr(other.to_pylist())
        one.validate(full=True)


@settings(max_examples=300)
@given(texts)
def test_places_that_paths_name(listed: list[str | None]) -> None:
    column = encoded(listed)
    for path in PATHS:
        one, other = documents.at_path(column, path), without_native(documents.at_path, column, path)
        assert [part.to_pylist() for part in one] == [part.to_pylist() for part in other]


@pytest.mark.parametrize(
    ("depth", "fits"), [(plain_json.DEEPEST, True), (plain_json.DEEPEST + 1, False), (100_000, False)]
)
def test_what_is_nested_too_deep_does_not_fit(depth: int, fits: bool) -> None:
    column = encoded(["[" * depth + "]" * depth])
    for found, _ in (documents.at_path(column, "$[0]"), without_native(documents.at_path, column, "$[0]")):
        assert found.is_valid().to_pylist() == [fits]
    assert convert(column, ColumnSpec("c", "array<string>", "c")).is_valid().to_pylist() == [fits]


def test_a_level_that_is_not_below_its_own_is_refused() -> None:
    import slshudi_native

    wrong: list[list[tuple[str, list[tuple[str, int]]]]] = [
        [("list", [("", 0)])],
        [("list", [("", 1)])],
        [("list", [])],
        [("tree", [])],
    ]
    for levels in wrong:
        with pytest.raises(ValueError, match="level"):
            slshudi_native.shred(bytes(8), b"", b"\x01", levels)
    for offsets in (bytes(4), b"\x01\0\0\0\0\0\0\0", b"\0\0\0\0\x05\0\0\0", b"\xff\xff\xff\xff\0\0\0\0"):
        with pytest.raises(ValueError, match="offsets"):
            slshudi_native.shred(offsets, b"", b"\x01", [("text", [])])
