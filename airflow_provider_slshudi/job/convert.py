"""Log values, which are bytes, to a column's type: whole columns at a time, no Python object per log.

A value that does not fit becomes NULL here and is counted; whether that is allowed is the pipeline's rule. The
quick way casts a whole column. Only where that fails are the fitting values told apart, by a pattern, and what the
pattern lets through by halving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.exceptions import ValueMisfit

_MICROS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
_UTF8 = r"\A(?s:.)*\z"
_INTEGER = r"\A[+-]?[0-9]{1,19}\z"
_DECIMAL = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z|\A(?i:[+-]?inf(inity)?|nan)\z"
_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_CLOCK = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
_ISO = rf"\A[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([T ]{_CLOCK})?(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?\z"
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class ColumnSpec:
    """A column as a task needs it: its name, type, the log key that fills it, and a timestamp's format."""

    name: str
    type: str
    key: str
    format: str | None = None


def convert(values: pa.Array, spec: ColumnSpec) -> pa.Array:
    """`values` (binary) in the column's type; NULL where a value is missing or does not fit."""
    if spec.type == "binary":
        return values
    text = _text(values)
    if spec.type == "string":
        return text
    plain = _is_plain(text)
    if not plain:
        text = pc.utf8_trim_whitespace(text)
    if spec.type == "boolean":
        return _boolean(text)
    if spec.type == "date":
        return _attempt(text, lambda part: part.cast(pa.date32()), _DATE)
    if spec.type == "timestamp":
        return _timestamp(text, str(spec.format), plain)
    types = {"int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64()}
    if spec.type in ("int", "bigint"):
        return _whole_numbers(text, lambda part: part.cast(types[spec.type]), plain)
    return _attempt(text if plain else _unsigned(text), lambda part: part.cast(types[spec.type]), _DECIMAL)


def convert_map(values: pa.Array) -> tuple[pa.Array, int]:
    """A map<binary, binary> as map<string, string>, and how many entries were not UTF-8.

    Such a value becomes NULL; such a key keeps its bytes, written as \\xNN.
    """
    keys = _text(values.keys)
    if keys.null_count:
        escaped = [key.decode("utf-8", "backslashreplace") for key in values.keys.filter(pc.is_null(keys)).to_pylist()]
        keys = pc.replace_with_mask(keys, pc.is_null(keys), pa.array(escaped, pa.string()))
    items = _text(values.items)
    lost = items.null_count - values.items.null_count
    return pa.MapArray.from_arrays(values.offsets, keys, items), lost


def misfits(before: pa.Array, after: pa.Array) -> int:
    """How many values did not fit."""
    return int(after.null_count - before.null_count)


def refuse_misfit(before: pa.Array, after: pa.Array, spec: ColumnSpec, keys: pa.Array) -> None:
    """Raises ValueMisfit that names the first value that did not fit."""
    lost = pc.and_(pc.is_valid(before), pc.is_null(after))
    row = pc.index(lost, pa.scalar(True)).as_py()
    value = before[row].as_py().decode("utf-8", "backslashreplace")
    raise ValueMisfit(spec.name, spec.type, value[:100], keys[row].as_py())


def _attempt(values: pa.Array, cast: Convert, pattern: str) -> pa.Array:
    try:
        return cast(values)
    except pa.ArrowInvalid:
        # RE2 reads bytes that are no UTF-8 as no character at all, so the unchecked view is safe to match.
        text = values if pa.types.is_string(values.type) else values.view(pa.string())
        fits = pc.match_substring_regex(text, pattern)
        return _halve(pc.if_else(fits, values, pa.scalar(None, values.type)), cast)


def _halve(values: pa.Array, cast: Convert) -> pa.Array:
    try:
        return cast(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return cast(pa.nulls(1, values.type))
        middle = len(values) // 2
        return pa.concat_arrays([_halve(values.slice(0, middle), cast), _halve(values.slice(middle), cast)])


def _text(values: pa.Array) -> pa.Array:
    """`values` as UTF-8."""
    held = _bytes_of(values)
    if not held.size or held.max() < 128:
        # ASCII, mostly so, is seen in all bytes at once, where Arrow looks at value by value.
        return values.view(pa.string())
    return _attempt(values, lambda part: part.cast(pa.string()), _UTF8)


def _is_plain(text: pa.Array) -> bool:
    """Whether all bytes are digits or one of `-./`: nothing to trim, no plus, no hexadecimal number; mostly so."""
    held = _bytes_of(text)
    return not held.size or bool(held.min() >= ord("-") and held.max() <= ord("9"))


def _bytes_of(values: pa.Array) -> Any:
    """All values' bytes, one after the other, NULL's included where it has any."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[ends[values.offset] : ends[values.offset + len(values)]]


def _whole_numbers(text: pa.Array, cast: Convert, plain: bool) -> pa.Array:
    """`text` by `cast`, which takes text of integers."""

    def checked(part: pa.Array) -> pa.Array:
        for letter in "xX":
            if pc.any(pc.match_substring(part, letter)).as_py():
                raise pa.ArrowInvalid("Arrow's cast takes hexadecimal numbers, a log's 0x10 is no number here")
        return cast(part)

    return _attempt(text, cast, _INTEGER) if plain else _attempt(_unsigned(text), checked, _INTEGER)


def _unsigned(text: pa.Array) -> pa.Array:
    """Arrow's casts know no leading plus."""
    return pc.replace_substring_regex(text, r"\A\+", "")


def _boolean(text: pa.Array) -> pa.Array:
    true = pc.equal(text, _TRUE[0])
    if pc.all(pc.or_(true, pc.equal(text, _FALSE[0]))).as_py():
        return true
    lower = pc.utf8_lower(text)
    known = pc.is_in(lower, value_set=pa.array([*_TRUE, *_FALSE]))
    return pc.if_else(known, pc.is_in(lower, value_set=pa.array(_TRUE)), pa.scalar(None, pa.bool_()))


def _timestamp(text: pa.Array, format_: str, plain: bool) -> pa.Array:
    target = pa.timestamp("us", tz="UTC")
    if format_ == "iso8601":
        return _iso8601(text)
    factor = pa.scalar(_MICROS[format_], pa.int64())

    def from_count(part: pa.Array) -> pa.Array:
        return pc.multiply_checked(part.cast(pa.int64()), factor).cast(target)

    return _whole_numbers(text, from_count, plain)


def _iso8601(text: pa.Array) -> pa.Array:
    """Times without a zone are taken as UTC; digits below the microsecond are cut off."""
    text = pc.replace_substring_regex(text, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(text, r"(Z|[+-][0-9]{2}:?[0-9]{2})\z")
    none: Any = pa.scalar(None, pa.string())
    with_zone = _attempt(pc.if_else(zoned, text, none), lambda part: part.cast(pa.timestamp("us", tz="UTC")), _ISO)
    bare = _attempt(pc.if_else(zoned, none, text), lambda part: part.cast(pa.timestamp("us")), _ISO)
    return pc.coalesce(with_zone, bare.cast(pa.timestamp("us", tz="UTC")))
