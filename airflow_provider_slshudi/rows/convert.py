"""Log values, which are bytes, to a column's type: whole columns at a time, no Python object per log.

A text becomes the value that Spark's `try_cast` makes of it, or NULL if that makes none
(spark.apache.org/docs/3.5.9/sql-ref-ansi-compliance.html#cast); docs/pipeline.md lists the texts that only Spark takes.
A value that does not fit becomes NULL here and is counted; the pipeline's rule says whether that is allowed. JSON
follows other rules, see `rows/documents.py`.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.datatypes import MOST_DIGITS, Decimal, Scalar, parse_type
from airflow_provider_slshudi.config.timepattern import COUNTS, FORMATS, parse_pattern
from airflow_provider_slshudi.rows import times
from airflow_provider_slshudi.rows.casts import Cast, as_text, attempt, bytes_of, halve, has_letter, matching
from airflow_provider_slshudi.rows.documents import shredded

if TYPE_CHECKING:
    from airflow_provider_slshudi.config.columns import Column
    from airflow_provider_slshudi.config.pipeline import Pipeline

_INTEGER = r"\A[+-]?0*[0-9]{1,19}\z"
_DIGITS = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_FLOATING = rf"\A-?{_DIGITS}([eE][+-]?[0-9]+)?\z|\A-?(?i:inf(inity)?)\z|\A(?i:nan)\z|\A-NaN\z"
_FRACTIONS = ("float", "double")
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")
# Spark trims floating and decimal numbers as Java's String.trim does, the rest as its own UTF8String does.
_TRIMMED_BY_JAVA = "".join(map(chr, range(0x21)))
_TRIMMED = _TRIMMED_BY_JAVA + "\x7f"


@dataclass(frozen=True)
class ColumnSpec:
    """A column as a task needs it: see `config.columns.Column`.

    One with an expression has its `tree` and the type that this gives, `computed`; its `key` is the first that the
    expression names.
    """

    name: str
    type: str
    key: str
    format: str | None = None
    timezone: str = times.UTC
    path: str | None = None
    required: bool = False
    max_bytes: int | None = None
    renamed_from: tuple[str, ...] = ()
    null_texts: tuple[str, ...] = ()
    tree: tuple[Any, ...] | None = None
    computed: str = ""

    @classmethod
    def of(cls, pipeline: Pipeline, column: Column) -> ColumnSpec:
        """A column of a pipeline, with its checked expression if it has one."""
        spec = cls(
            column.name,
            column.type,
            (*pipeline.keys_of(column), "__topic__")[0],
            column.format,
            column.timezone or times.UTC,
            column.path,
            column.required,
            column.max_bytes,
            tuple(column.renamed_from),
            tuple(column.null_texts),
        )
        expression = pipeline.computed.get(column.name)
        return spec if expression is None else replace(spec, tree=expression.tree, computed=expression.type)


def convert(values: pa.Array, spec: ColumnSpec) -> pa.Array:
    """`values` (binary) in the column's type; NULL where a value is missing or does not fit."""
    type_ = parse_type(spec.type)
    if type_ == Scalar("binary"):
        return values
    text = as_text(values)
    if isinstance(type_, (Scalar, Decimal)):
        return _from_text(text, type_, spec)
    return shredded(text, type_, lambda leaf, part: _from_text(leaf, part, spec))


def convert_map(values: pa.Array) -> tuple[pa.Array, int]:
    """A map<binary, binary> as map<string, string>, and how many entries were not UTF-8.

    Such a value becomes NULL; such a key keeps its bytes, written as \\xNN.
    """
    keys = as_text(values.keys)
    if keys.null_count:
        escaped = [key.decode("utf-8", "backslashreplace") for key in values.keys.filter(pc.is_null(keys)).to_pylist()]
        keys = pc.replace_with_mask(keys, pc.is_null(keys), pa.array(escaped, pa.string()))
    items = as_text(values.items)
    lost = items.null_count - values.items.null_count
    return pa.MapArray.from_arrays(values.offsets, keys, items), lost


def without_texts(values: pa.Array, texts: Sequence[str]) -> pa.Array:
    """`values` (binary), NULL where one is exactly one of `texts`."""
    null_texts = pa.array([text.encode() for text in texts], values.type)
    return pc.if_else(pc.is_in(values, value_set=null_texts), pa.scalar(None, values.type), values)


def misfits(before: pa.Array, after: pa.Array) -> int:
    """How many values did not fit."""
    return int(after.null_count - before.null_count)


def _from_text(text: pa.Array, type_: Scalar | Decimal, spec: ColumnSpec) -> pa.Array:
    if type_ == Scalar("string"):
        return text
    plain = _is_plain(text)
    if not plain:
        text = _trimmed(text, _TRIMMED_BY_JAVA if isinstance(type_, Decimal) or type_.name in _FRACTIONS else _TRIMMED)
    if isinstance(type_, Decimal):
        return _decimal(text, type_)
    if type_.name == "boolean":
        return _boolean(text)
    if type_.name == "date":
        if spec.format is None or spec.format in FORMATS:
            return times.within_years(times.dates(text))
        return times.within_years(times.dates_by_pattern(text, parse_pattern(spec.format)))
    if type_.name == "timestamp":
        return times.within_years(_timestamp(text, str(spec.format), spec.timezone, plain))
    target = arrow_type(type_.name)
    if type_.name in _FRACTIONS:
        # No -0.0: Spark does not find it as 0 when it reads row by row.
        return pc.add(_floating(text, lambda part: part.cast(target), plain), pa.scalar(0, target))
    return _whole_numbers(text, lambda part: part.cast(target), plain)


def _is_plain(text: pa.Array) -> bool:
    """Whether all bytes are digits or one of `-./`, as mostly: so no blanks, no plus and no hexadecimal numbers."""
    held = bytes_of(text)
    return not held.size or bool(held.min() >= ord("-") and held.max() <= ord("9"))


def _trimmed(text: pa.Array, characters: str) -> pa.Array:
    held = bytes_of(text)
    if held.min() > ord(" ") and held.max() < ord("\x7f"):
        return text
    return pc.utf8_trim(text, characters=characters)


def _whole_numbers(text: pa.Array, cast: Cast, plain: bool) -> pa.Array:
    """`text` by `cast`, which takes the text of integers."""

    def checked(part: pa.Array) -> pa.Array:
        if has_letter(part, "x"):
            raise pa.ArrowInvalid("Arrow's cast takes hexadecimal numbers, a log's 0x10 is no number here")
        return cast(part)

    return attempt(text, cast, _INTEGER) if plain else attempt(_unsigned(text), checked, _INTEGER)


def _floating(text: pa.Array, cast: Cast, plain: bool) -> pa.Array:
    """`text` by `cast`, which takes the text of floating-point numbers."""
    if plain:
        return attempt(text, cast, _FLOATING)
    text = _unsigned(text)
    if has_letter(text, "n"):
        # Arrow's cast takes forms of NaN that Spark does not.
        return halve(matching(text, _FLOATING), cast)
    return attempt(text, cast, _FLOATING)


def _unsigned(text: pa.Array) -> pa.Array:
    """`text` without a leading plus, which Arrow's casts do not know."""
    return pc.replace_substring_regex(text, r"\A\+([0-9.iI]|NaN\z)", r"\1")


def _decimal(text: pa.Array, type_: Decimal) -> pa.Array:
    """Decimals; rounds half up, as Spark does, if a text has more digits behind the point."""
    target = arrow_type(str(type_))
    if not has_letter(text, "e"):
        longest = pc.max(pc.binary_length(text)).as_py() or 0
        if longest + type_.scale > MOST_DIGITS:
            return _rounded(text, type_)  # Arrow's cast would overflow unnoticed
        try:
            return text.cast(target)
        except pa.ArrowInvalid:
            return _rounded(text, type_)
    text = matching(_unsigned(text), rf"\A-?{_DIGITS}([eE][+-]?0*[0-9]{{1,9}})?\z")
    has_exponent = pc.fill_null(pc.match_substring_regex(text, "[eE]"), False)
    rounded = _rounded(pc.if_else(has_exponent, pa.scalar(None, pa.string()), text), type_)
    # Exponents are rare: these numbers are converted one by one.
    decimals = [_quantized(value, type_) for value in text.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(rounded, has_exponent, pa.array(decimals, target))


def _rounded(text: pa.Array, type_: Decimal) -> pa.Array:
    """Rounded decimals of texts without exponents; NULL where a text is no number or has too many digits."""
    whole, scale = type_.precision - type_.scale, type_.scale
    # Half up looks at one digit behind the last one, and no further.
    text = pc.replace_substring_regex(text, rf"(\.[0-9]{{{scale + 1}}})[0-9]+\z", r"\1")
    text = matching(text, rf"\A[+-]?{_DIGITS}\z")
    text = matching(text, rf"\A[+-]?0*[0-9]{{0,{whole}}}(\.[0-9]*)?\z")
    exact = text.cast(pa.decimal256(type_.precision + 2, scale + 1))
    rounded = pc.round(exact, ndigits=scale, round_mode="half_towards_infinity")
    bound = pa.scalar(decimal.Decimal(10) ** whole, pa.decimal256(whole + 1, 0))
    return pc.if_else(pc.less(pc.abs(rounded), bound), rounded, pa.scalar(None, rounded.type)).cast(
        arrow_type(str(type_))
    )


def _quantized(text: str, type_: Decimal) -> decimal.Decimal | None:
    value = decimal.Decimal(text)
    _, digits, exponent = value.as_tuple()
    if len(digits) + int(exponent) > MOST_DIGITS:  # even of 0e99, as Spark does
        return None
    if value.adjusted() < -type_.scale - 1:
        return decimal.Decimal(0)
    with decimal.localcontext() as context:
        context.prec, context.rounding = len(digits) + 2 * MOST_DIGITS, decimal.ROUND_HALF_UP
        value = value.quantize(decimal.Decimal(1).scaleb(-type_.scale))
    return value if abs(value) < decimal.Decimal(10) ** (type_.precision - type_.scale) else None


def _boolean(text: pa.Array) -> pa.Array:
    true = pc.equal(text, _TRUE[0])
    if pc.all(pc.or_(true, pc.equal(text, _FALSE[0]))).as_py():
        return true
    lower = pc.utf8_lower(text)
    is_boolean = pc.is_in(lower, value_set=pa.array([*_TRUE, *_FALSE]))
    return pc.if_else(is_boolean, pc.is_in(lower, value_set=pa.array(_TRUE)), pa.scalar(None, pa.bool_()))


def _timestamp(text: pa.Array, format_: str, zone: str, plain: bool) -> pa.Array:
    if format_ == "iso8601":
        return times.iso8601(text, zone)
    if format_ not in COUNTS:
        return times.by_pattern(text, parse_pattern(format_), zone)
    digits, target = COUNTS[format_], arrow_type("timestamp")
    if digits < 0 or bool((bytes_of(text) == ord(".")).any()):
        return times.counted(text, digits, lambda part: _whole_numbers(part, _to_int64, plain))
    factor = pa.scalar(10**digits, pa.int64())

    def from_count(part: pa.Array) -> pa.Array:
        return pc.multiply_checked(part.cast(pa.int64()), factor).cast(target)

    return _whole_numbers(text, from_count, plain)


def _to_int64(text: pa.Array) -> pa.Array:
    return text.cast(pa.int64())
