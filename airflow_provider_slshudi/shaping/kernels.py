"""What the functions of expressions compute, by Arrow's kernels and numpy: whole columns at a time.

A kernel gets arrays or scalars, and literal arguments as Python's values; it gives NULL where an argument is NULL, and
where it cannot compute. None raises for a value: one row at a time would be found by halves, a thousand times as slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.timepattern import parse_pattern
from airflow_provider_slshudi.rows import times
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert
from airflow_provider_slshudi.rows.documents import at_path
from airflow_provider_slshudi.shaping.patterns import csv_pattern, pair_pattern
from airflow_provider_slshudi.shaping.regex import groups_of

Kernel = Callable[..., Any]
_INSTANT = pa.timestamp("us", tz=times.UTC)
_INT, _DOUBLE = pa.int64(), pa.float64()
_NO_INT, _NO_TEXT = pa.scalar(None, _INT), pa.scalar(None, pa.string())
_LEAST, _MOST = -(2**63), 2**63 - 1
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""Of the years 1 to 9999."""
_FORMAT = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_WORD = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z'\[\]{}#]")


def within(values: Any, least: float, most: float) -> Any:
    """`values`, NULL where one is not between two bounds."""
    inside = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    return pc.if_else(inside, values, pa.scalar(None, values.type))


def within_int(values: Any) -> Any:
    """64-bit integers, NULL where 32 bits do not hold one."""
    return within(values, -(2**31), 2**31 - 1)


def calculated(checked: Kernel, wrapping: Callable[[Any, Any], Any], overflows: Callable[..., Any]) -> Kernel:
    """A kernel of two numbers, NULL where 64 bits do not hold the result.

    Args:
        checked: Arrow's, which raises where any does not fit.
        wrapping: numpy's.
        overflows: says by both arguments and the wrapped result which do not fit.
    """

    def kernel(a: Any, b: Any) -> Any:
        try:
            return checked(a, b)
        except pa.ArrowInvalid:
            count = next((len(item) for item in (a, b) if isinstance(item, pa.Array)), 1)
            first, second = (_spread(item, count) for item in (a, b))
            one, other = (pc.fill_null(item, 0).to_numpy(zero_copy_only=False) for item in (first, second))
            with np.errstate(over="ignore"):
                result = wrapping(one, other)
                lost = overflows(one, other, result)
            nulls = pc.or_(pc.is_null(first), pc.is_null(second)).to_numpy(zero_copy_only=False)
            values = pa.array(result, mask=lost | nulls)
            return values if any(isinstance(item, pa.Array) for item in (a, b)) else values[0]

    return kernel


def _spread(values: Any, count: int) -> pa.Array:
    return pa.repeat(values, count) if isinstance(values, pa.Scalar) else values


def _product_overflows(a: Any, b: Any, result: Any) -> Any:
    divisor = np.where(b == 0, 1, b)
    wraps = ((b == -1) & (a == _LEAST)) | ((a == -1) & (b == _LEAST))
    # The quotient of the least number by -1 wraps itself; it is among the two.
    return wraps | ((b != 0) & (b != -1) & (np.floor_divide(result, np.where(b == -1, 1, divisor)) != a))


added = calculated(pc.add_checked, np.add, lambda a, b, r: ((a ^ r) & (b ^ r)) < 0)
subtracted = calculated(pc.subtract_checked, np.subtract, lambda a, b, r: ((a ^ b) & (a ^ r)) < 0)
multiplied = calculated(pc.multiply_checked, np.multiply, _product_overflows)


def negated(values: Any) -> Any:
    """The numbers with the other sign."""
    return pc.negate(_above_least(values))


def absolute(values: Any) -> Any:
    """The numbers without their sign."""
    return pc.abs(_above_least(values))


def _above_least(values: Any) -> Any:
    """`values`, NULL where one is the least of 64 bits, which has no counterpart."""
    if values.type != _INT:
        return values
    return pc.if_else(pc.equal(values, _LEAST), _NO_INT, values)


def _not_zero(values: Any) -> Any:
    return pc.if_else(pc.equal(values, pa.scalar(0, values.type)), pa.scalar(None, values.type), values)


def quotient(a: Any, b: Any) -> Any:
    """A division of doubles."""
    return pc.divide(to_double(a), _not_zero(to_double(b)))


def whole_quotient(a: Any, b: Any) -> Any:
    """A division of integers, toward zero."""
    b = _not_zero(b)
    fits = pc.invert(pc.and_(pc.equal(a, _LEAST), pc.equal(b, -1)))
    return pc.divide(a, pc.if_else(fits, b, _NO_INT))


def remainder(a: Any, b: Any) -> Any:
    """What a division of integers leaves, with the dividend's sign."""
    # That by -1 is that by 1, and no quotient of it overflows.
    b = pc.if_else(pc.equal(b, -1), 1, _not_zero(b))
    return pc.subtract(a, pc.multiply(pc.divide(a, b), b))


def to_double(values: Any) -> Any:
    """The nearest doubles."""
    return values.cast(_DOUBLE, safe=False)


def to_whole(values: Any) -> Any:
    """Doubles without digits behind the point as 64-bit integers, NULL where these do not hold one."""
    inside = pc.and_(pc.greater_equal(values, float(_LEAST)), pc.less(values, float(2**63)))
    return pc.if_else(inside, values, pa.scalar(None, _DOUBLE)).cast(_INT)


def compared(kernel: Kernel, by_nan: Callable[[Any, Any], Any]) -> Kernel:
    """A comparison in which NaN equals itself and is greater than all else, as Spark has it.

    Args:
        kernel: Arrow's.
        by_nan: says by which side is NaN what the comparison gives, where one is.
    """

    def compare(a: Any, b: Any) -> Any:
        result = kernel(a, b)
        if a.type != _DOUBLE:
            return result
        one, other = pc.is_nan(a), pc.is_nan(b)
        either = pc.or_(one, other)
        if not pc.any(either).as_py() if isinstance(either, pa.Array) else not either.as_py():
            return result
        return pc.if_else(either, by_nan(one, other), result)

    return compare


equal = compared(pc.equal, pc.and_)
greater = compared(pc.greater, pc.and_not)
at_least = compared(pc.greater_equal, lambda a, b: a)


def not_equal(a: Any, b: Any) -> Any:
    """Whether two values differ."""
    return pc.invert(equal(a, b))


def less(a: Any, b: Any) -> Any:
    """Whether the first value is less."""
    return greater(b, a)


def at_most(a: Any, b: Any) -> Any:
    """Whether the first value is not greater."""
    return at_least(b, a)


def within_set(values: Any, *options: Any) -> Any:
    """Whether each value is one of the options, which are Python's."""
    if values.type == _DOUBLE:
        # 0.0 and -0.0 are one number.
        values = pc.add(values, 0.0)
    listed = pa.array([option + 0.0 if isinstance(option, float) else option for option in options], values.type)
    return pc.if_else(pc.is_valid(values), pc.is_in(values, value_set=listed), pa.scalar(None, pa.bool_()))


def unless_equal(a: Any, b: Any) -> Any:
    """The first value, NULL where it is the second."""
    return pc.if_else(pc.fill_null(equal(a, b), False), pa.scalar(None, a.type), a)


def extreme(takes_first: Kernel) -> Kernel:
    """The one of some values that `takes_first` prefers, without those that are NULL."""

    def choose(a: Any, b: Any) -> Any:
        first = pc.fill_null(takes_first(a, b), pc.is_valid(a))
        return pc.if_else(first, a, b)

    return lambda *values: reduce(choose, values)


def concat(*parts: Any) -> Any:
    """The texts one behind the other."""
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def _instead(text: Any, value: str) -> Any:
    return pc.if_else(pc.is_valid(text), value, _NO_TEXT)


def substring(text: Any, begin: int, length: int | None = None) -> Any:
    """A part of each text; it begins at a letter counted from 1, or from -1 at the end."""
    if length is not None and length <= 0:
        return _instead(text, "")
    start = begin - 1 if begin > 0 else begin
    return pc.utf8_slice_codeunits(text, start, None if length is None else start + length)


def left(text: Any, count: int) -> Any:
    """The first letters."""
    return pc.utf8_slice_codeunits(text, 0, count) if count > 0 else _instead(text, "")


def right(text: Any, count: int) -> Any:
    """The last letters."""
    return pc.utf8_slice_codeunits(text, -count) if count > 0 else _instead(text, "")


def split_part(text: pa.Array, mark: str, place: int) -> pa.Array:
    """A part between marks, counted from 1, or from -1 at the end; empty where there are fewer."""
    parts = pc.split_pattern(text, mark)
    offsets = np.asarray(parts.offsets)
    begins, counts = offsets[:-1], np.diff(offsets)
    index = place - 1 if place > 0 else counts + place
    inside = (index >= 0) & (index < counts)
    texts = parts.values.take(pa.array(np.where(inside, begins + index, 0), mask=~inside))
    return pc.if_else(pc.is_valid(text), pc.fill_null(texts, ""), _NO_TEXT)


def pair(text: Any, key: str) -> Any:
    """The value of a key in lines with `key=value`."""
    return _either_group(text, pair_pattern(key))


def csv_field(text: Any, number: int) -> Any:
    """A field of lines of RFC 4180."""
    return pc.replace_substring(_either_group(text, csv_pattern(number)), '""', '"')


def _either_group(text: Any, pattern: str) -> Any:
    """Group 1 or 2, whichever has a text; NULL where the pattern does not match."""
    groups = groups_of(text, pattern, (1, 2))
    return concat(pc.struct_field(groups, "g1"), pc.struct_field(groups, "g2"))


def json_object(text: pa.Array, path: str) -> tuple[pa.Array, Any]:
    """The texts at a path, and which texts are no JSON."""
    values, before = at_path(text.cast(pa.binary()), path)
    broken = pc.and_(pc.is_valid(before), pc.is_null(values))
    return values.cast(pa.string()), broken.to_numpy(zero_copy_only=False)


def converted(values: pa.Array, type_: str) -> pa.Array:
    """The values in a type of columns; `int` and `bigint` are 64-bit integers here, and `int` in its bounds."""
    kind = values.type
    if kind == pa.string():
        spec = ColumnSpec("", type_, "", "iso8601" if type_ == "timestamp" else None)
        result = convert(values.view(pa.binary()), spec)
        return result.cast(_INT) if type_ == "int" else result
    if type_ == "string":
        return pc.strftime(values, "%Y-%m-%d") if kind == pa.date32() else values.cast(pa.string())
    if type_ in ("int", "bigint"):
        if pa.types.is_timestamp(kind):
            values = seconds(values)
        values = to_whole(pc.trunc(values)) if kind == _DOUBLE else values.cast(_INT)
        return within_int(values) if type_ == "int" else values
    if type_ == "double":
        return to_double(values)
    if type_ == "boolean":
        return pc.not_equal(values, pa.scalar(0, kind))
    if type_ == "date":
        return values.cast(pa.date32(), safe=False)
    return from_count(1_000_000)(values) if kind == _INT else values.cast(_INSTANT)


def seconds(values: pa.Array) -> pa.Array:
    """Whole seconds since 1970."""
    return pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", tz=times.UTC)).cast(_INT)


def from_count(factor: int) -> Kernel:
    """Times of counts since 1970, each of so many microseconds."""
    least, most = (bound * 1_000_000 // factor for bound in _SECONDS)

    def kernel(count: pa.Array) -> pa.Array:
        return times.within_years(pc.multiply(within(count, least, most), factor).cast(_INSTANT))

    return kernel


def to_count(unit: str) -> Kernel:
    """Counts of milliseconds or microseconds since 1970."""

    def kernel(values: pa.Array) -> pa.Array:
        floored = values if unit == "us" else pc.floor_temporal(values, unit="millisecond")
        return floored.cast(pa.timestamp(unit, tz=times.UTC)).cast(_INT)

    return kernel


def to_timestamp(text: pa.Array, pattern: str | None = None) -> pa.Array:
    """Times of texts, without a pattern of ISO 8601."""
    if pattern is None:
        return times.within_years(times.iso8601(text, times.UTC))
    return times.within_years(times.by_pattern(text, parse_pattern(pattern), times.UTC))


def to_date(text: pa.Array, pattern: str | None = None) -> pa.Array:
    """Days of texts."""
    days = times.dates(text) if pattern is None else times.dates_by_pattern(text, parse_pattern(pattern))
    return times.within_years(days)


def truncated(unit: str, values: pa.Array) -> pa.Array:
    """The begin of the unit that each time lies in."""
    return times.within_years(pc.floor_temporal(values, unit=unit))


def from_utc(values: pa.Array, zone: str) -> pa.Array:
    """The wall-clock times of a zone, as if they were UTC's."""
    return times.within_years(pc.local_timestamp(values.cast(pa.timestamp("us", tz=zone))).view(_INSTANT))


def to_utc(values: pa.Array, zone: str) -> pa.Array:
    """The instants of wall-clock times of a zone."""
    return times.within_years(
        times.instants(values.cast(pa.timestamp("us", tz=times.UTC)).cast(pa.timestamp("us")), zone)
    )


def written_by(pattern: str) -> str:
    """A pattern of date_format as strftime takes it; raises ValueError."""
    words, place = list[str](), 0
    while place < len(pattern):
        word = _WORD.match(pattern, place)
        if word is None:
            raise ValueError(f"date_format: {pattern!r} has an open quote, or one of [ ] {{ }} #")
        text, place = word[0], word.end()
        if text[0].isalpha() and text not in _FORMAT:
            raise ValueError(f"date_format: {text!r} is none of {', '.join(_FORMAT)}, or a text within quotes")
        # Two quotes are one, within a quoted text too.
        plain = "'" if text == "''" else text[1:-1].replace("''", "'") if text[0] == "'" else text
        words.append(_FORMAT.get(text) or plain.replace("%", "%%"))
    return "".join(words)


def formatted(values: pa.Array, pattern: str) -> pa.Array:
    """Times and days as text."""
    whole = values.cast(_INSTANT) if pa.types.is_date(values.type) else pc.floor_temporal(values, unit="second")
    return pc.strftime(whole.cast(pa.timestamp("s", tz=times.UTC)), written_by(pattern))
