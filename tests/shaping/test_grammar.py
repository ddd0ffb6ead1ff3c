"""What the language takes, and what it says of what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.beside import table_of
from airflow_provider_slshudi.shaping.grammar import parse
from tests.pipelines import ad_events, customers

COLUMNS = {
    "n": "int",
    "x": "double",
    "s": "string",
    "t": "timestamp",
    "d": "date",
    "b": "boolean",
    "m": "map<string,int>",
}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nn > 1", "nn is no column here; key('nn') is the text of the log's key"),
        ("s > 1", "bigint and text do not go together"),
        ("key('n') = 1", "bigint and text do not go together"),
        ("n and b", "argument 1 is bigint, and boolean is expected"),
        ("uper(s) = 'x'", "there is no function uper; there are key, "),
        ("upper(n)", "argument 1 is bigint, and string is expected"),
        ("m", "column m is map<string,int>, which expressions do not take"),
        ("a.b = 'c'", "a key with a dot in its name is written within backticks"),
        ("s rlike '(?=a)'", "patterns are RE2's"),
        (r"regexp_extract(s, r'\Q(', 0)", r"\Q is not part"),
        ("regexp_extract(s, '(a)', 2)", "has 1 groups, and not group 2"),
        ("regexp_extract(s, s, 1)", "argument 2 must be a constant"),
        ("regexp_replace(s, '(a)', '$2')", "has 1 groups, and not group 2"),
        ("regexp_replace(s, 'a', 'b$')", "$1 to $9 are groups"),
        ("cast(s as decimal(5,2))", "CAST takes a value and the name of a type"),
        ("cast(s as binary)", "CAST makes string, int"),
        ("cast(s as int collate) + n", "CAST takes a value"),
        ("n in (1, , 2)", "an argument is empty"),
        ("substring(s, , 2)", "an argument is empty"),
        ("if(b, n, )", "an argument is empty"),
        ("if(b, n)", "if takes a condition and two values"),
        ("n ;", "without `;`"),
        ("b = b < b", "put brackets around `b < b`"),
        ("b <> b not between false and true", "put brackets around"),
        ("b = not b", "put brackets around `NOT b`"),
        ("null = null", "NULL has no type there"),
        ("upper(null) is null and null is null", "NULL has no type there"),
        ("x in (9007199254740993)", "no double is 9007199254740993"),
        ("left(s, 9223372036854775807)", "1000000 is the largest"),
        ("split_part(s, 'a', 2147483648)", "1000000 is the largest"),
        (r"regexp_extract(s, r'(\C)', 1)", r"\C is not part of the language"),
        (r"regexp_replace(s, 'a', '\\\\$2')", "has 0 groups, and not group 2"),
        ("from_utc_timestamp(t, 'localtime')", "no time zone of a place"),
        ("from_utc_timestamp(t, 'right/UTC')", "time zone"),
        ("date_format(t, '[yyyy]')", "one of [ ] { } #"),
        ("to_double(n)", "there is no function to_double()"),
        ("greatest(n)", "greatest takes 2"),
        ("cast(x as string)", "CAST: no string is made of double"),
        ("cast(t as string)", "date_format(time, 'yyyy-MM-dd HH:mm:ss') writes one"),
        ("n in (select 1)", "IN takes a list of values"),
        ("n in ()", "IN takes a list of values"),
        ("n in (1, 'a')", "bigint and text do not go together"),
        ("n in (1, null)", "must be a constant"),
        ("s like 'a' escape 'b'", "is not part of the language"),
        ("s like any ('a', 'b')", "is not part of the language"),
        ("n <=> 1", "is not part of the language"),
        ("n is true", "only IS NULL and IS NOT NULL"),
        ("count(*)", "is not part of the language"),
        ("n; b", "expected one expression"),
        ("n +", "expected an expression as Spark's SQL writes it"),
        ("cast(s as int", ""),
        ("upper(s", "line 1, column 7: Expecting )"),
        ("'abc", "a quote or a bracket is open"),
        ("", "expected one expression"),
        ("null", "it is NULL for every log"),
        ("split_part(s, '', 1)", "the mark between the parts has characters"),
        ("split_part(s, 'a', 0)", "parts count from 1"),
        ("substring(s, -3, 2)", "right(text, n) are the last n"),
        ("date_trunc('eon', t)", "'eon' is none of second"),
        ("date_format(t, 'EEE')", "'EEE' is none of yyyy"),
        ("from_utc_timestamp(t, 'Mars')", "'Mars' is no IANA time zone"),
        ("to_timestamp(s, 'abc')", ""),
        ("get_json_object(s, 'a')", "a path begins with $"),
        ("hour(d)", "argument 1 is date, and timestamp is expected"),
        ("99999999999999999999 > n", "is no bigint"),
        ("key(s)", "key takes the name of one of the log's keys"),
        ("key('__rest__')", "is no key of a log"),
        ("if(b, n, s)", "bigint and text do not go together"),
        ("case when n then 1 end", "argument 1 is bigint, and boolean is expected"),
        ("(" * 150 + "n" + ")" * 150, ""),
        ("interval 1 day", "is not part of the language"),
        ("current_timestamp", ""),
    ],
)
def test_what_is_not_taken_is_told(text: str, why: str) -> None:
    with pytest.raises(ValueError) as told:
        parse(text, COLUMNS)
    assert why in str(told.value) and "\x1b" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "type_", "keys", "columns"),
    [
        ("n + 1", "bigint", (), ("n",)),
        ("n * x", "double", (), ("n", "x")),
        ("upper(key('odd key'))", "string", ("odd key",), ()),
        ("`__tag__:host` = 'a' or `__topic__` = 'b'", "boolean", ("__tag__:host", "__topic__"), ()),
        ("`__time__` > 5", "boolean", ("__time__",), ()),
        ("case when b then n else 1.5 end", "double", (), ("b", "n")),
        ("coalesce(null, n)", "bigint", (), ("n",)),
        ("try_cast(s as boolean)", "boolean", (), ("s",)),
        ("cast(t as date)", "date", (), ("t",)),
    ],
)
def test_an_expression_has_a_type_and_names_keys_and_columns(
    text: str, type_: str, keys: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    read = parse(text, COLUMNS)
    assert (read.type, read.keys, read.columns) == (type_, keys, columns)


def test_literals_that_python_holds_for_equal_stay_apart() -> None:
    trees = {parse(text, COLUMNS).tree for text in ("cast(1 as string)", "cast(true as string)")}
    assert len(trees) == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"where": "clicks"}, "where: expected a condition, like status >= 500, and it gives bigint"),
        ({"where": "event_time = 'x'"}, "where: =: text and timestamp do not go together"),
        (
            {"columns": [{"name": "a", "expr": "b + 1", "type": "int"}, {"name": "b", "expr": "a", "type": "int"}]},
            "in a circle",
        ),
        ({"columns": [{"name": "a", "expr": "a", "type": "int"}]}, "a is no column here; key('a') is"),
        ({"columns": [{"name": "a", "expr": "1 = 1"}]}, "its expr gives boolean, and its type is string"),
        ({"columns": [{"name": "a", "expr": "key('k')", "key": "k"}]}, "give `expr`, or `key` and `path`"),
        ({"columns": [{"name": "a", "expr": "key('k')", "type": "timestamp"}]}, "a timestamp of a text needs `format`"),
        ({"columns": [{"name": "a", "expr": "1", "type": "int", "max_bytes": 5}]}, "max_bytes: for texts"),
        ({"masks": [{"keys": "k", "by": "hash"}]}, "`mask_key` names the connection"),
        ({"mask_key": "k"}, "`mask_key` names the connection"),
        ({"masks": [{"keys": "ts", "by": "drop"}]}, "drop of ts leaves no timestamp for column event_time"),
        ({"masks": [{"keys": "*", "by": "drop"}]}, "`*` is for redact"),
        (
            {"columns": [{"name": "a", "key": "j", "path": "$.a"}], "masks": [{"keys": "j", "by": "drop"}]},
            "leaves no $.a for column a",
        ),
        ({"masks": [{"keys": "k", "by": "redact"}]}, "`patterns` is for redact, which needs some"),
        ({"masks": [{"keys": "k", "by": "redact", "patterns": ["mobile"]}]}, "names are cn_mobile"),
        ({"masks": [{"keys": "k", "by": "redact", "patterns": ["(?=a)"]}]}, "patterns are RE2's"),
        ({"masks": [{"keys": "k", "by": "truncate"}]}, "`characters` is for truncate"),
    ],
)
def test_a_pipeline_whose_expressions_or_masks_do_not_fit_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as told:
        table = {} if "columns" not in changes else {"table": {"path": "file:///t", "name": "t"}}
        ad_events("file:///t", **table, **changes)
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"(a)(?:b)(?P<n>c)(?<m>d)", 3),
        (r"[(](a)", 1),
        (r"[^\s:\[]+(a)", 1),
        (r"[]()](a)", 1),
        (r"[^]()](a)", 1),
        (r"[[:alpha:](](a)", 1),
        (r"\((a)\)", 1),
        (r"((a)|(b))", 3),
        (r"[\](](a)", 1),
        (r"(?i)(a)(?s:.)", 1),
        (r"[a\\](a)", 1),
        (r"\\(a)", 1),
    ],
)
def test_the_groups_of_a_pattern_are_counted_as_re2_counts_them(pattern: str, groups: int) -> None:
    parse(f"regexp_extract(s, r'{pattern}', {groups})", COLUMNS)
    with pytest.raises(ValueError, match=f"has {groups} groups"):
        parse(f"regexp_extract(s, r'{pattern}', {groups + 1})", COLUMNS)


@pytest.mark.parametrize(
    "mask", [{"by": "drop"}, {"by": "truncate", "characters": 3}, {"by": "redact", "patterns": "ip"}]
)
@pytest.mark.parametrize("keys", ["id", "*"])
def test_a_mask_that_makes_different_record_keys_equal_is_refused(mask: dict[str, Any], keys: str) -> None:
    described = customers("file:///t").model_dump(mode="json")
    if keys == "*" and mask["by"] != "redact":
        return
    with pytest.raises(ValueError, match="would make one row of those whose keys differ in what it takes out"):
        Pipeline.model_validate({**described, "masks": [{"keys": keys, **mask}]})
    Pipeline.model_validate({**described, "masks": [{"keys": "id", "by": "hash"}], "mask_key": "k"})


def test_the_quarantines_table_has_neither_condition_nor_masks() -> None:
    masks = [{"keys": ["value", "phone"], "by": "hash"}]
    made = ad_events("file:///t", where="clicks > 1", masks=masks, mask_key="k", misfits="quarantine")
    Pipeline.model_validate(table_of(made).model_dump(mode="json"))
