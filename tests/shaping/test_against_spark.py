"""Expressions beside Spark: the same text over the same logs has the same values."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_slshudi.shaping.evaluation import Evaluation, Value
from airflow_provider_slshudi.shaping.grammar import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long
COLUMNS = {"n": "bigint", "m": "bigint", "x": "double", "y": "double", "b": "boolean", "t": "timestamp", "d": "date"}
TEXTS = [
    "",
    " ",
    "a",
    "GET /a?x=1&y=2 200",
    "Zoë, 中文\n",
    "1",
    "-7",
    "007",
    " 42 ",
    "1.5",
    "1e3",
    "abc-def-",
    None,
    "true",
]
TEXTS += [
    "2026-01-02",
    "2026-01-02 03:04:05.123456",
    "2026-02-30",
    '{"a":{"b":1},"c":"x","d":[1,2]}',
    '{"a":',
    "A%_\\",
    "NaN",
]
NUMBERS = [0, 1, -1, 7, -7, 3, None, 2**31, -(2**31) - 1, 10**15]
EXPRESSIONS = """
n + m * 2 - 1 | n - -m | -n | abs(n) | n div m | n % m | n / m | x / n | x * 2.5 + n
floor(if(x > 1e9, 0.0, x)) | ceil(if(x > 1e9, 0.0, x)) | n % 3 | -7 % n | n > m | n >= 3 and m < 2 or b | not b
n = m | n <> m | n between -1 and 7 | n not between 0 and 3 | x > n | x <= 1.5 | n in (1, 7, -7)
s in ('a', '1') | s not in ('a', '') | n is null | s is not null and n is not null | b and n > 1 | b or n > 1
case when n > 1 then 'big' when n < 0 then s else null end | case n when 1 then 'one' when 7 then 'seven' end
if(n > 0, s, 'none') | coalesce(s, 'none') | coalesce(n, m, 0) | nullif(s, '') | nullif(n, 7) | greatest(n, m)
least(n, m, 3) | ifnull(s, 'x') | nvl(n, 0) | if(n is null, 1.5, n) | concat(s, '/', r) | s || 'x' | upper(s)
lower(s) | trim(s) | ltrim(s) | rtrim(s) | length(s) | char_length(r) | substring(s, 2, 3) | substring(s, 1)
substring(s, 0, 2) | substring(s, -3) | substr(s, 5) | left(s, 2) | right(s, 3) | left(s, 0)
replace(s, 'a', 'bb') | replace(s, 'GET', '') | split_part(s, '-', 1) | split_part(s, '-', -1)
split_part(s, '-', 9) | split_part(s, ' ', 2) | startswith(s, 'a') | endswith(s, '-') | contains(s, '/')
s like 'a%' | s like '%\\\\_%' | s ilike 'A%' | s not like '%1%' | s rlike '^[a-z]' | s rlike '[0-9]+$'
regexp_like(s, 'x=([0-9])') | not s rlike '\\\\s' | regexp_extract(s, '([A-Z]+) (\\\\S+)', 1)
regexp_extract(s, '([A-Z]+) (\\\\S+)', 2) | regexp_extract(s, '([A-Z]+) (\\\\S+)', 0)
regexp_extract(s, '(x=(\\\\d))|(zz)', 3) | regexp_extract(s, 'y=(\\\\d)') | regexp_extract(s, '[(]?(a)', 1)
regexp_replace(s, '[0-9]', '#') | regexp_replace(s, '([a-z])-', '<$1>') | regexp_replace(s, 'a', '')
regexp_replace(s, 'a', '\\\\$') | get_json_object(s, '$.a.b') | get_json_object(s, '$.c')
get_json_object(s, '$.a') | get_json_object(s, '$.d[1]') | get_json_object(s, '$.e') | cast(s as double)
cast(s as boolean) | cast(s as date) | cast(s as timestamp) | cast(n as string) | cast(b as string)
cast(d as string) | cast(n as double) | cast(if(x > 1e9, 0.0, x) as bigint) | cast(b as bigint)
cast(n as boolean) | cast(t as date) | cast(t as bigint) | cast(d as timestamp) | cast(s as string)
cast(x as boolean) | to_timestamp(s, 'yyyy-MM-dd') | to_date(s) | to_date(s, 'yyyy-MM-dd') | to_timestamp(s)
timestamp_seconds(m) | timestamp_millis(n div 1000) | timestamp_micros(n) | unix_seconds(t) | unix_millis(t)
unix_micros(t) | date_trunc('hour', t) | date_trunc('week', t) | date_trunc('month', t)
date_trunc('quarter', t) | date_trunc('minute', t) | year(t) | month(t) | day(t) | hour(t) | minute(t)
second(t) | dayofweek(t) | year(d) | dayofweek(d) | dayofmonth(d) | date_format(t, 'yyyy-MM-dd HH:mm:ss')
date_format(t, "yyyy/MM/dd'T'HH") | date_format(d, 'yyyyMMdd') | from_utc_timestamp(t, 'Asia/Shanghai')
hour(from_utc_timestamp(t, 'America/New_York')) | to_utc_timestamp(t, 'Europe/Berlin') | x = y | x <> y | x > y
x >= y | x < y | x <= y | greatest(x, y) | least(x, y) | nullif(x, y) | x in (0.0, 1.5) | coalesce(null, s)
concat(s, null) | upper(cast(null as string)) | b and null | b or null | greatest(n, null) | greatest(b, n > 1)
greatest(t, to_timestamp('2026-01-01')) | greatest(s, r) | least(s, r, 'b') | -9223372036854775807 % -1
date_format(t, "yyyy''MM") | date_format(t, "'a''b'yyyy") | regexp_replace(s, '([a-z])', '\\\\$1')
n / 9007199254740993 | if(n is null, null, 'x') | case when n > 1 then s end | (n > 1) = (m > 1) | not (n = 1)
n = 1 and not b | -n > 3 | n - 1 > m * 2
"""
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


def rows() -> list[dict[str, Any]]:
    zone = datetime.timezone.utc
    moments: list[datetime.datetime | None] = [
        datetime.datetime(2026, 1, 2, 3, 4, 5, 123_456, zone),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, zone),
    ]
    moments += [
        datetime.datetime(2026, 3, 29, 1, 30, tzinfo=zone),
        None,
        datetime.datetime(2026, 10, 25, 0, 30, tzinfo=zone),
    ]
    halves = [0.0, 1.5, -1.5, None, 2.0**40 + 0.5, 1e-3, math.nan, -0.0, 1.5]
    return [
        {
            "s": text,
            "r": TEXTS[(place * 5 + 3) % len(TEXTS)],
            "n": NUMBERS[place % len(NUMBERS)],
            "m": NUMBERS[(place * 3 + 1) % 7],
            "x": halves[place % len(halves)],
            "y": halves[(place * 5 + 2) % len(halves)],
            "b": (True, False, None)[place % 3],
            "t": moments[place % len(moments)],
            "d": (moment := moments[place % len(moments)]) and moment.date(),
        }
        for place, text in enumerate(TEXTS * 3)
    ]


def test_an_expression_means_what_spark_makes_of_it(spark: SparkSession) -> None:
    logs = rows()
    typed = {name: pa.array([log[name] for log in logs], ARROW[type_]) for name, type_ in COLUMNS.items()}
    typed |= {key: pa.array([log[key] for log in logs], pa.string()) for key in "sr"}
    table = pa.table({"place": range(len(logs))})
    schema = "s string, r string, n bigint, m bigint, x double, y double, b boolean, t timestamp, d date, place int"
    frame = spark.createDataFrame([{**log, "place": place} for place, log in enumerate(logs)], schema)
    expressions = [text.strip() for line in EXPRESSIONS.strip().splitlines() for text in line.split(" | ")]
    asked = frame.orderBy("place").selectExpr(*[f"({text}) as e{place}" for place, text in enumerate(expressions)])
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "CORRECTED")
    try:
        by_spark = asked.collect()
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    wrong = []
    for place, text in enumerate(expressions):
        read = parse(text, {**COLUMNS, "s": "string", "r": "string"})
        values, _ = Evaluation(table, lambda name: Value(typed[name])).array(read.tree, ARROW[read.type])
        for log, ours, row in zip(logs, map(plain, values.to_pylist()), by_spark, strict=True):
            if ours != plain(row[place]):
                wrong.append((text, log, ours, row[place]))
    assert not wrong, "\n".join(map(str, wrong))


def plain(value: Any) -> Any:
    """The value as one that equals itself: times without a zone, NaN as text."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
