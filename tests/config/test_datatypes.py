"""Types as pipeline files write them: read into a tree, written in one form, refused with what is allowed."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.config.datatypes import DEEPEST, holds, parse_type


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("string", "string"),
        (" BigInt ", "bigint"),
        ("DECIMAL( 10 , 2 )", "decimal(10,2)"),
        ("decimal(38,38)", "decimal(38,38)"),
        ("array< map<STRING, double> >", "array<map<string,double>>"),
        ("Struct<userId: bigint, at:timestamp>", "struct<userId:bigint,at:timestamp>"),
        ("struct<array:array<int>,struct:struct<int:int>>", "struct<array:array<int>,struct:struct<int:int>>"),
    ],
)
def test_a_type_is_read_and_written_in_one_form(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical
    assert parse_type(canonical) == parse_type(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("number", "a type is one of string, int"),
        ("tinyint", "a type is one of"),
        ("", "a type is one of"),
        ("int int", "at 'int'"),
        ("decimal", r"expected \( at ''"),
        ("decimal(39,0)", r"decimal\(39,0\): expected 1 to 38 digits"),
        ("decimal(0,0)", "expected 1 to 38 digits"),
        ("decimal(5,6)", "no more behind the point"),
        ("decimal(5)", r"expected , at '\)'"),
        ("array<>", "at '>'"),
        ("array<int", "expected > at ''"),
        ("array<int>>", "at '>'"),
        ("map<int,int>", "the keys of a map are strings"),
        ("struct<>", "at '>'"),
        ("struct<a int>", "expected : at 'int>'"),
        ("struct<a:int,A:int>", "has A twice"),
        ("struct<1:int>", "at '1:int>'"),
        ("struct<a:int;b:int>", "at ';b:int>'"),
        ("struct<a-b:int>", "expected : at '-b:int>'"),
        ("array<" * (DEEPEST + 1) + "int" + ">" * (DEEPEST + 1), f"{DEEPEST} times at most"),
    ],
)
def test_what_is_no_type_is_refused_where_it_stops_being_one(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_type(text)


def test_a_scalar_is_found_at_any_depth() -> None:
    assert holds(parse_type("array<map<string,struct<a:int,b:date>>>"), "date")
    assert not holds(parse_type("array<map<string,struct<a:int,date:string>>>"), "date")
