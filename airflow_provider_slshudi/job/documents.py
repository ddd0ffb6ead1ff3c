"""JSON texts to arrays, maps and structs, and to the place that a path names.

A text fits wholly or not at all; of a text that fits comes what Spark's `from_json` makes of it
(spark.apache.org/docs/3.5.9/api/sql/#from_json). What is within becomes a value as a column's text does, so that
numbers in quotes fit too. Each text is parsed by Python's `json`: unlike the other types, these make Python objects
per log.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.datatypes import Array, DataType, Decimal, Map, Scalar, Struct
from airflow_provider_slshudi.hudi.schema import arrow_type
from airflow_provider_slshudi.job.attempts import as_text
from airflow_provider_slshudi.jsonpath import parse_path

FromText = Callable[[pa.Array, "Scalar | Decimal"], pa.Array]


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)
_BROKEN: Any = object()


def shredded(text: pa.Array, type_: Array | Map | Struct, from_text: FromText) -> pa.Array:
    """The values of JSON texts (string), NULL where one is none or does not fit the type.

    `from_text` converts the texts of what is within, as far as it has no parts itself.
    """
    values = [_decoded(value) for value in text.to_pylist()]
    values = [value if _fits(value, type_) else None for value in values]
    rows = list(range(len(values)))
    found, unfit = _column(values, rows, type_, from_text)
    if unfit:
        for row in unfit:
            values[row] = None
        found, _ = _column(values, rows, type_, from_text)
    return found


def at_path(values: pa.Array, path: str) -> tuple[pa.Array, pa.Array]:
    """What is at `path` in JSON texts, twice, as binary.

    First as what a column is to be made of: texts without their quotes, all else as JSON, NULL where a text has
    nothing or null there. Then the same, but the whole text where it is no JSON, so that it counts as a misfit.
    """
    steps = parse_path(path)
    found: list[str | None] = []
    broken: list[bool] = []
    for text, is_given in zip(as_text(values).to_pylist(), values.is_valid().to_pylist(), strict=True):
        value = _decoded(text) if text is not None else _BROKEN if is_given else None
        broken.append(value is _BROKEN)
        found.append(None if value is _BROKEN else _as_text(_at(value, steps)))
    picked = pa.array(found, pa.string()).cast(pa.binary())
    return picked, pc.if_else(pa.array(broken, pa.bool_()), values, picked)


def _decoded(text: str | None) -> Any:
    """The text's value; numbers as they are written."""
    if text is None:
        return None
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            _dumped(value).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return _BROKEN
    return value


def _at(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def _as_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return _dumped(value)


def _dumped(value: Any) -> str:
    """JSON without spaces; numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dumped(key)}:{_dumped(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _fits(value: Any, type_: DataType) -> bool:
    """Whether the value has the type's shape; whether its texts fit is seen when they are converted."""
    if value is None:
        return True
    if isinstance(type_, Array):
        return isinstance(value, list) and all(_fits(item, type_.element) for item in value)
    if isinstance(type_, Map):
        return isinstance(value, dict) and all(_fits(item, type_.value) for item in value.values())
    if isinstance(type_, Struct):
        return isinstance(value, dict) and all(_fits(value.get(name), field) for name, field in type_.fields)
    return value is not _BROKEN and (type_ == Scalar("string") or not isinstance(value, (dict, list)))


def _column(values: list[Any], rows: list[int], type_: DataType, from_text: FromText) -> tuple[pa.Array, set[int]]:
    """The values, of which `rows` says within which text each is, and in which texts one does not fit."""
    if isinstance(type_, Struct):
        return _structs(values, rows, type_, from_text)
    if isinstance(type_, (Scalar, Decimal)):
        before = pa.array([_as_text(value) for value in values], pa.string())
        after = _from_base64(before) if type_ == Scalar("binary") else from_text(before, type_)
        lost = pc.and_(pc.is_valid(before), pc.is_null(after))
        return after, {rows[row] for row in pc.indices_nonzero(lost).to_pylist()}
    offsets: list[int | None] = []
    within: list[int] = []
    for value, row in zip(values, rows, strict=True):
        offsets.append(None if value is None else len(within))
        within += [row] * len(value or ())
    ends = pa.array([*offsets, len(within)], pa.int32())
    if isinstance(type_, Array):
        items = [item for value in values if value for item in value]
        elements, unfit = _column(items, within, type_.element, from_text)
        return pa.ListArray.from_arrays(ends, elements, arrow_type(str(type_))), unfit
    items = [item for value in values if value for item in value.values()]
    keys = pa.array([key for value in values if value for key in value], pa.string())
    elements, unfit = _column(items, within, type_.value, from_text)
    return pa.MapArray.from_arrays(ends, keys, elements, arrow_type(str(type_))), unfit


def _structs(values: list[Any], rows: list[int], type_: Struct, from_text: FromText) -> tuple[pa.Array, set[int]]:
    columns, unfit = [], set()
    for name, field in type_.fields:
        column, lost = _column([None if value is None else value.get(name) for value in values], rows, field, from_text)
        columns.append(column)
        unfit |= lost
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(str(type_))), mask=missing), unfit


def _from_base64(text: pa.Array) -> pa.Array:
    def decoded(value: str | None) -> bytes | None:
        try:
            return None if value is None else base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None

    return pa.array([decoded(value) for value in text.to_pylist()], pa.binary())
