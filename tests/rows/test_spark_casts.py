"""Conversions equal Spark's own: its `try_cast`, `to_timestamp`, `from_json`, `get_json_object`, on generated texts.

Where a generated text is one that Spark takes and a pipeline does not, docs/pipeline.md says so, and the expectation
here is NULL by a rule of this file.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_slshudi.config.datatypes import Array, DataType, Map, Scalar, Struct, parse_type
from airflow_provider_slshudi.config.datatypes import Decimal as DecimalType
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert
from airflow_provider_slshudi.rows.documents import at_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A Spark query takes a tenth of a second, so an example is a whole column of texts.
QUICK = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
ZONES = ("UTC", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "Europe/Berlin", "Asia/Kathmandu")
MICROS_A_DAY = 86_400_000_000
DECIMALS = ("decimal(7,2)", "decimal(38,0)", "decimal(38,38)", "decimal(38,18)", "decimal(1,1)")


@contextmanager
def configured(spark: SparkSession, **conf: str) -> Iterator[None]:
    names = {"zone": "spark.sql.session.timeZone", "parser": "spark.sql.legacy.timeParserPolicy"}
    before = {key: spark.conf.get(names[key]) for key in conf}
    try:
        for key, value in conf.items():
            spark.conf.set(names[key], value)
        yield
    finally:
        for key, old in before.items():
            assert old is not None
            spark.conf.set(names[key], old)


def by_spark(spark: SparkSession, texts: list[str], *expressions: str) -> list[list[Any]]:
    """The values of SQL expressions over the column `text`."""
    rows = spark.createDataFrame([(number, text) for number, text in enumerate(texts)], "n int, text string")
    found = rows.selectExpr("n", *(f"{sql} as c{number}" for number, sql in enumerate(expressions))).collect()
    found.sort()
    return [[row[column + 1] for row in found] for column in range(len(expressions))]


def ours(texts: list[str], type_: str, **how: Any) -> pa.Array:
    values = pa.array([text.encode() for text in texts], pa.binary())
    whole = convert(values, ColumnSpec("c", type_, "c", **how))
    # A value is the same, whatever stands beside it.
    for number in range(0, len(texts), 7):
        assert bits(convert(values.slice(number, 1), ColumnSpec("c", type_, "c", **how))) == bits(
            whole.slice(number, 1)
        )
    return whole


def bits(values: pa.Array | list[Any]) -> list[Any]:
    """Values that are equal where theirs are, NaN and the sign of zero included."""
    listed = values.to_pylist() if isinstance(values, pa.Array) else values
    return [_bits(value) for value in listed]


def _bits(value: Any) -> Any:
    if isinstance(value, float) and value == value:
        return struct.pack("d", value)
    # Where the last digit is rounded up, Spark's decimal may have one zero more.
    return Fraction(value) if isinstance(value, Decimal) else repr(value)


def same(texts: list[str], found: pa.Array | list[Any], expected: list[Any]) -> None:
    for text, one, other in zip(texts, bits(found), bits(expected), strict=True):
        assert one == other, f"{text!r}: {one} here, {other} by Spark"


# Texts --------------------------------------------------------------------------------------------------------------
blanks = st.text(st.sampled_from(" \t\n\r\x00\x1c\x1f\x7f\x0b\x85\u00a0\u2003"), max_size=2)
digits = (
    st.text("0123456789", max_size=5) | st.text("0123456789", min_size=15, max_size=45) | st.text("09", max_size=21)
)
signs = st.sampled_from(["", "", "", "-", "+", "--", "+-", "-+"])
exponents = st.just("") | st.builds("{}{}{}".format, st.sampled_from("eE"), signs, st.integers(0, 450) | st.just(""))
fractions = st.just("") | st.builds(".{}".format, digits)
boundaries = st.builds(
    lambda bound, off, tail: f"{bound + off}{tail}",
    st.sampled_from([0, 2**31, -(2**31), 2**63, -(2**63), 10**5, 10**38, -(10**38), 2**24, 2**53]),
    st.integers(-2, 2),
    st.sampled_from(["", "", ".0", ".4", ".5", ".49999999999999999999999999999999999999999", ".995"]),
)
numbers = st.one_of(
    st.builds("{}{}{}{}".format, signs, digits, fractions, exponents),
    boundaries,
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-100_000, max_value=100_000).map(str),
    st.builds("{}{}{}".format, signs, st.text("0123456789.eEdDfFxXpPaAiIlL_,٣", max_size=6), exponents),
)
WORDS = (
    "true t 1 yes y false f 0 no n TRUE Yes nO nan NaN NAN inf INF -inf +Infinity infinity -Infinity +NaN -NaN -nan "
    "+nan nan(1) infinit null ﬀ ſ Kelvin 1d 1.5F 0x10 0x1p3 1_000 ١٢ １"
)
words = st.sampled_from(WORDS.split())
padded = st.builds("{}{}{}".format, blanks, numbers | words | st.text(max_size=4), blanks)

# Java's suffixes and hexadecimal numbers, as Double.parseDouble takes them.
JAVA_NUMBER = re.compile(
    r"(?s)[\x00-\x20]*[+-]?(0[xX].*|[0-9.]+([eE][+-]?[0-9]+)?[dDfF]|(NaN|Infinity)[dDfF])[\x00-\x20]*"
)


def within_years(value: int | None, unit: int = 1) -> int | None:
    """Readers stop at other years than 1 to 9999 (docs/decisions/0028), so what Spark makes of those is NULL here."""
    first, last = ((end - date(1970, 1, 1)).days * unit for end in (date.min, date.max))
    return value if value is not None and first <= value < last + unit else None


def _unsigned(value: float | None) -> float | None:
    """A table has no -0.0 (docs/decisions/0028), so what Spark casts to it is 0.0 here."""
    return 0.0 if value == 0 else value


@QUICK
@given(st.lists(padded, min_size=1, max_size=150))
@example(["-0.0", "-0", "-1e-999", "0.0"])
def test_numbers_and_flags_are_what_spark_casts_them_to(spark: SparkSession, texts: list[str]) -> None:
    types = ("int", "bigint", "float", "double", "boolean")
    for type_, expected in zip(types, by_spark(spark, texts, *(f"try_cast(text as {t})" for t in types)), strict=True):
        if type_ in ("float", "double"):
            pairs = zip(texts, expected, strict=True)
            expected = [None if JAVA_NUMBER.fullmatch(text) else _unsigned(value) for text, value in pairs]
        same(texts, ours(texts, type_), expected)


@QUICK
@given(st.lists(padded, min_size=1, max_size=150))
def test_decimals_are_what_spark_casts_them_to(spark: SparkSession, texts: list[str]) -> None:
    for type_, found in zip(
        DECIMALS, by_spark(spark, texts, *(f"try_cast(text as {t})" for t in DECIMALS)), strict=True
    ):
        # Java's BigDecimal takes the digits of any script.
        expected = [value if text.isascii() else None for text, value in zip(texts, found, strict=True)]
        same(texts, ours(texts, type_), expected)


@QUICK
@given(st.lists(padded, min_size=1, max_size=150))
def test_counts_since_1970_are_what_spark_makes_of_them(spark: SparkSession, texts: list[str]) -> None:
    factors = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
    expressions = [f"try_multiply(try_cast(text as bigint), {factor})" for factor in factors.values()]
    for format_, expected in zip(factors, by_spark(spark, texts, *expressions), strict=True):
        # Spark's integers have no digits behind a point, which our counts have.
        whole = [(text, value) for text, value in zip(texts, expected, strict=True) if "." not in text]
        texts_of_whole = [text for text, _ in whole]
        found = [within_years(value, MICROS_A_DAY) for _, value in whole]
        same(texts_of_whole, ours(texts_of_whole, "timestamp", format=format_).cast(pa.int64()), found)


@QUICK
@given(st.lists(st.decimals(-(10**10), 10**10, places=9), min_size=1, max_size=150))
def test_counts_with_fractions_are_what_spark_makes_of_decimals(spark: SparkSession, counts: list[Decimal]) -> None:
    texts = [format(count, "f") for count in counts]
    for format_, factor in (("seconds", 1_000_000), ("millis", 1_000), ("micros", 1)):
        (expected,) = by_spark(spark, texts, f"cast(cast(text as decimal(20,9)) * {factor} as bigint)")
        same(texts, ours(texts, "timestamp", format=format_).cast(pa.int64()), expected)


# Dates and times ----------------------------------------------------------------------------------------------------
years = st.integers(1, 9999) | st.integers(1880, 2110) | st.just(2026)
days = st.builds("{:04}-{:02}-{:02}".format, years, st.integers(0, 13), st.integers(0, 32))
loose_days = st.one_of(
    days,
    st.builds("{}-{}-{}".format, years, st.integers(0, 13), st.integers(0, 32)),
    st.builds("{}{:04}-{}".format, signs, years, st.integers(1, 12)),
    st.builds("{}{:04}".format, signs, years),
    st.text("0123456789-T ", max_size=12),
)
clocks = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 24), st.integers(0, 60), st.integers(0, 60))
parts_of_clocks = st.builds(lambda clock, end: clock[:end], clocks, st.sampled_from([1, 2, 3, 5, 5, 6, 8, 8, 8]))
more = st.just("") | st.builds(".{}".format, st.text("0123456789", min_size=1, max_size=12))
offsets = st.sampled_from(["Z", "+08:00", "-0530", "+18:00", "+18:01", "-19:00", "+08", "+00:60", "-00:00"])
times = st.builds("{}{}{}{}{}".format, days, st.sampled_from("T "), clocks, more, st.just("") | offsets)
instants = st.one_of(
    days,
    st.builds("{}{}{}".format, days, st.sampled_from("T "), parts_of_clocks),
    times,
    st.text("0123456789-T: .Z+", max_size=24),
)
# Around where a zone skips an hour or has it twice: Lord Howe moves by half an hour.
turns = st.builds(
    "{} {:02}:{:02}:{:02}.5".format,
    st.sampled_from(
        [
            "2026-03-08",
            "2026-11-01",
            "2026-03-29",
            "2026-10-25",
            "2026-04-05",
            "2026-10-04",
            "1986-05-04",
            "1986-09-14",
            "1901-01-01",
            "1986-01-01",
            "2060-07-04",
            "2060-03-28",
        ]
    ),
    st.integers(0, 4),
    st.sampled_from([0, 15, 29, 30, 45, 59]),
    st.integers(0, 59),
)
DATES = re.compile(r"\+?[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2}([T ].*)?)?)?", re.DOTALL)
TIMES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?)?([Z+-].*)?")


def trimmed(text: str) -> str:
    return text.strip("".join(map(chr, range(33))) + "\x7f")


@QUICK
@given(st.lists(st.builds("{}{}{}".format, blanks, loose_days | instants, blanks), min_size=1, max_size=150))
def test_dates_are_what_spark_casts_them_to(spark: SparkSession, texts: list[str]) -> None:
    (found,) = by_spark(spark, texts, "unix_date(try_cast(text as date))")
    pairs = zip(texts, found, strict=True)
    expected = [within_years(value) if DATES.fullmatch(trimmed(text)) else None for text, value in pairs]
    same(texts, ours(texts, "date").cast(pa.int32()), expected)


@pytest.mark.parametrize("zone", ZONES)
@settings(QUICK, max_examples=8)
@given(st.lists(st.builds("{}{}{}".format, blanks, instants | turns, blanks), min_size=1, max_size=150))
def test_times_are_what_spark_casts_them_to(spark: SparkSession, zone: str, texts: list[str]) -> None:
    with configured(spark, zone=zone):
        (found,) = by_spark(spark, texts, "unix_micros(try_cast(text as timestamp))")
    pairs = zip(texts, found, strict=True)
    expected = [within_years(value, MICROS_A_DAY) if TIMES.fullmatch(trimmed(text)) else None for text, value in pairs]
    same(texts, ours(texts, "timestamp", format="iso8601", timezone=zone).cast(pa.int64()), expected)


PATTERNS = {
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%M:%S",
    "dd/MMM/yyyy:HH:mm:ss Z": "%d/%b/%Y:%H:%M:%S +0800",
    "yyyyMMdd'T'HHmmss": "%Y%m%dT%H%M%S",
    "MM/dd/yyyy hh:mm:ss a": "%m/%d/%Y %I:%M:%S %p",
    "d.M.yyyy H:m:s": "%d.%m.%Y %H:%M:%S",
    "MMM d yyyy h:mm a": "%b %d %Y %I:%M %p",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX": "%Y-%m-%dT%H:%M:%S.123-05:30",
    "yyyy-MM-dd HH:mm:ss.SSSSSSSSS": "%Y-%m-%d %H:%M:%S.%f",
    "yyyy-MM-dd HH:mm:ssXX": "%Y-%m-%d %H:%M:%SZ",
    "yyyy-MM-dd HH:mm xxx": "%Y-%m-%d %H:%M +00:00",
    "yyyy-MM-dd HH:mm:ss,SSS": "%Y-%m-%d %H:%M:%S,123",
    "dd MMMM yyyy HH:mm": "%d %B %Y %H:%M",
    "yyyy.MM.dd": "%Y.%m.%d",
    "'day' yyyy-MM-dd 'o''clock' HH": "day %Y-%m-%d o'clock %H",
}
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)) | st.datetimes(
    datetime(2026, 3, 8), datetime(2026, 3, 9)
)


def spoilt(text: str, at: int, by: str) -> str:
    at %= len(text) + 1
    return text[:at] + by + text[at + 1 :]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(QUICK, max_examples=6)
@given(data=st.data())
def test_patterns_are_read_as_spark_reads_them(spark: SparkSession, pattern: str, data: st.DataObject) -> None:
    written = moments.map(lambda moment: moment.strftime(PATTERNS[pattern]))
    wrong = st.builds(spoilt, written, st.integers(0, 40), st.sampled_from([*"0123456789", "", "X", "z", "-", "99"]))
    listed = data.draw(st.lists(written | written.map(str.lower) | wrong, min_size=1, max_size=150))
    texts = [trimmed(text) for text in listed]  # which Spark does not do by itself here
    zone = "America/New_York"
    literal = pattern.replace("'", "\\'")
    with configured(spark, zone=zone, parser="CORRECTED"):
        (expected,) = by_spark(spark, texts, f"unix_micros(try_to_timestamp(text, '{literal}'))")
    expected = [within_years(value, MICROS_A_DAY) for value in expected]
    same(texts, ours(texts, "timestamp", format=pattern, timezone=zone).cast(pa.int64()), expected)
    if pattern == "yyyy.MM.dd":
        with configured(spark, zone="UTC", parser="CORRECTED"):
            (expected,) = by_spark(spark, texts, f"unix_date(cast(try_to_timestamp(text, '{literal}') as date))")
        same(texts, ours(texts, "date", format=pattern).cast(pa.int32()), [within_years(value) for value in expected])


# JSON ---------------------------------------------------------------------------------------------------------------
names = st.sampled_from(["a", "b", "userId", "x_1"])
plain = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), max_size=5)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": plain,
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20),
    "boolean": st.booleans(),
    "decimal(9,2)": st.decimals(-9_999_999, 9_999_999, places=1).map(float) | st.integers(-999, 999),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(str),
    "timestamp": st.datetimes(datetime(1900, 1, 2), datetime(2100, 1, 1)).map(datetime.isoformat),
    "binary": st.sampled_from(["", "AA==", "AQI=", "////"]),
}
types = st.recursive(
    st.sampled_from(sorted(LEAVES)).map(parse_type),
    lambda inner: st.one_of(
        st.builds(Array, inner),
        st.builds(Map, inner),
        st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0].lower()).map(
            lambda fields: Struct(tuple(fields))
        ),
    ),
    max_leaves=5,
).filter(lambda type_: not isinstance(type_, (Scalar, DecimalType)))


def fitting(type_: DataType) -> st.SearchStrategy[Any]:
    """What JSON's values of a type are."""
    if isinstance(type_, Array):
        return st.lists(st.none() | fitting(type_.element), max_size=3)
    if isinstance(type_, Map):
        return st.dictionaries(plain, st.none() | fitting(type_.value), max_size=3)
    if isinstance(type_, Struct):
        known = {name: st.none() | fitting(field) for name, field in type_.fields}
        return st.fixed_dictionaries({}, optional={**known, "unknown": st.just([{"a": 1}])})
    return LEAVES[str(type_)]


def comparable(value: Any) -> Any:
    """Values of Spark's rows and of Arrow as the same Python ones; Arrow's maps are lists of pairs."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):
        listed = [tuple(map(comparable, item)) if type(item) is tuple else comparable(item) for item in value]
        return sorted(listed) if listed and type(value[0]) is tuple else listed
    return value


@settings(QUICK, max_examples=30)
@given(data=st.data())
def test_json_that_fits_is_what_spark_makes_of_it(spark: SparkSession, data: st.DataObject) -> None:
    type_ = data.draw(types)
    documents = data.draw(st.lists(fitting(type_), min_size=1, max_size=30))
    texts = [json.dumps(document, ensure_ascii=number % 2 == 0) for number, document in enumerate(documents)]
    (expected,) = by_spark(spark, texts, f"from_json(text, '{type_}')")
    found = ours(texts, str(type_), format="iso8601")
    assert not found.null_count
    for text, one, other in zip(texts, found.to_pylist(), expected, strict=True):
        assert comparable(one) == comparable(other), text


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("array<int>", "[1, 2.5]"),
        ("array<int>", "[2147483648]"),
        ("array<int>", '[""]'),
        ("map<string,boolean>", '{"a": "maybe"}'),
        ("struct<a:int>", "[1]"),
        ("struct<a:array<int>>", '{"a": {"b": 1}}'),
        ("struct<a:decimal(3,1)>", '{"a": 100}'),
        ("struct<a:date>", '{"a": "2026-02-30"}'),
        ("array<int>", "[1"),
        ("array<int>", "null"),
    ],
)
def test_what_spark_calls_malformed_does_not_fit(spark: SparkSession, type_: str, text: str) -> None:
    assert convert(pa.array([text.encode()]), ColumnSpec("c", type_, "c")).to_pylist() == [None]
    with pytest.raises(Exception, match=r"(?i)malformed"):
        by_spark(spark, [text], f"from_json(text, '{type_}', map('mode', 'FAILFAST'))")


# Beyond 16 bits Spark writes characters within JSON as \\u escapes.
short = st.text(st.characters(min_codepoint=32, max_codepoint=0xFFFF, exclude_categories=("Cs", "Cc")), max_size=5)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | short,
    # For null within an array Spark has the text null, for null by a name NULL, which both are here.
    lambda inner: (
        st.lists(inner.filter(lambda value: value is not None), max_size=3) | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = ("$.a", "$.a.b", "$.userId[0]", "$[0]", "$[1].a", "$.a[0].b", "$['x_1'].a", "$.b[1]")


@QUICK
@given(
    st.lists(documents.map(json.dumps) | st.sampled_from(["", "x", '{"a":', "[1", "{a: 1}"]), min_size=1, max_size=100)
)
def test_paths_find_what_spark_finds(spark: SparkSession, texts: list[str]) -> None:
    expressions = [f'get_json_object(text, "{path}")' for path in PATHS]
    values = pa.array([text.encode() for text in texts], pa.binary())
    for path, expected in zip(PATHS, by_spark(spark, texts, *expressions), strict=True):
        same(texts, at_path(values, path)[0].cast(pa.string()), expected)


def test_a_decimal_within_json_keeps_the_digits_that_are_written(spark: SparkSession) -> None:
    text = '{"a": 12345678901234567890.123456789}'
    (expected,) = by_spark(spark, [text], "from_json(text, 'struct<a:decimal(38,9)>').a")
    found = convert(pa.array([text.encode()]), ColumnSpec("c", "struct<a:decimal(38,9)>", "c"))
    assert found[0].as_py()["a"] == expected[0] == Decimal("12345678901234567890.123456789")
